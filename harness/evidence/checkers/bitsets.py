"""Sets of (producer, lane, sequence) as words: the arithmetic that inputs and outputs are compared by."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.evidence.observation import WORD_SEQS, Ints, Rows

Bits = npt.NDArray[np.uint64]


class BitSet:
    """Which sequences of which lanes: sorted word keys, four quarters of bits each."""

    def __init__(self, keys: Ints, bits: Bits) -> None:
        self.keys = keys
        self.bits = bits

    @classmethod
    def of(cls, rows: Rows) -> BitSet:
        """Unite the words of an observation, whatever partition or part they stand for."""
        keys = _keys(rows)
        order = np.argsort(keys, kind="stable")
        keys, bits = keys[order], rows["bits"][order].reshape(-1, 4)
        starts = (
            np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
        )
        united = np.bitwise_or.reduceat(bits, starts, axis=0) if len(keys) else bits
        return cls(keys[starts], united)

    def minus(self, other: BitSet) -> BitSet:
        """Return what is in this set and not in the other."""
        bits = self.bits.copy()
        _, mine, theirs = np.intersect1d(self.keys, other.keys, assume_unique=True, return_indices=True)
        bits[mine] &= ~other.bits[theirs]
        kept = bits.any(axis=1)
        return BitSet(self.keys[kept], bits[kept])

    def __len__(self) -> int:
        return int(np.bitwise_count(self.bits).sum())

    def first(self, most: int) -> list[tuple[int, int, list[int]]]:
        """List producer, lane and sequences of the first words."""
        found = []
        for key, quarters in zip(self.keys[:most].tolist(), self.bits[:most].tolist(), strict=True):
            lane_key, word = divmod(key, _WORDS)
            producer, lane = divmod(lane_key, 10**5)
            sequences = [
                word * WORD_SEQS + 64 * q + bit
                for q, quarter in enumerate(quarters)
                for bit in range(64)
                if quarter >> bit & 1
            ]
            found.append((producer, lane, sequences))
        return found


_WORDS = 10**7
"""More than the words of the longest lane that fits beside a producer and a lane into 63 bits."""


def _keys(rows: Rows) -> Any:
    if len(rows) and int(rows["word"].max()) >= _WORDS:
        raise OverflowError("a lane has more than 2.5 thousand million records: split it")
    return (rows["producer"].astype(np.int64) * 10**5 + rows["lane"]) * _WORDS + rows["word"]
