"""Records of __transaction_state: the states that coordinators stored for transactional ids."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from harness.base.partition_id import PartitionId

TRANSACTION_TOPIC: Final = "__transaction_state"
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
# The first fields of the value of a record: version, producer id, epoch, time-out and state. Values of every
# version start with these fields.
_HEAD = struct.Struct(">hqhib")
_FLEXIBLE = 1
"""First version of the value that encodes lengths as varints. The varint is the length plus one; 0 means
null.
"""


class TransactionState(NamedTuple):
    """A state of a transactional id as stored in the log, with the partitions of the transaction."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: str
    partitions: tuple[PartitionId, ...]


def decode_state(value: bytes) -> TransactionState:
    """Decode the value of one __transaction_state record."""
    version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(value)
    partitions = _PartitionDecoder(value, version).read()
    return TransactionState(producer_id, epoch, timeout_ms, STATES[state], partitions)


class _PartitionDecoder:
    """Decoder of the partitions of a transaction: a list of topics, each with a list of partition numbers."""

    def __init__(self, value: bytes, version: int) -> None:
        self._value = value
        self._at = _HEAD.size
        self._flexible = version >= _FLEXIBLE

    def read(self) -> tuple[PartitionId, ...]:
        partitions: list[PartitionId] = []
        for _ in range(self._count(4)):
            length = self._count(2)
            topic = self._value[self._at : self._at + length].decode()
            self._at += length
            partitions += [(topic, self._int(4)) for _ in range(self._count(4))]
            if self._flexible:
                self._skip_tags()
        return tuple(sorted(partitions))

    def _int(self, width: int) -> int:
        self._at += width
        return int.from_bytes(self._value[self._at - width : self._at], "big", signed=True)

    def _count(self, width: int) -> int:
        return max(0, self._varint() - 1 if self._flexible else self._int(width))

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._value[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _skip_tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            size = self._varint()
            self._at += size
