"""What coordinators note in the two topics that belong to everybody: read on from an offset, of given names.

Whose a record is tells its key, byte for byte: the name of somebody else is passed over, not decoded.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from harness.kafka.admin import Admin
from harness.kafka.transaction_log import Noted, decode_state
from harness.witness.plain_consumer import Place
from harness.witness.raw_log import COMMIT, fetch_request, fetched, marker_of

# The versions of a key of the offsets log that is a position; others are what a coordinator knows of members.
_POSITION_KEYS: Final = (0, 1)
# A position's value, in every version: version, offset.
_POSITION: Final = struct.Struct(">hq")


class Entry(NamedTuple):
    """A record of such a log; a marker (rawlog.COMMIT, rawlog.ABORT) ends the transaction of its producer."""

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
    """A position of a group, and what became of the transaction that it was noted in."""

    offset: int
    at_ms: int
    group: str
    topic: str
    of: int
    position: int
    producer_id: int
    epoch: int
    transaction: str
    """`none`, `committed`, `aborted`, or `open` where no marker was read."""


class Added:
    """What was added to a partition from `start` up to, not including, `end`, as far as it can be read.

    Once it was read `cut` says where that ended before the end; it is empty if it did not.
    """

    def __init__(self, admin: Admin, place: Place, start: int, end: int, deadline: float) -> None:
        self.cut = ""
        self._admin = admin
        self.place = place
        self._start = start
        self._end = end
        self._deadline = deadline

    def __iter__(self) -> Iterator[Entry]:
        from kafka.record.memory_records import MemoryRecords

        offset, before = self._start, -1
        leader = self._admin.partition(*self.place).leader
        while offset < self._end:
            late = time.monotonic() >= self._deadline
            if late or offset == before:
                why = "it took too long" if late else "nothing more was handed out"
                self.cut = f"partition {self.place[1]} not read from {offset} to {self._end}: {why}"
                return
            request = fetch_request(self.place, offset, 0)
            found = fetched(self._admin.call(leader, request), self.place, offset)
            before = offset
            for batch in MemoryRecords(bytes(found.records or b"")):
                yield from (e for e in _entries(batch) if offset <= e.offset < self._end)
                offset = max(offset, batch.last_offset + 1)


def _entries(batch: Any) -> Iterator[Entry]:
    for record in batch:
        yield Entry(
            record.offset,
            record.timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.is_transactional,
            marker_of(record) if batch.is_control_batch else None,
            bytes(record.key or b""),
            None if record.value is None else bytes(record.value),
        )


def states(found: Iterable[Entry], transactional_ids: Iterable[str]) -> list[tuple[Entry, str, Noted]]:
    """The states that were noted of these transactional ids."""
    keys = {_text(ident): ident for ident in transactional_ids}
    return [
        (entry, keys[entry.key[2:]], decode_state(entry.value))
        for entry in found
        if entry.marker is None and entry.value is not None and entry.key[2:] in keys
    ]


def positions(found: Iterable[Entry], groups: Iterable[str]) -> list[Position]:
    """The positions that were noted of these groups, each with how its transaction ended if it was in one."""
    keys = {_text(group): group for group in groups}
    noted: list[Position] = []
    open_: dict[int, list[Position]] = {}
    for entry in found:
        if entry.marker is not None:
            for ended in open_.pop(entry.producer_id, []):
                ended.transaction = "committed" if entry.marker == COMMIT else "aborted"
        elif (position := _position(entry, keys)) is not None:
            noted.append(position)
            if entry.transactional:
                open_.setdefault(entry.producer_id, []).append(position)
    return noted


def _position(entry: Entry, keys: Mapping[bytes, str]) -> Position | None:
    if int.from_bytes(entry.key[:2], "big") not in _POSITION_KEYS or entry.value is None:
        return None
    size = 4 + int.from_bytes(entry.key[2:4], "big")
    group = keys.get(entry.key[2:size])
    if group is None:
        return None
    topic_ends = size + 2 + int.from_bytes(entry.key[size : size + 2], "big")
    return Position(
        entry.offset,
        entry.at_ms,
        group,
        entry.key[size + 2 : topic_ends].decode(),
        int.from_bytes(entry.key[topic_ends : topic_ends + 4], "big"),
        _POSITION.unpack_from(entry.value)[1],
        entry.producer_id,
        entry.epoch,
        "open" if entry.transactional else "none",
    )


def _text(name: str) -> bytes:
    """A string as a key has it: its length, then its bytes."""
    data = name.encode()
    return struct.pack(">h", len(data)) + data
