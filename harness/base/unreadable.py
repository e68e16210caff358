"""Files that cannot be read or decoded: they are missing, were changed, or are no regular files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from harness.base.errors import UsageError, describe_error

UNREADABLE: Final = (OSError, ValueError, KeyError, OverflowError, RecursionError)
"""Exceptions that reading and decoding such a file may raise."""


@contextmanager
def readable(path: Path, hint: str = "restore the file from a copy of the run directory") -> Iterator[None]:
    """Raise UsageError with the path if the body cannot read or decode the file."""
    try:
        yield
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) else describe_error(error)
        raise UsageError(f"{path} cannot be read: {reason}", hint) from error
