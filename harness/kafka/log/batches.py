"""Stored batches of a partition's log, from segment files and fetch responses."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from harness.base.errors import UsageError

NO_PRODUCER: Final = -1
ABORT: Final = 0
COMMIT: Final = 1
# The key of a marker: version, type. Its value: version, coordinator epoch.
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


class Batch(NamedTuple):
    """One batch of the log. A control batch has its marker type, another batch its values by offset."""

    base_offset: int
    last_offset: int
    producer_id: int
    epoch: int
    base_sequence: int
    transactional: bool
    control: int | None
    values: tuple[tuple[int, bytes | None], ...]


def stored_batches(data: bytes) -> Iterator[Any]:
    """Yield the batches as kafka-python's objects, after a check of their format and checksum.

    An incomplete last batch is left out, because a fetch may cut it off.
    """
    from kafka.record.memory_records import MemoryRecords

    records = MemoryRecords(data)
    while records.has_next():
        stored = records.next_batch()
        if stored.magic < 2:
            raise UsageError(
                f"the batch at offset {stored.base_offset} has format {stored.magic}",
                "only format 2 can be read, which every topic since Kafka 0.11 has",
            )
        if not stored.validate_crc():
            raise UsageError(
                f"the batch at offset {stored.base_offset} does not match its checksum",
                "the segment or the fetch response is damaged: read it again, from another replica",
            )
        yield stored


def decode_batch(stored: Any) -> Batch:
    """Convert a batch of kafka-python."""
    records = list(stored)
    control = stored.is_control_batch
    return Batch(
        stored.base_offset,
        stored.last_offset,
        stored.producer_id,
        stored.producer_epoch,
        stored.base_sequence,
        stored.is_transactional,
        marker_type(records[0]) if control else None,
        () if control else tuple((record.offset, record.value) for record in records),
    )


def decode_batches(data: bytes) -> Iterator[Batch]:
    """Decode the batches of a segment file or a fetch response."""
    return map(decode_batch, stored_batches(data))


def marker_type(record: Any) -> int:
    """Return COMMIT or ABORT for the record of a control batch."""
    return int(_MARKER_KEY.unpack_from(bytes(record.key))[1])


def marker_coordinator_epoch(record: Any) -> int:
    """Return the coordinator epoch of the record of a control batch."""
    return int(_MARKER_VALUE.unpack_from(bytes(record.value))[1])
