"""Decoding of polled records: identities, and intervals of consecutive records.

A pipeline uses the identities. The history stores the intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from confluent_kafka import Message

from harness.base.partition_id import PartitionId
from harness.evidence.history import Read
from harness.evidence.record import Identity, NotARecordError, decode


class Given(NamedTuple):
    """One consumed record, with its identity if it belongs to this run."""

    partition: int
    offset: int
    value: bytes
    identity: Identity | None
    topic: str


def given(messages: Sequence[Message], run: str) -> Iterator[Given]:
    """Decode polled messages; the caller has removed messages with an error."""
    for message in messages:
        value = message.value()
        value = value if isinstance(value, bytes) else b""
        yield Given(
            message.partition() or 0,
            message.offset() or 0,
            value,
            identify(value, run),
            message.topic() or "",
        )


def identify(value: bytes, run: str) -> Identity | None:
    """Return the identity of a record of this run, or None for a foreign record."""
    try:
        identity = decode(value)
    except NotARecordError:
        return None
    return identity if identity.run == run else None


def runs(records: Sequence[Given]) -> list[Read]:
    """Join records into intervals in which both the offsets and the sequences are consecutive."""
    found: list[Read] = []
    open_: dict[PartitionId, tuple[int, int, int, int, int]] = {}
    for record in records:
        if record.identity is None:
            continue
        place = (record.topic, record.partition)
        _, producer, lane, seq, *_ = record.identity
        run = open_.get(place)
        if run is not None:
            offset, of, on, first, count = run
            if (of, on, first + count, offset + count) == (producer, lane, seq, record.offset):
                open_[place] = (offset, of, on, first, count + 1)
                continue
            found.append((*place, *run))
        open_[place] = (record.offset, producer, lane, seq, 1)
    return [*found, *((*place, *run) for place, run in open_.items())]
