"""Files that cannot be read or decoded: they are missing, were changed, or are no regular files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from harness.base.errors import UsageError, describe_error

UNREADABLE: Final = (OSError, ValueError, KeyError, OverflowError, RecursionError)
"""Exceptions that reading and decoding such a file may raise."""


def is_present(path: Path) -> bool:
    """Return whether a directory has an entry with this name, such as a file or a link to nothing.

    Unlike Path.exists, this function returns False instead of an error if the directory cannot be searched.
    """
    return os.path.lexists(path)


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file. Raise OSError for a pipe or a device, which may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path.read_bytes()


def printable(name: str) -> str:
    """Return a file name as one line of text; its control characters and undecodable bytes are escaped."""
    return name if name.isprintable() else name.encode("unicode_escape", "surrogatepass").decode("ascii")


@contextmanager
def readable(path: Path, hint: str = "restore the file from a copy of the run directory") -> Iterator[None]:
    """Raise UsageError with the path if the body cannot read or decode the file."""
    try:
        yield
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) else describe_error(error)
        raise UsageError(f"{path} cannot be read: {reason}", hint) from error
