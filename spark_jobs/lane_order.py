"""Order between the words of one lane: what rises needs no second look."""

from __future__ import annotations

import numpy as np

from spark_jobs.scan_rows import Bools, Ints, Words, group_starts


def span(bits: Words) -> tuple[Ints, Ints]:
    """Return the lowest and the highest bit of every word."""
    quarters = np.arange(4)
    used = bits != 0
    low_at = np.argmax(used, axis=1)
    high_at = 3 - np.argmax(used[:, ::-1], axis=1)
    rows = np.arange(len(bits))
    low, high = bits[rows, low_at], bits[rows, high_at]
    lowest = np.bitwise_count((low & (~low + np.uint64(1))) - np.uint64(1)).astype(np.int64)
    filled = high.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        filled |= filled >> np.uint64(shift)
    highest = np.bitwise_count(filled).astype(np.int64) - 1
    return quarters[low_at] * 64 + lowest, quarters[high_at] * 64 + highest


def not_rising(key: Ints, first: Ints, last: Ints) -> Bools:
    """Return which rows do not begin above all that their lane had before; rows are sorted by lane."""
    broken = np.zeros(len(key), np.bool_)
    if not len(key):
        return broken
    starts = group_starts(key)
    lane = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(key))))
    width = int(last.max()) + 2
    highest = np.maximum.accumulate(lane * width + last)
    broken[1:] = (lane[1:] == lane[:-1]) & (lane[1:] * width + first[1:] <= highest[:-1])
    return broken
