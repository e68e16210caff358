"""Temporary folders that do not stay behind.

Each folder has a lock file that the process holds as long as it uses the folder. The folder of a process that
was killed has a free lock, and the next process that needs a folder removes it.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final

PREFIX: Final = "eos-"
_LOCK: Final = "lock"


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """Yield a new temporary folder, and remove it at the end of the block."""
    _remove_abandoned()
    folder, lock = _claim(purpose)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def scratch_until_exit(purpose: str) -> Path:
    """Return a new temporary folder that is removed when this process exits."""
    stack = ExitStack()
    folder = stack.enter_context(scratch_folder(purpose))
    atexit.register(stack.close)
    return folder


def _claim(purpose: str) -> tuple[Path, IO[str]]:
    """Create a folder, and hold its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-"))
        lock = (folder / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _LOCK).exists():  # otherwise another process removed it before the lock was held
            return folder, lock
        lock.close()


def _remove_abandoned() -> None:
    """Remove the folders of processes of this user that no longer exist."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # it is in use, or has no lock: another program's, or another process is removing it
