"""Arithmetic on bit words, for checkers, witnesses and Spark's Python workers.

A lane is one partition to which a producer writes. The producer numbers the records of each lane from 0; this
number is the sequence of the record. A word covers 256 consecutive sequences of one lane as four 64-bit
quarters: bit `i` represents the sequence `word * 256 + i`. Spark's workers import this module, so it may
import only numpy and record.py.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from harness.evidence.record import MAX_LANE, MAX_PRODUCER

WORD_SEQS: Final = 256
EXAMPLES: Final = 8
"""Maximum number of examples that a witness or a checker keeps per finding."""

LANES: Final = MAX_LANE + 1
PRODUCERS: Final = MAX_PRODUCER + 1

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Columns = dict[str, Any]
"""Columns of equal length, by name. In the column `bits`, each row is one word: an array of four quarters."""

Number = TypeVar("Number", int, Ints)


def lane_key(producer: Number, lane: Number) -> Number:
    """Return one number for a producer and a lane: the lane key. Lane keys sort by producer first.

    The arguments are ints or int64 columns.
    """
    return producer * LANES + lane


def split_lane_key(key: Number) -> tuple[Number, Number]:
    """Return the producer and the lane that a lane key contains."""
    return key // LANES, key % LANES


def same_as_previous(*columns: npt.NDArray[Any]) -> Bools:
    """Return a mask of the rows that equal the previous row in all columns; False for the first row."""
    same = np.ones(len(columns[0]), np.bool_)
    same[:1] = False
    for column in columns:
        same[1:] &= column[1:] == column[:-1]
    return same


def are_sorted(*keys: Ints) -> bool:
    """Return whether rows are sorted by their keys, the most important key first."""
    tied = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        if np.any(key[1:][tied] < key[:-1][tied]) if not tied.all() else np.any(key[1:] < key[:-1]):
            return False
        tied &= key[1:] == key[:-1]
        if not tied.any():
            break
    return True


def sorted_order(*keys: Ints) -> Ints:
    """Return the stable order of rows by their keys, the most important key first.

    Rows are mostly sorted already. To find this out takes a tenth of the time of sorting.
    """
    return np.arange(len(keys[0])) if are_sorted(*keys) else np.lexsort(keys[::-1])


def sorted_rows(table: Ints, *columns: int) -> Ints:
    """Return the rows of a table in the stable order of these columns, or the table if it is sorted."""
    keys = [table[:, column] for column in columns]
    return table if are_sorted(*keys) else table[np.lexsort(keys[::-1])]


def take_rows(table: Ints, rows: Ints) -> Ints:
    """Return rows of a table whose columns are contiguous, as such a table."""
    return np.take(table.T, rows, axis=1).T


def stable_order(numbers: Ints) -> Ints:
    """Return the stable order of numbers that are not negative. numpy sorts small numbers much faster."""
    is_small = not len(numbers) or numbers.max() < 1 << 16
    return np.argsort(numbers.astype(np.uint16) if is_small else numbers, kind="stable")


def find_rows(keys: Ints, wanted: Ints) -> Ints:
    """Return the first row of each wanted key, or any row if no row has this key. The keys are sorted.

    There must be at least one key. A table of all numbers between the keys is faster than a search, unless it
    is much larger than the keys.
    """
    low, high = int(keys[0]), int(keys[-1])
    if high - low >= 8 * len(keys):
        return np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    rows = np.zeros(high - low + 1, np.int64)
    rows[keys[::-1] - low] = np.arange(len(keys))[::-1]  # of equal keys, the first one is written last
    return rows[np.clip(wanted, low, high) - low]


def group_starts(*columns: npt.NDArray[Any]) -> Ints:
    """Return the index of the first row of each group of equal rows. The columns must be sorted."""
    return np.flatnonzero(~same_as_previous(*columns))


def group_sizes(starts: Ints, rows: int) -> Ints:
    """Return the number of rows in each group.

    `starts` contains the index of each group's first row, and `rows` is the number of all rows.
    """
    return np.diff(np.append(starts, rows))


def popcount(bits: Words) -> Ints:
    """Return the number of set bits in each word, which is the number of sequences that the word contains."""
    count: Ints = np.bitwise_count(bits).sum(axis=1).astype(np.int64)
    return count


def single_bits(seq: Ints) -> Words:
    """Return one word for each sequence, in which only the bit of that sequence is set."""
    inside = seq % WORD_SEQS
    bits = np.zeros((len(seq), 4), np.uint64)
    bits[np.arange(len(seq)), inside // 64] = np.uint64(1) << (inside % 64).astype(np.uint64)
    return bits


def interval_bits(first: Ints, last: Ints) -> Words:
    """Convert each interval of sequences to a bit word.

    An interval contains the sequences from `first` to `last`, both included. All of them must belong to the
    same word. In the result, exactly their bits are set.
    """
    quarters = np.arange(4) * 64
    low = np.clip(first[:, None] % WORD_SEQS - quarters, 0, 64)
    high = np.clip(last[:, None] % WORD_SEQS - quarters + 1, 0, 64)
    return _low_bits(high) & ~_low_bits(low)


def _low_bits(count: Ints) -> Words:
    # For a count of 0, the shift would be 64, which is undefined for 64-bit numbers. So compute the shift for
    # a count of 1 instead, and let `where` replace the result with 0.
    shift = (64 - np.maximum(count, 1)).astype(np.uint64)
    bits: Words = np.where(count > 0, np.uint64(0xFFFFFFFFFFFFFFFF) >> shift, np.uint64(0))
    return bits


def lowest_and_highest(bits: Words) -> tuple[Ints, Ints]:
    """Return the index of the lowest and of the highest set bit in each word. No word may be empty."""
    used = bits != 0
    low_at = np.argmax(used, axis=1)
    high_at = 3 - np.argmax(used[:, ::-1], axis=1)
    rows = np.arange(len(bits))
    low, filled = bits[rows, low_at], bits[rows, high_at]
    lowest = np.bitwise_count((low & (~low + np.uint64(1))) - np.uint64(1)).astype(np.int64)
    for shift in (1, 2, 4, 8, 16, 32):
        filled = filled | filled >> np.uint64(shift)
    highest = np.bitwise_count(filled).astype(np.int64) - 1
    return low_at * 64 + lowest, high_at * 64 + highest


def sequences_in(word: int, quarters: list[int]) -> list[int]:
    """Return the sequences whose bits are set in the word with the number `word`."""
    return [
        word * WORD_SEQS + 64 * i + bit
        for i, quarter in enumerate(quarters)
        for bit in range(64)
        if quarter >> bit & 1
    ]


def unite(bits: Words, starts: Ints) -> Words:
    """Return the union of the words in each group of rows; `starts` are the indices of the first rows."""
    return np.bitwise_or.reduceat(bits, starts, axis=0) if len(starts) else bits


def merge(parts: list[Columns], keys: tuple[str, ...]) -> Columns:
    """Merge the rows that have equal keys.

    The words in `bits` are united. `lo` becomes the lowest and `hi` the highest value. Other columns are
    summed.
    """
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort(tuple(columns[name] for name in reversed(keys)))
    columns = {name: column[order] for name, column in columns.items()}
    starts = group_starts(*(columns[name] for name in keys))
    merged: Columns = {name: columns[name][starts] for name in keys}
    for name in columns.keys() - merged.keys():
        how = {"bits": np.bitwise_or, "lo": np.minimum, "hi": np.maximum}.get(name, np.add)
        merged[name] = how.reduceat(columns[name], starts, axis=0) if len(starts) else columns[name]
    return merged


def sum_by_key(keys: Ints, values: Ints) -> list[tuple[int, int]]:
    """Return each distinct key with the sum of its values."""
    distinct, index = np.unique(keys, return_inverse=True)
    totals = np.bincount(index, values, len(distinct)).astype(np.int64)
    return list(zip(distinct.tolist(), totals.tolist(), strict=True))
