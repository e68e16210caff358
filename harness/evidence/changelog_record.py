"""Changelog records of a stateful pipeline. Each contains the totals of the inputs with the same key.

The key of an input is its sequence modulo KEYS. Totals are kept for each key of each input partition. The
changelog has as many partitions as the input. Like every record of a run, a changelog record starts with an
identity (record.py). Its payload contains the totals of the key:

    key (5 digits), number of inputs (12 digits), sum of the inputs' sequences (20 digits)
"""

from __future__ import annotations

from typing import Final, NamedTuple

from harness.evidence.record import WIDTH, NotARecordError

KEYS: Final = 16
_KEY, _INPUTS, _TOTAL = 5, 12, 20
_END: Final = WIDTH + _KEY + _INPUTS + _TOTAL


class Totals(NamedTuple):
    """Totals of a key: the number of its inputs and the sum of their sequences."""

    inputs: int = 0
    total: int = 0

    def add(self, seq: int) -> Totals:
        """Return the totals after one more input."""
        return Totals(self.inputs + 1, self.total + seq)


NOTHING: Final = Totals()


def key_of(seq: int) -> int:
    """Return the key of the input with this sequence."""
    return seq % KEYS


def key_bytes(key: int) -> bytes:
    """Return the Kafka key of the changelog records that contain the totals of the pipeline's key `key`.

    In each partition, compaction keeps the last changelog record of each Kafka key.
    """
    return b"%0*d" % (_KEY, key)


def payload_of(key: int, totals: Totals) -> bytes:
    """Return the payload of a changelog record. In the record's value it follows the identity."""
    return b"%0*d%0*d%0*d" % (_KEY, key, _INPUTS, totals.inputs, _TOTAL, totals.total)


def totals_in(value: bytes) -> tuple[int, Totals]:
    """Decode the key and the totals of a changelog record. Raise NotARecordError if they are malformed."""
    digits = value[WIDTH:_END]
    if len(digits) != _END - WIDTH or not digits.isdigit():
        raise NotARecordError(f"bytes {WIDTH}-{_END - 1} (key, inputs, total) are {digits!r}")
    key, rest = digits[:_KEY], digits[_KEY:]
    return int(key), Totals(int(rest[:_INPUTS]), int(rest[_INPUTS:]))
