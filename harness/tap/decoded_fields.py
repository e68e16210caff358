"""Fields of decoded frames in the frame log: ids, epochs, sequences, offsets and errors.

The frame log never contains the content of records.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class _Compact(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base class of structures whose fields are logged only if they differ from their default values."""


class BatchFields(_Compact):
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
    """For a marker: its timestamp in milliseconds, by the broker's wall clock."""


class PartitionFields(_Compact):
    """A partition in a request or a response."""

    topic: str
    partition: int
    error: str | None = None
    offset: int | None = None
    """The meaning depends on the api. Fetch: the first offset to read. Produce: the offset of the batch.
    TxnOffsetCommit: the committed offset.
    """
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start: int | None = None
    aborted: list[tuple[int, int]] = []
    """(producer id, first offset) of each aborted transaction in the fetched range."""
    leader: int | None = None


class MarkerFields(_Compact):
    """A marker that a coordinator asks the leader of partitions to write (WriteTxnMarkers)."""

    producer_id: int
    epoch: int
    decision: Literal["commit", "abort"]
    coordinator_epoch: int
    transaction_version: int = 0
    """Transaction version of the client. Below 2, all transactions of a producer can have the same epoch."""


class VerifiedTransaction(_Compact):
    """One of the transactions in a request with which a broker asks a coordinator (AddPartitionsToTxn)."""

    transactional_id: str
    producer_id: int
    epoch: int
    verify_only: bool


class Coordinator(_Compact):
    """The coordinator of a group or a transactional id."""

    key: str
    broker: int
    error: str | None = None


class Facts(_Compact):
    """The fields of one request or response. The api determines which of them are set."""

    error: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    epoch: int | None = None
    group: str | None = None
    generation: int | None = None
    member: str | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    transaction_timeout_ms: int | None = None
    request_timeout_ms: int | None = None
    """For a Produce request: how long the producer waits for an answer before it sends the request again."""
    committed: bool | None = None
    isolation: Literal["read_committed", "read_uncommitted"] | None = None
    acks: int | None = None
    batches: list[BatchFields] = []
    partitions: list[PartitionFields] = []
    left_out: int = 0
    """Number of batches and partitions that the frame contained but that are not listed here, because of a
    limit per frame.
    """
    coordinators: list[Coordinator] = []
    brokers: list[int] = []
    markers: list[MarkerFields] = []
    transactions: list[VerifiedTransaction] = []
    """The transactions of an AddPartitionsToTxn request of a broker, which can contain several."""
    replica: int | None = None
    """For a Fetch request: the id of the broker that copies the partitions. None if a consumer fetches."""
    apis: int | None = None
    """For an ApiVersions response: the number of apis that the broker offers."""

    def touches(self, topic: str, partition: int | None) -> bool:
        """Return whether the frame names a topic or, if `partition` is given, this partition of the topic."""
        named = {(p.topic, p.partition) for p in self.partitions}
        named |= {(b.topic, b.partition) for b in self.batches}
        return any(t == topic and partition in (None, p) for t, p in named)

    def names_transactional_id(self, transactional_id: str) -> bool:
        """Return whether the frame is about a transactional id."""
        inner = [transaction.transactional_id for transaction in self.transactions]
        return transactional_id in (self.transactional_id, *inner)

    def names_producer_id(self, producer_id: int) -> bool:
        """Return whether the frame is about a producer id."""
        inner = [batch.producer_id for batch in self.batches]
        inner += [marker.producer_id for marker in self.markers]
        inner += [transaction.producer_id for transaction in self.transactions]
        return producer_id in (self.producer_id, *inner)

    @property
    def refusals(self) -> list[str]:
        """The different errors in the frame: of the frame, its partitions and its coordinators."""
        inner = [p.error for p in self.partitions] + [c.error for c in self.coordinators]
        return list(dict.fromkeys(e for e in (self.error, *inner) if e))
