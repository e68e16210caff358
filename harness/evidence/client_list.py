"""The list of the clients that a run started, and how each of them ended: the file clients.json.

The run writes a client into the list before it starts the client, and its end as soon as the run has observed
it. So a missing history is noticed, and so is a client that died, even if the run itself was killed.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final, Literal

import msgspec

from harness.evidence.log_line import clock_id
from harness.evidence.run_directory import RunDirectory

FILE: Final = "clients.json"
FORMAT: Final = 1

End = Literal["", "stopped", "by itself", "by a fault", "killed"]
"""How a client ended.

    stopped      it ended after the run had asked it to stop
    by itself    it ended although the run had not asked it to stop
    by a fault   a fault of the run ended it
    killed       it did not end within its time limit after the run had asked it to stop, so the run killed it
    (empty)      the run recorded no end
"""


class ClientRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One client: its name, which is the name of its history, its producer number, and its end.

    `started` and `at` (the time of the end) are monotonic times in nanoseconds. `fault` is the id of the
    fault that ended the client, and `last_line` is the last line of its log.
    """

    name: str
    kind: str
    producer: int
    started: int
    ended: End = ""
    at: int = 0
    exit_code: int | None = None
    fault: str = ""
    last_line: str = ""


class ClientList(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All clients of a run in the order of their start. `clock` is the id of the run's monotonic clock."""

    format: int = FORMAT
    run: str
    clock: str
    clients: list[ClientRecord] = []

    @property
    def started(self) -> set[str]:
        """All clients that the run started."""
        return {client.name for client in self.clients}

    @property
    def finished(self) -> set[str]:
        """The clients that ended without an error, after a stop request or by themselves."""
        ended = ("stopped", "by itself")
        return {c.name for c in self.clients if c.ended in ended and c.exit_code == 0}

    def get(self, name: str) -> ClientRecord | None:
        """Return the record of a client, or None if the list does not contain the client."""
        return next((record for record in self.clients if record.name == name), None)


class ClientListWriter:
    """Writer of clients.json. It replaces the whole file after each change, and it is thread-safe."""

    def __init__(self, directory: RunDirectory, run: str) -> None:
        self._directory = directory
        self._list = ClientList(run=run, clock=clock_id())
        self._lock = threading.Lock()
        self._write()

    @property
    def path(self) -> Path:
        """The file that this object writes."""
        return self._directory.path / FILE

    def add(self, name: str, kind: str, producer: int) -> None:
        """Add a client that the run is about to start."""
        with self._lock:
            record = ClientRecord(name=name, kind=kind, producer=producer, started=time.monotonic_ns())
            self._list.clients.append(record)
            self._write()

    def end(
        self, name: str, how: End, *, exit_code: int | None = None, fault: str = "", last_line: str = ""
    ) -> None:
        """Record how a client ended. The first end that is recorded for a client stays."""
        with self._lock:
            record = self._list.get(name)
            if record is None or record.ended:
                return
            record.ended, record.at = how, time.monotonic_ns()
            record.exit_code, record.fault, record.last_line = exit_code, fault, last_line
            self._write()

    def _write(self) -> None:
        self._directory.write(FILE, self._list)
