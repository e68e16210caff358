"""The audit log: the harness records each action on an external cluster before it carries out the action."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from harness.base.secrets import redact_bytes


class Audit:
    """The audit log: a file in the state directory, later also a copy in the run directory."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._files = [path]
        self._began = path.stat().st_size if path.exists() else 0

    def also(self, path: Path) -> None:
        """Write all later entries to `path` too. First copy this process's earlier entries there."""
        mine = f'"pid": {os.getpid()},'.encode()
        with self._files[0].open("a+b") as file:
            file.seek(self._began)
            _append(path, b"".join(line for line in file if mine in line))
        self._files.append(path)

    def note(self, action: str, **details: Any) -> None:
        """Record an action before it is carried out, or an action that was refused."""
        line = {"at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "wall": time.time_ns(), "pid": os.getpid()}
        written = redact_bytes(json.dumps({**line, "action": action, **details}).encode()) + b"\n"
        for path in self._files:
            _append(path, written)


def _append(path: Path, data: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())
