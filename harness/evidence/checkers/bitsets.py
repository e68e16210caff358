"""Sets of records, stored as bit words. They compare witnesses with each other, and inputs with outputs."""

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
    """Set of records, each given by producer, lane and sequence.

    It is stored as words: the sorted keys of the words, and four quarters of bits for each word.
    """

    def __init__(self, keys: Ints, bits: Words) -> None:
        self.keys = keys
        self.bits = bits

    @classmethod
    def of(cls, rows: Rows) -> BitSet:
        """Return the set of all records in the given words, whatever their partition and part number."""
        keys = word_keys(rows)
        order = np.argsort(keys, kind="stable")
        keys, bits = keys[order], rows["bits"][order].reshape(-1, 4)
        starts = group_starts(keys)
        return cls(keys[starts], unite(bits, starts))

    def minus(self, other: BitSet) -> BitSet:
        """Return the elements of this set that are not in the other set."""
        bits = self.bits.copy()
        _, here, there = np.intersect1d(self.keys, other.keys, assume_unique=True, return_indices=True)
        bits[here] &= ~other.bits[there]
        kept = bits.any(axis=1)
        return BitSet(self.keys[kept], bits[kept])

    def __len__(self) -> int:
        return int(popcount(self.bits).sum())

    def first(self, most: int) -> list[tuple[int, int, list[int]]]:
        """Return the producer, the lane and the sequences for each of the set's first `most` words."""
        examples = []
        for key, quarters in zip(self.keys[:most].tolist(), self.bits[:most].tolist(), strict=True):
            lane, word = divmod(key, WORDS)
            examples.append((*split_lane_key(lane), sequences_in(word, quarters)))
        return examples


WORDS = 10**7
"""Maximum number of words per lane. With this limit, producer, lane and word fit into one 63-bit key."""


def word_keys(rows: Rows) -> Ints:
    """Return one number for each word, which contains its producer, lane and word number."""
    if len(rows) and int(rows["word"].max()) >= WORDS:
        raise OverflowError("a lane has more than 2.56 billion records: use more lanes")
    keys: Ints = lane_key(rows["producer"].astype(np.int64), rows["lane"]) * WORDS + rows["word"]
    return keys
