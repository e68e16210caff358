"""Locations of files: package data, the shared cache, state directories, the checkout."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path


def resource(name: str) -> Path:
    """Return the path of a file or folder in the package data, such as `docker/kafka`.

    In a checkout, `docker-compose.yml` and `toxiproxy` in the package data are symbolic links to the top
    level of the checkout.
    """
    path = Path(str(files("harness.provision") / "data" / name)).resolve()
    if not path.exists():
        raise FileNotFoundError(f"{name} is missing from the package data: {path}")
    return path


def checkout_dir() -> Path | None:
    """Return the checkout from which this package runs; None if it was installed outside a checkout."""
    root = Path(str(files("harness"))).resolve().parent
    return root if (root / "pyproject.toml").is_file() else None


def state_dir(name: str) -> Path:
    """Return the default state directory `name`.

    In a checkout, it is the folder `.name` of the checkout. Otherwise it is a folder below
    `$XDG_STATE_HOME/eos-harness`, by default `~/.local/state/eos-harness`.
    """
    checkout = checkout_dir()
    if checkout:
        return checkout / f".{name}"
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "eos-harness" / name


def cache_dir() -> Path:
    """Return the cache folder that all checkouts of this user share.

    It is `$XDG_CACHE_HOME/eos-harness`, by default `~/.cache/eos-harness`.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "eos-harness"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def cache_lock(name: str = "lock") -> Iterator[None]:
    """Hold a lock of the cache inside the block. The code in the block adds files to the cache.

    If two commands need the same files, the second one waits for the lock. It then finds the files in the
    cache.
    """
    with (cache_dir() / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch_dir(purpose: str) -> Iterator[Path]:
    """Create a temporary folder in the cache, and remove it at the end of the block.

    The caller must hold a cache lock. Folders with the same purpose that a killed command has left are
    removed first.
    """
    for left in cache_dir().glob(f"{purpose}-*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=f"{purpose}-") as scratch:
        yield Path(scratch)
