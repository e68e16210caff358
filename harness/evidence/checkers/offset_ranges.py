"""Sets of offsets of one partition, stored as sorted ranges that neither overlap nor touch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from harness.evidence.bit_words import Ints


class OffsetRanges:
    """Set of offsets: the columns `first` and `end` contain its ranges. An `end` is not in the set."""

    def __init__(self, first: Ints, end: Ints) -> None:
        self.first = first
        self.end = end
        self._before = np.append(0, np.cumsum(end - first))

    @classmethod
    def of(cls, ranges: Ints | Iterable[tuple[int, int]]) -> OffsetRanges:
        """Return the set of all offsets in these ranges (first, end), which may overlap."""
        table = np.array(ranges if isinstance(ranges, np.ndarray) else list(ranges), np.int64).reshape(-1, 2)
        return _sweep(table, np.zeros((0, 2), np.int64))

    def minus(self, other: OffsetRanges) -> OffsetRanges:
        """Return the offsets of this set that are not in the other set."""
        return _sweep(self._table(), other._table())

    def within(self, low: int, high: int) -> OffsetRanges:
        """Return the offsets of this set from `low` to before `high`."""
        first, end = np.maximum(self.first, low), np.minimum(self.end, high)
        kept = first < end
        return OffsetRanges(first[kept], end[kept])

    def count(self, low: int, high: int) -> int:
        """Return the number of offsets of this set from `low` to before `high`."""
        return max(0, self._rank(high) - self._rank(low))

    def _rank(self, offset: int) -> int:
        """Return the number of offsets of this set that are less than `offset`."""
        at = int(np.searchsorted(self.first, offset))
        if at == 0:
            return 0
        return int(self._before[at - 1] + min(offset, int(self.end[at - 1])) - self.first[at - 1])

    def _table(self) -> Ints:
        return np.column_stack([self.first, self.end])

    def __len__(self) -> int:
        return int(self._before[-1])

    def pairs(self) -> list[tuple[int, int]]:
        """Return the ranges as pairs (first, end)."""
        return list(zip(self.first.tolist(), self.end.tolist(), strict=True))


def _sweep(plus: Ints, minus: Ints) -> OffsetRanges:
    """Return the offsets that at least one range of `plus` contains and no range of `minus`."""
    points = np.unique(np.concatenate([plus.ravel(), minus.ravel()]))
    depths = []
    for table in (plus, minus):
        change = np.zeros(len(points) + 1, np.int64)
        np.add.at(change, np.searchsorted(points, table[:, 0]), 1)
        np.add.at(change, np.searchsorted(points, table[:, 1]), -1)
        depths.append(np.cumsum(change))
    inside = np.append((depths[0] > 0) & (depths[1] == 0), False)
    edges = np.flatnonzero(inside != np.append(False, inside[:-1]))
    return OffsetRanges(points[edges[::2]], points[edges[1::2]])
