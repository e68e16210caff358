"""Where things live: a cache shared by all checkouts, and nothing else outside the checkout."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """The cache shared by checkouts: `$XDG_CACHE_HOME/eos-harness`, or `~/.cache/eos-harness`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "eos-harness"
    path.mkdir(parents=True, exist_ok=True)
    return path


def checkout_dir() -> Path:
    """The checkout that this package runs from: it holds the compose file and the default state."""
    return Path(__file__).resolve().parents[2]


@contextmanager
def cache_lock(name: str = "lock") -> Iterator[None]:
    """One command at a time fills the cache; others wait and then find it filled."""
    with (cache_dir() / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch_dir(purpose: str) -> Iterator[Path]:
    """A folder in the cache for one block, under a lock; what a killed command left of one goes first."""
    for left in cache_dir().glob(f"{purpose}-*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=f"{purpose}-") as scratch:
        yield Path(scratch)
