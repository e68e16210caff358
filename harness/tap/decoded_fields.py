"""Fields of decoded frames in the log: ids, epochs, sequences, offsets, errors; no record content."""

from __future__ import annotations

from typing import Literal

import msgspec


class _Compact(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of structures whose empty fields are not written to the log."""


class Batch(_Compact):
    """A record batch of a Produce request or a Fetch response."""

    topic: str
    partition: int
    count: int
    bytes: int
    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    base_offset: int = 0
    marker: Literal["commit", "abort"] | None = None
    appended_ms: int | None = None
    """For a marker: its time by the broker's wall clock."""


class Partition(_Compact):
    """A partition in a request or a response."""

    topic: str
    partition: int
    error: str | None = None
    offset: int | None = None
    """Fetch: first offset to read. Produce: offset of the batch. TxnOffsetCommit: the committed offset."""
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start: int | None = None
    aborted: list[tuple[int, int]] = []
    """(producer id, first offset) of the aborted transactions in the fetched range."""
    leader: int | None = None


class Coordinator(_Compact):
    """The coordinator of a group or a transactional id."""

    key: str
    broker: int
    error: str | None = None


class Facts(_Compact):
    """The fields of one request or response; the api determines which are set."""

    error: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    epoch: int | None = None
    group: str | None = None
    generation: int | None = None
    committed: bool | None = None
    isolation: Literal["read_committed", "read_uncommitted"] | None = None
    acks: int | None = None
    batches: list[Batch] = []
    partitions: list[Partition] = []
    left_out: int = 0
    """Number of batches and partitions that were left out because of the limit for one frame."""
    coordinators: list[Coordinator] = []
    brokers: list[int] = []
    apis: int | None = None
    """ApiVersions: number of apis that the broker offers."""

    def touches(self, topic: str, partition: int | None) -> bool:
        """Return whether the frame names a topic, or a partition of it."""
        named = {(p.topic, p.partition) for p in self.partitions}
        named |= {(b.topic, b.partition) for b in self.batches}
        return any(t == topic and partition in (None, p) for t, p in named)

    @property
    def refusals(self) -> list[str]:
        """The distinct errors in the frame."""
        inner = [p.error for p in self.partitions] + [c.error for c in self.coordinators]
        return list(dict.fromkeys(e for e in (self.error, *inner) if e))
