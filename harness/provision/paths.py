"""Where things live: a cache shared by all checkouts, and nothing else outside the checkout."""

from __future__ import annotations

import fcntl
import os
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
def cache_lock() -> Iterator[None]:
    """One command at a time fills the cache; others wait and then find it filled."""
    with (cache_dir() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
