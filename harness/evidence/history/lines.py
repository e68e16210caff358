"""The lines of a history: requests of a client, their results, and faults injected into the cluster.

Each line is one JSON object; its field `type` is the tag of one of the structs below. Records are listed as
intervals of sequences. So a transaction needs the same number of lines whatever its size.
docs/history-format.md explains every field.
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
"""Records passed to the client library: (lane, first sequence, last sequence)."""

Acked = tuple[int, int, int, int]
"""Acknowledged records: (lane, first sequence, last sequence, offset of the first record or -1 if unknown).
"""

Read = tuple[str, int, int, int, int, int, int]
"""Run of consecutive records that a consumer got.

The fields are (topic, partition, first offset, producer, lane, first sequence, count). Both the offset and
the sequence grow by one from record to record.
"""

Position = tuple[str, int, int]
"""Position of a group: (topic, partition, next offset that the group will read)."""

COMMITTED_POSITION: Final = -1
"""Offset of an assignment that starts at the group's committed position.

If the group has committed no position yet, it starts at the beginning of the partition.
"""

Bounds = tuple[str, int, int, int, int]
"""Bounds of a partition: (topic, partition, log start, last stable offset, high watermark)."""

Isolation = Literal["read_committed", "read_uncommitted"]

FaultStage = Literal["intent", "bite", "no_bite", "healed", "heal_failed"]


class HistoryOpened(LogLine, tag="open"):
    """First line of a history file: the run, the client process, and the id of its monotonic clock.

    `lateness` means that the process records how late its threads wake.
    """

    format: int
    run: str
    client: str
    role: str
    host: str
    pid: int
    clock: str
    lateness: bool = False


class Producer(LogLine, tag="producer"):
    """A producer: the partition of each lane, and the settings that define Kafka's guarantees for it."""

    producer: int
    lanes: list[PartitionId]
    transactional_id: str | None = None
    idempotent: bool = True
    acks: str = "all"
    in_flight: int = 5
    timeout_ms: int | None = None


class Error(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An error that the client library returned: its code, name and message.

    `flags` are properties of the error, such as fatal, retriable, abortable.
    """

    code: int
    name: str
    flags: list[str] = []
    message: str = ""


class Invoke(LogLine, tag="invoke"):
    """Intent of an operation. The client writes this line to disk before it sends the request.

    `isolation` is the isolation level of a poll; without it, the level is read_committed.
    """

    f: str
    op: int
    producer: int | None = None
    txn: int | None = None
    sent: list[Sent] = []
    group: str | None = None
    offsets: list[Position] = []
    limit_ms: int | None = None
    isolation: Isolation | None = None


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
    """Result of an operation that certainly took effect."""


class Fail(_Done, tag="fail"):
    """Result of an operation that certainly did not take effect."""


class Info(_Done, tag="info"):
    """Result of an operation that may have taken effect or not.

    `acked` and `failed` list the records whose result is known.
    """


class Sample(LogLine, tag="sample"):
    """Offsets that an observer read from the brokers: bounds of partitions, or positions of a group.

    The harness injects no fault into the observer or its connections. `asked` is the monotonic time at which
    the first of the requests was sent; 0 means that it is the time of the line.
    """

    bounds: list[Bounds] = []
    group: str | None = None
    positions: list[Position] = []
    asked: int = 0


class FaultLine(LogLine, tag="fault"):
    """One stage of a fault injection.

    The line of the stage "intent" contains all data that another process needs to heal the fault.
    """

    stage: FaultStage
    id: str
    fault: str | None = None
    target: str | None = None
    resolved: list[str] = []
    params: dict[str, Any] = {}
    undo: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    detail: str | None = None


class Lateness(LogLine, tag="lateness"):
    """How late a thread of the process woke from its sleeps since `since`, a monotonic time in nanoseconds.

    The thread sleeps for a short fixed time again and again. `wakes` is how often it woke, `largest` is the
    largest lateness and `total` is the sum, both in nanoseconds. `pressure` is the time in microseconds in
    which some task of the machine waited for a processor; None if the operating system does not report it.
    """

    since: int
    wakes: int
    largest: int
    total: int
    pressure: int | None = None


class HistoryClosed(LogLine, tag="close"):
    """Last line of a history whose client ended normally. Without this line, the process was killed.

    `lines` is the number of lines of the file, this one included; None in histories of earlier releases.
    """

    reason: str
    lines: int | None = None


Line = HistoryOpened | Producer | Invoke | Ok | Fail | Info | Sample | Lateness | FaultLine | HistoryClosed
Completion = Ok | Fail | Info


def schema_text() -> str:
    """Return the JSON schema of a history line."""
    return log_line.schema_text(f"One line of a history file, format {FORMAT}", Line)
