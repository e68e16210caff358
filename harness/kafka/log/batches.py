"""Batches of a partition's log, read from segment files or fetch responses."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from harness.base.errors import UsageError

NO_PRODUCER: Final = -1
ABORT: Final = 0
COMMIT: Final = 1
_CODEC_PACKAGES: Final = {"zstd": "zstandard", "lz4": "lz4", "snappy": "python-snappy"}
"""Codec of batches and the Python package that decompresses it."""
# Layout of a marker record. The key contains a version and the marker type. The value contains a version and
# the coordinator epoch.
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


class Batch(NamedTuple):
    """One batch of the log.

    A control batch has a marker type in `control`, the epoch of the coordinator that wrote it, and no values.
    In other batches, `control` is None, and `values` contains the offset and the value of each record.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    epoch: int
    base_sequence: int
    transactional: bool
    control: int | None
    values: tuple[tuple[int, bytes | None], ...]
    coordinator_epoch: int = -1


def stored_batches(data: bytes) -> Iterator[Any]:
    """Yield the batches in `data` as kafka-python objects; check the format and the checksum of each batch.

    `data` is the content of a segment file or of a fetch response. A fetch response may end in the middle of
    a batch. This incomplete last batch is skipped.
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


def missing_codec_package(codec: str) -> str:
    """Return the Python package that is missing to read batches of a codec; "" if they can be read."""
    from kafka import codec as codecs

    readable = {"zstd": codecs.has_zstd, "lz4": codecs.has_lz4, "snappy": codecs.has_snappy}
    return _CODEC_PACKAGES[codec] if codec in readable and not readable[codec]() else ""


def decode_batch(stored: Any) -> Batch:
    """Convert a batch object of kafka-python to a Batch. Raise UsageError if it cannot be decompressed."""
    from kafka.errors import UnsupportedCodecError

    try:
        records = list(stored)
    except UnsupportedCodecError as error:
        raise UsageError(
            f"the batch at offset {stored.base_offset} cannot be decompressed: {error}",
            f"install the codec's Python package ({', '.join(_CODEC_PACKAGES.values())}) into .venv, or "
            "remove raw-log from verify.witnesses",
        ) from error
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
        marker_coordinator_epoch(records[0]) if control else -1,
    )


def decode_batches(data: bytes) -> Iterator[Batch]:
    """Decode the batches of a segment file or a fetch response."""
    return map(decode_batch, stored_batches(data))


def marker_type(record: Any) -> int:
    """Return the marker type of the record in a control batch: COMMIT or ABORT."""
    return int(_MARKER_KEY.unpack_from(bytes(record.key))[1])


def marker_coordinator_epoch(record: Any) -> int:
    """Return the coordinator epoch in the record of a control batch."""
    return int(_MARKER_VALUE.unpack_from(bytes(record.value))[1])
