"""Joins frames to the operations of the history: same host, same clock, the client's name in every frame."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from harness.base.errors import UsageError
from harness.evidence.history import Fail, Info, Invoke, Ok, Producer, history_files
from harness.tap.frame_lines import Frame, FrameLogOpened


class Operation(NamedTuple):
    """What a client was doing: which operation of which history, from when to when."""

    client: str
    op: int
    f: str
    begin: int
    end: int | None
    """None: it never completed."""

    @property
    def text(self) -> str:
        """Such as `p1 op 7 (commit)`."""
        return f"{self.client} op {self.op} ({self.f})"


class Operations:
    """The operations of a run, by client."""

    def __init__(self, directory: Path, opening: FrameLogOpened | None = None) -> None:
        self._by_client: dict[str, list[Operation]] = {}
        self._clients: dict[str, str] = {}
        for file in history_files(directory) if directory.exists() else []:
            first = file.opening()
            if opening and first.clock != opening.clock:
                raise UsageError(
                    f"{file.path} was written by the clock {first.clock}, the frame log by {opening.clock}",
                    "frames and operations can be joined only if one host wrote both, without a restart",
                )
            self._clients[first.client] = first.client
            self._by_client[first.client] = self._read(first.client, file)

    def of(self, frame: Frame) -> Operation | None:
        """The operation that was open in the frame's client when the frame passed: the one begun last."""
        ident = frame.facts.transactional_id if frame.facts else None
        client = self._clients.get(frame.client_id) or self._clients.get(f"txn:{ident}")
        found = None
        for operation in self._by_client.get(client or "", ()):
            if operation.begin > frame.mono:
                break
            if operation.end is None or operation.end >= frame.mono:
                found = operation
        return found

    def _read(self, client: str, file: object) -> list[Operation]:
        begun: dict[int, Invoke] = {}
        done: list[Operation] = []
        for _, line in file.read():  # type: ignore[attr-defined]
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
