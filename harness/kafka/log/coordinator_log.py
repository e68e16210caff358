"""Records of the two coordinator topics, __consumer_offsets and __transaction_state.

All clients of a cluster share these topics. This module therefore selects the records of the requested groups
and transactional ids by their key bytes. It does not decode the values of other records.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from harness.base.partition_id import PartitionId
from harness.kafka.admin import LATEST, Admin
from harness.kafka.coordinators import java_hash
from harness.kafka.log.batches import COMMIT, marker_type
from harness.kafka.log.fetch import fetch_stored
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC, TransactionState, decode_state

OFFSETS_TOPIC: Final = "__consumer_offsets"
# A record of __consumer_offsets contains a committed offset if its key has one of these versions. Records
# with other key versions describe groups and members.
_POSITION_KEYS: Final = (0, 1)
# The first fields of the value of a committed offset: version and offset. Values of every version start with
# these fields.
_POSITION: Final = struct.Struct(">hq")


class LogEntry(NamedTuple):
    """A record of a coordinator topic. If `marker` is set, the record is a transaction marker."""

    offset: int
    at_ms: int
    producer_id: int
    epoch: int
    transactional: bool
    marker: int | None
    key: bytes
    value: bytes | None


@dataclass
class Position:
    """A committed offset of a group, and the outcome of the transaction that committed it.

    `topic` and `of` are the topic and the number of the partition, and `position` is the offset that the
    group committed there. `offset` is the offset of the record in __consumer_offsets that contains this
    commit.
    """

    offset: int
    at_ms: int
    group: str
    topic: str
    of: int
    position: int
    producer_id: int
    epoch: int
    transaction: str
    """`none` if the offset was not committed in a transaction. Otherwise the outcome of its transaction:
    `committed`, `aborted`, or `open` if no marker was read.
    """


class AddedEntries:
    """The log entries of a partition from `start` up to, not including, `end`. Iteration fetches them.

    After the iteration, `cut` describes which offsets could not be read, and why. It is empty if all entries
    were read.
    """

    def __init__(
        self, admin: Admin, partition_id: PartitionId, start: int, end: int, deadline: float
    ) -> None:
        self.cut = ""
        self.partition_id = partition_id
        self._admin = admin
        self._start = start
        self._end = end
        self._deadline = deadline

    def __iter__(self) -> Iterator[LogEntry]:
        next_offset = self._start
        leader = self._admin.partition(*self.partition_id).leader
        batches = fetch_stored(
            self._admin, leader, self.partition_id, self._start, self._end, deadline=self._deadline
        )
        for stored in batches:
            yield from (e for e in _entries(stored) if self._start <= e.offset < self._end)
            next_offset = stored.last_offset + 1
        if next_offset < self._end:
            late = time.monotonic() >= self._deadline
            reason = "the time limit passed" if late else "the broker returned no further records"
            partition = self.partition_id[1]
            self.cut = f"partition {partition} not read from {next_offset} to {self._end}: {reason}"


def _entries(stored: Any) -> Iterator[LogEntry]:
    for record in stored:
        yield LogEntry(
            record.offset,
            record.timestamp,
            stored.producer_id,
            stored.producer_epoch,
            stored.is_transactional,
            marker_type(record) if stored.is_control_batch else None,
            bytes(record.key or b""),
            None if record.value is None else bytes(record.value),
        )


def decode_states(
    entries: Iterable[LogEntry], transactional_ids: Iterable[str]
) -> list[tuple[LogEntry, str, TransactionState]]:
    """Return every stored state of these transactional ids, as (log entry, transactional id, state)."""
    keys = {_encode_string(name): name for name in transactional_ids}
    return [
        (entry, keys[entry.key[2:]], decode_state(entry.value))
        for entry in entries
        if entry.marker is None and entry.value is not None and entry.key[2:] in keys
    ]


class TransactionLogTail:
    """The states of transactional ids that are written to __transaction_state after the tail was made."""

    def __init__(self, admin: Admin, transactional_ids: Collection[str]) -> None:
        self._admin = admin
        self._ids = transactional_ids
        ends = admin.list_offsets(TRANSACTION_TOPIC, LATEST)
        self._starts = {number: ends[number] for number in {java_hash(i) % len(ends) for i in self._ids}}

    def states(self, limit: float = 10.0) -> list[tuple[LogEntry, str, TransactionState]]:
        """Return the states so far, as `decode_states` does. Reading takes at most `limit` seconds."""
        deadline = time.monotonic() + limit
        ends = self._admin.list_offsets(TRANSACTION_TOPIC, LATEST, partitions=self._starts)
        return [
            state
            for number, start in self._starts.items()
            for state in decode_states(
                AddedEntries(self._admin, (TRANSACTION_TOPIC, number), start, ends[number], deadline),
                self._ids,
            )
        ]


def decode_positions(entries: Iterable[LogEntry], groups: Iterable[str]) -> list[Position]:
    """Return the committed offsets of these groups, each with the outcome of its transaction."""
    keys = {_encode_string(group): group for group in groups}
    positions: list[Position] = []
    undecided: dict[int, list[Position]] = {}
    for entry in entries:
        if entry.marker is not None:
            for position in undecided.pop(entry.producer_id, []):
                position.transaction = "committed" if entry.marker == COMMIT else "aborted"
        elif (decoded := _position(entry, keys)) is not None:
            positions.append(decoded)
            if entry.transactional:
                undecided.setdefault(entry.producer_id, []).append(decoded)
    return positions


class CommittedPosition(NamedTuple):
    """The content of a record of __consumer_offsets that contains a committed offset."""

    group: str
    topic: str
    partition: int
    position: int


def decode_position(key: bytes, value: bytes | None) -> CommittedPosition | None:
    """Decode a record of __consumer_offsets, or return None if it contains no committed offset."""
    if int.from_bytes(key[:2], "big") not in _POSITION_KEYS or value is None:
        return None
    size = 4 + int.from_bytes(key[2:4], "big")
    topic_ends = size + 2 + int.from_bytes(key[size : size + 2], "big")
    return CommittedPosition(
        key[4:size].decode(errors="replace"),
        key[size + 2 : topic_ends].decode(errors="replace"),
        int.from_bytes(key[topic_ends : topic_ends + 4], "big"),
        _POSITION.unpack_from(value)[1],
    )


def _position(entry: LogEntry, keys: Mapping[bytes, str]) -> Position | None:
    # Compare the bytes of the key first, because the values of other groups must not be decoded.
    if entry.key[2 : 4 + int.from_bytes(entry.key[2:4], "big")] not in keys:
        return None
    decoded = decode_position(entry.key, entry.value)
    if decoded is None:
        return None
    return Position(
        entry.offset,
        entry.at_ms,
        decoded.group,
        decoded.topic,
        decoded.partition,
        decoded.position,
        entry.producer_id,
        entry.epoch,
        "open" if entry.transactional else "none",
    )


def _encode_string(text: str) -> bytes:
    """Encode a string in the format of a record key: its length, then its bytes."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data
