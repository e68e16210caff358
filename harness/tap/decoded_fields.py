"""What is kept of a decoded frame: ids, epochs, sequences, offsets, errors; never a record's content."""

from __future__ import annotations

from typing import Literal

import msgspec


class _Compact(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A shape whose empty fields are left out of the log."""


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
    """When a marker was written, by the broker's wall clock."""


class Partition(_Compact):
    """What a request asks of a partition, or what a response says of it."""

    topic: str
    partition: int
    error: str | None = None
    offset: int | None = None
    """Fetch: from where on; Produce: where the batch went; TxnOffsetCommit: the position."""
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start: int | None = None
    aborted: list[tuple[int, int]] = []
    """(producer id, first offset) of the aborted transactions in what was fetched."""
    leader: int | None = None


class Coordinator(_Compact):
    """Who coordinates a group or a transactional id."""

    key: str
    broker: int
    error: str | None = None


class Facts(_Compact):
    """The telling fields of one request or response; which ones depends on the api."""

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
    """Batches and partitions beyond the limit for one frame."""
    coordinators: list[Coordinator] = []
    brokers: list[int] = []
    apis: int | None = None
    """ApiVersions: how many apis the broker offers."""

    def touches(self, topic: str, partition: int | None) -> bool:
        """Whether the frame speaks of this topic, and of this partition of it."""
        spoken_of = {(p.topic, p.partition) for p in self.partitions}
        spoken_of |= {(b.topic, b.partition) for b in self.batches}
        return any(t == topic and partition in (None, p) for t, p in spoken_of)

    @property
    def refusals(self) -> list[str]:
        """Every error that it carries, each once."""
        inner = [p.error for p in self.partitions] + [c.error for c in self.coordinators]
        return list(dict.fromkeys(e for e in (self.error, *inner) if e))
