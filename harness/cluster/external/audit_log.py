"""The audit log of an external cluster. The harness records each action before it carries out the action."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from harness.base.secrets import redact_bytes


class Audit:
    """Writer of the audit log, which is a file in the state directory.

    It can also write each entry to a second file, which is in the directory of the run.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._files = [path]
        self._began = path.stat().st_size if path.exists() else 0

    def also(self, path: Path) -> None:
        """Write all later entries not only to the audit log, but also to the file `path`.

        First copy to `path` the entries that this process has already written to the audit log.
        """
        mine = f'"pid": {os.getpid()},'.encode()
        with self._files[0].open("a+b") as file:
            file.seek(self._began)
            _append(path, b"".join(line for line in file if mine in line))
        self._files.append(path)

    def note(self, action: str, **details: Any) -> None:
        """Write one entry to the audit log: an action that will be carried out, or one that was refused."""
        line = {"at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "wall": time.time_ns(), "pid": os.getpid()}
        written = redact_bytes(json.dumps({**line, "action": action, **details}).encode()) + b"\n"
        for path in self._files:
            _append(path, written)


def _append(path: Path, data: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())
