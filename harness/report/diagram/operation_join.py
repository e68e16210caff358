"""Assignment of frames to operations in the clients' histories, by client and by time.

The frame log and the histories must come from one host, so that their times come from the same clock.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from harness.base.errors import UsageError
from harness.evidence.history import Fail, HistoryFile, Info, Invoke, Ok, Producer, history_files
from harness.tap.frame_lines import Frame, FrameLogOpened


class Operation(NamedTuple):
    """An operation of a client, from its invocation to its completion."""

    client: str
    op: int
    f: str
    begin: int
    end: int | None
    """Time of the completion; None if the operation never completed."""

    @property
    def text(self) -> str:
        """A label such as `p1 op 7 (commit)`."""
        return f"{self.client} op {self.op} ({self.f})"


class Operations:
    """The operations of all clients of a run, read from their histories."""

    def __init__(self, directory: Path, opening: FrameLogOpened | None = None) -> None:
        self._by_client: dict[str, list[Operation]] = {}
        self._clients: dict[str, str] = {}
        for file in history_files(directory) if directory.exists() else []:
            first = file.opening()
            if opening and first.clock != opening.clock:
                raise UsageError(
                    f"{file.path} has the clock {first.clock}, the frame log has the clock {opening.clock}",
                    "use a run directory that one host wrote without a restart",
                )
            self._clients[first.client] = first.client
            self._by_client[first.client] = self._read(first.client, file)

    def of(self, frame: Frame) -> Operation | None:
        """Name of the operation in a diagram: client, number and kind, such as `p1 op 7 (commit)`."""
        ident = frame.facts.transactional_id if frame.facts else None
        client = self._clients.get(frame.client_id) or self._clients.get(f"txn:{ident}")
        latest = None
        for operation in self._by_client.get(client or "", ()):
            if operation.begin > frame.mono:
                break
            if operation.end is None or operation.end >= frame.mono:
                latest = operation
        return latest

    def _read(self, client: str, file: HistoryFile) -> list[Operation]:
        begun: dict[int, Invoke] = {}
        done: list[Operation] = []
        for _, line in file.read():
            match line:
                case Producer(transactional_id=str(ident)):
                    self._clients[f"txn:{ident}"] = client
                case Invoke():
                    begun[line.op] = line
                case Ok() | Fail() | Info():
                    invoke = begun.pop(line.op)
                    done.append(Operation(client, line.op, line.f, invoke.mono, line.mono))
        done += [Operation(client, line.op, line.f, line.mono, None) for line in begun.values()]
        return sorted(done, key=lambda operation: operation.begin)
