"""Sets of (producer, lane, sequence) as words: the arithmetic that inputs and outputs are compared by."""

from __future__ import annotations

import numpy as np

from harness.evidence.bit_words import (
    Ints,
    Words,
    group_starts,
    lane_key,
    popcount,
    sequences_in,
    split_lane_key,
    unite,
)
from harness.evidence.observation import Rows


class BitSet:
    """Which sequences of which lanes: sorted word keys, four quarters of bits each."""

    def __init__(self, keys: Ints, bits: Words) -> None:
        self.keys = keys
        self.bits = bits

    @classmethod
    def of(cls, rows: Rows) -> BitSet:
        """Unite the words of an observation, whatever partition or part they stand for."""
        keys = _keys(rows)
        order = np.argsort(keys, kind="stable")
        keys, bits = keys[order], rows["bits"][order].reshape(-1, 4)
        starts = group_starts(keys)
        return cls(keys[starts], unite(bits, starts))

    def minus(self, other: BitSet) -> BitSet:
        """Return what is in this set and not in the other."""
        bits = self.bits.copy()
        _, mine, theirs = np.intersect1d(self.keys, other.keys, assume_unique=True, return_indices=True)
        bits[mine] &= ~other.bits[theirs]
        kept = bits.any(axis=1)
        return BitSet(self.keys[kept], bits[kept])

    def __len__(self) -> int:
        return int(popcount(self.bits).sum())

    def first(self, most: int) -> list[tuple[int, int, list[int]]]:
        """List producer, lane and sequences of the first words."""
        examples = []
        for key, quarters in zip(self.keys[:most].tolist(), self.bits[:most].tolist(), strict=True):
            lane, word = divmod(key, _WORDS)
            examples.append((*split_lane_key(lane), sequences_in(word, quarters)))
        return examples


_WORDS = 10**7
"""More than the words of the longest lane that fits beside a producer and a lane into 63 bits."""


def _keys(rows: Rows) -> Ints:
    if len(rows) and int(rows["word"].max()) >= _WORDS:
        raise OverflowError("a lane has more than 2.5 thousand million records: split it")
    keys: Ints = lane_key(rows["producer"].astype(np.int64), rows["lane"]) * _WORDS + rows["word"]
    return keys
