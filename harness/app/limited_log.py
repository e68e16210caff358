"""Log of an instance with a limit of its size. The oldest half is dropped when the limit is reached.

The number of dropped bytes is in a file beside the log, and `read_log` reports it in a line before the rest.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

OLDER: Final = ".older"
DROPPED: Final = ".dropped"
_HEAD: Final = 100
"""Bytes that are left free for the line about dropped bytes."""


class LimitedLog:
    """Log in two files, `path` and `path`.older. Together they are never larger than the limit."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._half = max(1, (limit - _HEAD) // 2)
        self._file = path.open("ab", buffering=0)
        self._size = path.stat().st_size

    def write(self, data: bytes) -> None:
        """Append output of the application."""
        while data:
            free = self._half - self._size
            if free <= 0:
                self._rotate()
                continue
            self._file.write(data[:free])
            self._size += len(data[:free])
            data = data[free:]

    def note(self, text: str) -> None:
        """Append a line of the harness."""
        self.write(f"--- {time.strftime('%H:%M:%S')} {text}\n".encode())

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        older = self._path.with_name(f"{self._path.name}{OLDER}")
        if older.exists():
            count = dropped_bytes(self._path) + older.stat().st_size
            self._path.with_name(f"{self._path.name}{DROPPED}").write_text(str(count))
        self._path.replace(older)
        self._file = self._path.open("ab", buffering=0)
        self._size = 0


def dropped_bytes(path: Path) -> int:
    """Return how many bytes of a log were dropped, because it was larger than its limit."""
    file = path.with_name(f"{path.name}{DROPPED}")
    return int(file.read_text() or 0) if file.exists() else 0


def read_log(path: Path) -> str:
    """Return what is left of a log, the oldest line first; empty if there is no log."""
    parts = [path.with_name(f"{path.name}{OLDER}"), path]
    dropped = dropped_bytes(path)
    head = f"--- the first {dropped} bytes were dropped, because limits.log was reached\n" if dropped else ""
    return head + "".join(part.read_text(errors="replace") for part in parts if part.exists())


def last_lines(path: Path, count: int = 5) -> list[str]:
    """Return the last lines that the application wrote, without the lines of the harness."""
    lines = [line for line in read_log(path).splitlines() if line.strip() and not line.startswith("--- ")]
    return lines[-count:]
