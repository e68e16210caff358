"""What a record of __transaction_state says: the state that a coordinator noted of a transactional id."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

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
# What it begins with, in every version: version, producer id, epoch, time limit, state.
_HEAD = struct.Struct(">hqhib")
_FLEXIBLE = 1
"""The first version whose lengths are varints, one more than they are; zero is none."""


class Noted(NamedTuple):
    """A state of a transactional id, and the partitions that its transaction has by then."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: str
    places: tuple[tuple[str, int], ...]


def decode_state(value: bytes) -> Noted:
    """Read the value of one record."""
    version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(value)
    return Noted(producer_id, epoch, timeout_ms, STATES[state], _Places(value, version).read())


class _Places:
    """Reads the partitions of a transaction: topics, each with its partition numbers."""

    def __init__(self, value: bytes, version: int) -> None:
        self._value = value
        self._at = _HEAD.size
        self._flexible = version >= _FLEXIBLE

    def read(self) -> tuple[tuple[str, int], ...]:
        places: list[tuple[str, int]] = []
        for _ in range(self._count(4)):
            length = self._count(2)
            topic = self._value[self._at : self._at + length].decode()
            self._at += length
            places += [(topic, self._int(4)) for _ in range(self._count(4))]
            if self._flexible:
                self._tags()
        return tuple(sorted(places))

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

    def _tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            size = self._varint()
            self._at += size
