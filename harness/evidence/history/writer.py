"""Writer of a history file. It only appends, and each client process has its own file.

A client writes the intent of an operation to disk before it acts. "On disk" means that a line is passed to
the kernel in one write() before the method returns. So the line survives a SIGKILL of the process, which is
how the harness kills clients. Lines about faults are also fsynced, so that they survive a crash of the host:
another process needs them for healing. The opening and closing lines are fsynced as well. Other lines need no
fsync: the brokers under test run on the same host, so a crash of the host ends the run anyway.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from harness.base.errors import UsageError
from harness.base.partition_id import PartitionId
from harness.base.secrets import redact_bytes
from harness.evidence.history.lateness_recorder import LatenessRecorder
from harness.evidence.history.lines import (
    FORMAT,
    Acked,
    Bounds,
    Completion,
    Error,
    FaultLine,
    HistoryClosed,
    HistoryOpened,
    Info,
    Invoke,
    Isolation,
    Line,
    Ok,
    Position,
    Producer,
    Read,
    Sample,
    Sent,
)
from harness.evidence.log_line import clock_id, timestamps


class HistoryWriter:
    """Writer of the history of one client process. It is thread-safe."""

    def __init__(self, path: Path, *, run: str, client: str, role: str, lateness: bool = False) -> None:
        """Create the history. With `lateness`, a thread records how late the process's threads wake."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            raise UsageError(
                f"the history {path} already exists",
                "give every client process its own name: a process never continues another's history",
            ) from None
        self._lock = threading.Lock()
        self._encode = msgspec.json.Encoder().encode
        self._asked: dict[int, str] = {}
        self._ops = 0
        self._faults = 0
        self._client = client
        self._lines = 0
        self._lateness: LatenessRecorder | None = None
        opening = HistoryOpened(
            format=FORMAT,
            run=run,
            client=client,
            role=role,
            host=platform.node(),
            pid=os.getpid(),
            clock=clock_id(),
            lateness=lateness,
            **timestamps(),
        )
        self._write(opening, sync=True)
        if lateness:
            self._lateness = LatenessRecorder(self._write, opening.mono)
            self._lateness.start()

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close("done" if error is None else f"raised {type(error).__name__}")

    def _write(self, line: Line, *, sync: bool = False) -> None:
        with self._lock:
            self._append(line, sync=sync)

    def _append(self, line: Line, *, sync: bool = False) -> None:
        """Write a line. The caller holds the lock."""
        data = redact_bytes(self._encode(line)) + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]
        self._lines += 1
        if sync:
            os.fsync(self._fd)

    def producer(
        self,
        number: int,
        lanes: Iterable[PartitionId],
        *,
        transactional_id: str | None = None,
        idempotent: bool = True,
        acks: str = "all",
        in_flight: int = 5,
        timeout_ms: int | None = None,
    ) -> None:
        """Declare a producer before it sends its first record. Declare it again when it gets more lanes."""
        line = Producer(
            producer=number,
            lanes=list(lanes),
            transactional_id=transactional_id,
            idempotent=idempotent,
            acks=acks,
            in_flight=in_flight,
            timeout_ms=timeout_ms,
            **timestamps(),
        )
        self._write(line)

    def invoke(
        self,
        f: str,
        *,
        producer: int | None = None,
        txn: int | None = None,
        sent: Iterable[Sent] = (),
        group: str | None = None,
        offsets: Iterable[Position] = (),
        limit_ms: int | None = None,
        isolation: Isolation | None = None,
    ) -> int:
        """Record the start of an operation and return the operation's number.

        Call this before the request is sent.
        """
        # The number is taken and written under the same lock. Otherwise a process that is killed between the
        # two, while another thread writes the next operation, would leave a gap in the numbers.
        with self._lock:
            op = self._ops
            line = Invoke(
                f=f,
                op=op,
                producer=producer,
                txn=txn,
                sent=list(sent),
                group=group,
                offsets=list(offsets),
                limit_ms=limit_ms,
                isolation=isolation,
                **timestamps(),
            )
            self._append(line)
            self._ops += 1
            self._asked[op] = f
        return op

    def _complete(self, kind: type[Completion], op: int, fields: Mapping[str, Any]) -> None:
        with self._lock:
            f = self._asked.pop(op, None)
        if f is None:
            raise ValueError(f"operation {op} was never invoked or is already complete")
        self._write(kind(f=f, op=op, **timestamps(), **fields))

    def ok(
        self,
        op: int,
        *,
        acked: Iterable[Acked] = (),
        read: Iterable[Read] = (),
        pid: int | None = None,
        epoch: int | None = None,
    ) -> None:
        """Record that the operation certainly took effect."""
        fields = {"acked": list(acked), "read": list(read), "pid": pid, "epoch": epoch}
        self._complete(Ok, op, fields)

    def info(
        self,
        op: int,
        error: Error,
        *,
        acked: Iterable[Acked] = (),
        failed: Iterable[Sent] = (),
        read: Iterable[Read] = (),
    ) -> None:
        """Record that the result of the operation is unknown.

        `acked` and `failed` list the records whose result is known.
        """
        fields = {"error": error, "acked": list(acked), "failed": list(failed), "read": list(read)}
        self._complete(Info, op, fields)

    def sample(
        self,
        bounds: Iterable[Bounds] = (),
        *,
        group: str | None = None,
        positions: Iterable[Position] = (),
        asked: int = 0,
    ) -> None:
        """Record the bounds of partitions, or a group's committed positions, as the brokers returned them.

        `asked` is the monotonic time in nanoseconds at which the first request was sent.
        """
        line = Sample(
            bounds=list(bounds), group=group, positions=list(positions), asked=asked, **timestamps()
        )
        self._write(line)

    def fault_intent(
        self,
        fault: str,
        target: str,
        resolved: Iterable[str],
        *,
        params: Mapping[str, Any] | None = None,
        undo: Mapping[str, Any] | None = None,
    ) -> str:
        """Write the intent to inject a fault, with the data needed to heal it, and return the fault's id.

        The line is fsynced.
        """
        with self._lock:
            self._faults += 1
            number = self._faults
        ident = f"{self._client}-{number:04d}"
        line = FaultLine(
            stage="intent",
            id=ident,
            fault=fault,
            target=target,
            resolved=list(resolved),
            params=dict(params or {}),
            undo=dict(undo or {}),
            **timestamps(),
        )
        self._write(line, sync=True)
        return ident

    def fault_bite(self, ident: str, measured: Mapping[str, Any]) -> None:
        """Record that the injected fault took effect, with the measurement that proves it."""
        self._write(FaultLine(stage="bite", id=ident, measured=dict(measured), **timestamps()), sync=True)

    def fault_no_bite(self, ident: str, detail: str, measured: Mapping[str, Any] | None = None) -> None:
        """Record that the fault was injected but no effect could be measured."""
        line = FaultLine(
            stage="no_bite", id=ident, detail=detail, measured=dict(measured or {}), **timestamps()
        )
        self._write(line, sync=True)

    def fault_healed(self, ident: str, measured: Mapping[str, Any] | None = None) -> None:
        """Record that the fault was healed and that its effect has verifiably ended."""
        self._write(
            FaultLine(stage="healed", id=ident, measured=dict(measured or {}), **timestamps()), sync=True
        )

    def fault_heal_failed(self, ident: str, detail: str) -> None:
        """Record that the fault was not healed: its effect persists. Healing may be tried again."""
        self._write(FaultLine(stage="heal_failed", id=ident, detail=detail, **timestamps()), sync=True)

    def close(self, reason: str = "done") -> None:
        """Write the closing line and close the file. A second call does nothing."""
        if self._fd < 0:
            return
        if self._lateness is not None:
            self._lateness.stop()
        with self._lock:
            closing = HistoryClosed(reason=reason, lines=self._lines + 1, **timestamps())
            self._append(closing, sync=True)
        os.close(self._fd)
        self._fd = -1
