"""The lines of a history: what a client asked and what it was told, and what was done to the cluster.

One JSON object a line. `type` says which of the shapes below it is; intervals of sequences stand
for records, so a transaction writes the same number of lines whatever its size. docs/history-
format.md explains every field.
"""

# ruff: noqa: RUF012 - msgspec copies mutable defaults for every instance

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from harness.base.partition_id import PartitionId
from harness.evidence import log_line
from harness.evidence.log_line import LogLine

FORMAT: Final = 1

Sent = tuple[int, int, int]
"""(lane, first sequence, last sequence) handed to the client."""

Acked = tuple[int, int, int, int]
"""(lane, first sequence, last sequence, offset of the first, or -1 when the client was not told)."""

Read = tuple[str, int, int, int, int, int, int]
"""(topic, partition, first offset, producer, lane, first sequence, count), dense in both."""

Position = tuple[str, int, int]
"""(topic, partition, offset): for a group, the next offset to be read."""

Bounds = tuple[str, int, int, int, int]
"""(topic, partition, log start, last stable offset, high watermark)."""

FaultStage = Literal["intent", "bite", "no_bite", "healed", "heal_failed"]


class HistoryOpened(LogLine, tag="open"):
    """First line of a file: which client process of which run wrote it, by which monotonic clock."""

    format: int
    run: str
    client: str
    role: str
    host: str
    pid: int
    clock: str


class Producer(LogLine, tag="producer"):
    """A producer that this client runs, its lanes (index = lane number) and what makes its contract."""

    producer: int
    lanes: list[PartitionId]
    transactional_id: str | None = None
    idempotent: bool = True
    acks: str = "all"
    in_flight: int = 5
    timeout_ms: int | None = None


class Error(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the client library said: its code, the code's name, flags such as fatal, retriable, abortable."""

    code: int
    name: str
    flags: list[str] = []
    message: str = ""


class Invoke(LogLine, tag="invoke"):
    """An operation is about to be asked for; on disk before it is."""

    f: str
    op: int
    producer: int | None = None
    txn: int | None = None
    sent: list[Sent] = []
    group: str | None = None
    offsets: list[Position] = []
    limit_ms: int | None = None


class _Done(LogLine):
    f: str
    op: int
    error: Error | None = None
    acked: list[Acked] = []
    failed: list[Sent] = []
    read: list[Read] = []
    pid: int | None = None
    epoch: int | None = None


class Ok(_Done, tag="ok"):
    """The operation surely happened."""


class Fail(_Done, tag="fail"):
    """The operation surely did not happen."""


class Info(_Done, tag="info"):
    """Nobody knows whether the operation happened; whatever part is known stands in acked and failed."""


class Sample(LogLine, tag="sample"):
    """Bounds of partitions and positions of a group, read by an observer that no fault touches."""

    bounds: list[Bounds] = []
    group: str | None = None
    positions: list[Position] = []


class Fault(LogLine, tag="fault"):
    """One stage of one injection; the intent carries everything that another process needs to heal it."""

    stage: FaultStage
    id: str
    fault: str | None = None
    target: str | None = None
    resolved: list[str] = []
    params: dict[str, Any] = {}
    undo: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    detail: str | None = None


class HistoryClosed(LogLine, tag="close"):
    """Last line of a client that ended in order; without it the process was killed."""

    reason: str


Line = HistoryOpened | Producer | Invoke | Ok | Fail | Info | Sample | Fault | HistoryClosed
Completion = Ok | Fail | Info


def schema_text() -> str:
    """Return the JSON schema of a history line."""
    return log_line.schema_text(f"One line of a history file, format {FORMAT}", Line)
