"""Sums over the intervals of a ledger, piece by piece, without temporary columns of the ledger's length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from harness.evidence.bit_words import Bools, Ints
from harness.evidence.ledger import Intervals

PIECE: Final = 1 << 16
"""Number of rows of a piece. Its columns fit into the processor's cache."""


def pieces(rows: int) -> Iterator[slice]:
    """Yield all rows in pieces."""
    return (slice(start, start + PIECE) for start in range(0, rows, PIECE))


def sizes(intervals: Intervals, part: slice) -> Ints:
    """Return the number of records of each interval in a piece."""
    size: Ints = intervals.last[part] - intervals.first[part] + 1
    return size


def count_records(intervals: Intervals, chosen: Bools) -> int:
    """Return the number of records of all chosen intervals."""
    return sum(int(sizes(intervals, part)[chosen[part]].sum()) for part in pieces(len(chosen)))


def sum_by(keys: Any, count: int, values: Callable[[slice], Any], kind: Any = np.int64) -> Ints:
    """Return the sum of the values for each key from 0 to `count` - 1. `values` returns those of a piece.

    `kind` is a type in which each sum has room.
    """
    total = np.zeros(count, kind)
    for part in pieces(len(keys)):
        key = keys[part]
        low, high = int(key.min()), int(key.max())
        if high - low < 4 * PIECE:
            total[low : high + 1] += np.bincount(key - low, values(part)).astype(kind)
        else:
            np.add.at(total, key, np.asarray(values(part)).astype(kind))
    return total
