"""Reading of a cluster's logs into the tables that harness.evidence.log_audit compares."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from harness.base.errors import HarnessError, describe_error
from harness.base.partition_id import PartitionId, partition_name
from harness.evidence.log_audit import (
    CoordinatorLog,
    LoggedBatch,
    LoggedPosition,
    LoggedState,
    PartitionLog,
    complete_from,
)
from harness.kafka.admin import EARLIEST, Admin
from harness.kafka.log.batches import COMMIT, marker_type
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC, decode_position
from harness.kafka.log.fetch import PATIENCE_S, fetch_stored
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC, decode_state

READ_LIMIT_S: Final = 300.0
"""Time limit in seconds for reading all logs."""
_BEFORE_RUN_MS: Final = 300_000
"""Time before a run's first batch from which on the coordinators' logs are read.

It is longer than a transaction lasts until its first batch, plus the difference between the clocks of a
client and a broker.
"""


@dataclass
class AuditTables:
    """The logs of a cluster, as far as they could be read."""

    partitions: list[PartitionLog] = field(default_factory=list)
    coordinators: list[CoordinatorLog] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Descriptions of the logs, or parts of them, that could not be read."""


class _Reader:
    """Reader of whole partitions, with one time limit for all of them."""

    def __init__(self, admin: Admin, limit_s: float) -> None:
        self.admin = admin
        self.unread: list[str] = []
        self._deadline = time.monotonic() + limit_s

    def partitions(self, topic: str) -> list[PartitionId]:
        """Return the partitions of a topic; none if the topic does not exist or cannot be read."""
        try:
            found = [p for p in self.admin.metadata([topic]).partitions if p.topic == topic]
        except (HarnessError, OSError, EOFError) as error:
            self.unread.append(f"{topic}: {describe_error(error)}")
            return []
        return sorted((p.topic, p.partition) for p in found)

    def read(self, place: PartitionId, since_ms: int = EARLIEST) -> tuple[int, list[Any]]:
        """Return the offset at which a partition is read, and its batches up to the high watermark.

        The offset is the first retained one or, with `since_ms`, that of the first record since this time.
        """
        batches: list[Any] = []
        start, end, name = 0, -1, partition_name(place)
        try:
            topic, partition = place
            leader = self.admin.partition(topic, partition).leader
            start = self.admin.list_offsets(topic, since_ms, partitions=[partition])[partition]
            if start < 0:
                return start, batches
            end = self.admin.end_offsets(topic)[partition].high_watermark
            stored = fetch_stored(
                self.admin, leader, place, start, end, deadline=self._deadline, patience_s=PATIENCE_S
            )
            batches.extend(stored)
        except (HarnessError, OSError, EOFError) as error:
            self.unread.append(f"{name}: {describe_error(error)}")
            return start, batches
        read_to = batches[-1].last_offset + 1 if batches else start
        # Compaction may have removed the last records, but never the last batch.
        if read_to < end:
            self.unread.append(f"{name}: read up to {read_to} of {end}")
        return start, batches


def read_tables(
    admin: Admin, topics: Iterable[str], *, positions: bool = True, limit_s: float = READ_LIMIT_S
) -> AuditTables:
    """Read the raw logs of topics and, with `positions`, the positions of all groups, then the transactions.

    The log of the transaction coordinators is read last, so that it contains the decision for each marker.
    """
    reader = _Reader(admin, limit_s)
    tables = AuditTables(unread=reader.unread)
    for topic in [*topics, *([OFFSETS_TOPIC] if positions else [])]:
        for place in reader.partitions(topic):
            start, stored = reader.read(place)
            found = _positions(stored) if topic == OFFSETS_TOPIC else []
            tables.partitions.append(PartitionLog(place, start, [_batch(b) for b in stored], found))
    for place in reader.partitions(TRANSACTION_TOPIC):
        tables.coordinators.append(_read_coordinator(reader, place))
    return tables


def read_tables_of_run(
    admin: Admin,
    topics: Iterable[str],
    groups: Collection[str],
    *,
    positions: bool = True,
    limit_s: float = READ_LIMIT_S,
) -> AuditTables:
    """Read the raw logs of a run's topics, the positions of its groups, and the states of its transactions.

    The logs of coordinators also contain other clients, and old entries. So these logs are read from a few
    minutes before the first batch of the topics, and only the run's own producers and groups are kept.
    """
    reader = _Reader(admin, limit_s)
    tables = AuditTables(unread=reader.unread)
    for topic in topics:
        for place in reader.partitions(topic):
            start, stored = reader.read(place)
            tables.partitions.append(PartitionLog(place, start, [_batch(b) for b in stored]))
    batches = [batch for log in tables.partitions for batch in log.batches if batch.transactional]
    if not batches:
        return tables
    since_ms = min(batch.at_ms for batch in batches) - _BEFORE_RUN_MS
    producers = {batch.producer_id for batch in batches}
    for place in reader.partitions(OFFSETS_TOPIC) if positions and groups else []:
        start, stored = reader.read(place, since_ms)
        found = [position for position in _positions(stored) if position.group in groups]
        mine = {position.producer_id for position in found}
        producers |= mine
        kept = [_batch(b) for b in stored if b.producer_id in mine]
        tables.partitions.append(PartitionLog(place, max(start, 0), kept, found))
    for place in reader.partitions(TRANSACTION_TOPIC):
        log = _read_coordinator(reader, place, since_ms)
        log.states = [state for state in log.states if state.producer_id in producers]
        tables.coordinators.append(log)
    return tables


def _batch(stored: Any) -> LoggedBatch:
    marker = None
    if stored.is_control_batch:
        marker = "commit" if marker_type(next(iter(stored))) == COMMIT else "abort"
    return LoggedBatch(
        stored.base_offset,
        stored.last_offset,
        stored.producer_id,
        stored.producer_epoch,
        stored.base_sequence,
        stored.is_transactional,
        marker,  # type: ignore[arg-type]
        stored.max_timestamp,
    )


def _positions(batches: Iterable[Any]) -> list[LoggedPosition]:
    """Return the positions that were committed in transactions."""
    return [
        LoggedPosition(record.offset, stored.producer_id, *decoded)
        for stored in batches
        if stored.is_transactional and not stored.is_control_batch
        for record in stored
        if (decoded := decode_position(bytes(record.key or b""), _bytes(record.value))) is not None
    ]


def _read_coordinator(reader: _Reader, place: PartitionId, since_ms: int = EARLIEST) -> CoordinatorLog:
    unread = len(reader.unread)
    log = _coordinator_log(*reader.read(place, since_ms))
    log.is_whole = len(reader.unread) == unread
    return log


def _coordinator_log(start: int, batches: Iterable[Any]) -> CoordinatorLog:
    offsets: list[int] = []
    states: list[LoggedState] = []
    for stored in batches:
        for record in () if stored.is_control_batch else stored:
            offsets.append(record.offset)
            value = _bytes(record.value)
            if value is not None:
                state = decode_state(value)
                ident = bytes(record.key)[4:].decode()
                states.append(
                    LoggedState(
                        record.offset,
                        record.timestamp,
                        ident,
                        state.producer_id,
                        state.epoch,
                        state.timeout_ms,
                        state.state,
                        state.partitions,
                    )
                )
    return CoordinatorLog(states, complete_from(offsets, max(start, 0)))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
