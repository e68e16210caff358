"""Aggregates of a stateful pipeline: how many inputs a key has had, and the sum of their sequences.

An input's key is its sequence modulo KEYS, within its partition: every key belongs to one partition of the
input, and the changelog has as many. A changelog record is an ordinary record, with its identity in front;
its payload says what the key has come to:

    key (5 digits), inputs (12), total (20)
"""

from __future__ import annotations

from typing import Final, NamedTuple

from harness.evidence.record import WIDTH, NotARecordError

KEYS: Final = 16
_KEY, _INPUTS, _TOTAL = 5, 12, 20
_END: Final = WIDTH + _KEY + _INPUTS + _TOTAL


class Totals(NamedTuple):
    """What a key has come to."""

    inputs: int = 0
    total: int = 0

    def add(self, seq: int) -> Totals:
        """Count one input more."""
        return Totals(self.inputs + 1, self.total + seq)


NOTHING: Final = Totals()


def key_of(seq: int) -> int:
    """The key of an input."""
    return seq % KEYS


def key_bytes(key: int) -> bytes:
    """A key as the changelog's records have it: compaction keeps the last record of each."""
    return b"%0*d" % (_KEY, key)


def payload_of(key: int, totals: Totals) -> bytes:
    """What stands behind the identity of a changelog record."""
    return b"%0*d%0*d%0*d" % (_KEY, key, _INPUTS, totals.inputs, _TOTAL, totals.total)


def totals_in(value: bytes) -> tuple[int, Totals]:
    """The key of a changelog record and what it has come to, or NotARecordError."""
    digits = value[WIDTH:_END]
    if len(digits) != _END - WIDTH or not digits.isdigit():
        raise NotARecordError(f"bytes {WIDTH}-{_END - 1} (key, inputs, total) are {digits!r}")
    key, rest = digits[:_KEY], digits[_KEY:]
    return int(key), Totals(int(rest[:_INPUTS]), int(rest[_INPUTS:]))
