"""Sets of distinct findings: several witnesses may report the same record, and it counts once.

Each class has a size and the operator `|`, so that a Collector can unite the findings of all witnesses. A
RecordSet is exact. A Tally is exact if the witnesses name every finding. Otherwise it is a lower bound: the
largest number that one witness counted.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

import numpy as np

from harness.evidence.bit_words import (
    WORD_SEQS,
    Ints,
    Words,
    group_starts,
    interval_bits,
    popcount,
    sequences_in,
    unite,
)

WORD_SHIFT: Final = 32
"""Number of low bits of a key that hold the number of a word. They suffice for all 10^12 sequences."""


class Items(Protocol):
    """A set of findings that can be united with another set of the same class."""

    def __or__(self, other: Self, /) -> Self: ...

    def __len__(self) -> int: ...


def expand(counts: Ints) -> tuple[Ints, Ints]:
    """Return two columns with `counts[i]` rows for each `i`: the index `i`, and 0, 1, ... within its rows."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


class RecordSet:
    """Set of pairs of a lane and a sequence, as bit words.

    The lane is an index into Ledger.lanes. A set of offsets has the same form: each partition is a lane, and
    each offset is a sequence.
    """

    def __init__(self, keys: Ints | None = None, bits: Words | None = None) -> None:
        """Build the set from the keys of its words and their bits, in any order."""
        keys = np.zeros(0, np.int64) if keys is None else keys
        bits = np.zeros((0, 4), np.uint64) if bits is None else bits
        used = bits.any(axis=1)
        keys, bits = keys[used], bits[used]
        order = np.argsort(keys, kind="stable")
        keys, bits = keys[order], bits[order]
        starts = group_starts(keys)
        self.keys: Ints = keys[starts]
        self.bits: Words = unite(bits, starts)

    @classmethod
    def of_intervals(cls, lane: Ints, first: Ints, last: Ints) -> RecordSet:
        """Return the set of all sequences of the intervals."""
        owner, step = expand(last // WORD_SEQS - first // WORD_SEQS + 1)
        word = first[owner] // WORD_SEQS + step
        low = np.maximum(first[owner], word * WORD_SEQS)
        high = np.minimum(last[owner], word * WORD_SEQS + WORD_SEQS - 1)
        return cls(key_of_words(lane[owner], word), interval_bits(low, high))

    def __or__(self, other: RecordSet) -> RecordSet:
        return RecordSet(
            np.concatenate([self.keys, other.keys]), np.concatenate([self.bits, other.bits], axis=0)
        )

    def __sub__(self, other: RecordSet) -> RecordSet:
        bits = self.bits.copy()
        _, here, there = np.intersect1d(self.keys, other.keys, assume_unique=True, return_indices=True)
        bits[here] &= ~other.bits[there]
        return RecordSet(self.keys, bits)

    def __len__(self) -> int:
        return int(popcount(self.bits).sum())

    def first(self, most: int) -> list[tuple[int, list[int]]]:
        """Return each lane of the first `most` words, with its sequences in these words."""
        sequences: dict[int, list[int]] = {}
        for key, quarters in zip(self.keys[:most].tolist(), self.bits[:most].tolist(), strict=True):
            lane, word = divmod(key, 1 << WORD_SHIFT)
            sequences.setdefault(lane, []).extend(sequences_in(word, quarters))
        return list(sequences.items())


def key_of_words(lane: Ints, word: Ints) -> Ints:
    """Return the key of each word in a RecordSet."""
    return (lane.astype(np.int64) << WORD_SHIFT) | word


@dataclass(frozen=True)
class Tally:
    """Findings that a witness counted by key, and of which it names some.

    For each key, the number of distinct findings is at least the largest number that one witness counted,
    and at least the number of different findings that all witnesses named.
    """

    counts: dict[Hashable, int] = field(default_factory=dict)
    named: dict[Hashable, frozenset[Hashable]] = field(default_factory=dict)

    def __or__(self, other: Tally) -> Tally:
        counts = dict(self.counts)
        for key, count in other.counts.items():
            counts[key] = max(count, counts.get(key, 0))
        named = dict(self.named)
        for key, names in other.named.items():
            named[key] = names | named.get(key, frozenset())
        return Tally(counts, named)

    def __len__(self) -> int:
        return sum(
            max(self.counts.get(key, 0), len(self.named.get(key, ()))) for key in self.counts | self.named
        )


@dataclass(frozen=True)
class Grouped:
    """Several sets of records, each with a key. Records count once in each set."""

    sets: dict[Hashable, RecordSet]

    def __or__(self, other: Grouped) -> Grouped:
        empty = RecordSet()
        return Grouped(
            {key: self.sets.get(key, empty) | other.sets.get(key, empty) for key in self.sets | other.sets}
        )

    def __len__(self) -> int:
        return sum(map(len, self.sets.values()))


@dataclass(frozen=True)
class Copies:
    """Further copies of records that can be read more than once.

    `extra` is the number of copies in each word, as the witness counted it. `named` has one row for each copy
    that the witness names, with the columns: key of the word, sequence, offset.
    """

    keys: Ints
    extra: Ints
    named: Ints

    def __or__(self, other: Copies) -> Copies:
        keys = np.concatenate([self.keys, other.keys])
        named = np.unique(np.concatenate([self.named, other.named]), axis=0)
        return Copies(*_largest(keys, np.concatenate([self.extra, other.extra])), named)

    def __len__(self) -> int:
        keys, counts = np.unique(self.named[:, 0], return_counts=True)
        _, largest = _largest(np.concatenate([self.keys, keys]), np.concatenate([self.extra, counts]))
        return int(largest.sum())


def _largest(keys: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct keys, and the largest value of each."""
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    starts = group_starts(keys)
    return keys[starts], np.maximum.reduceat(values, starts) if len(starts) else values
