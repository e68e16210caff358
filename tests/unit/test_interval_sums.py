"""Arithmetic of the ledger and the checkers on sorted columns: searches by table, and sums piece by piece."""

from __future__ import annotations

import numpy as np
import pytest

from harness.evidence.bit_words import Ints, are_sorted, find_rows, sorted_rows, stable_order
from harness.evidence.checkers import interval_sums
from harness.evidence.checkers.interval_sums import count_records, pieces, sizes, sum_by
from harness.evidence.ledger import Intervals

rng = np.random.default_rng(3)


def ints(*numbers: int) -> Ints:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize("most", [30, 10**12])
def test_the_first_row_of_a_key_is_found(most: int) -> None:
    for size in (1, 2, 20):
        for repeats in (1, 3):
            keys = np.sort(np.repeat(rng.integers(-1, most, size), repeats))
            wanted = np.concatenate([keys, rng.integers(-5, most + 5, 50)])
            rows = find_rows(keys, wanted)
            known = np.isin(wanted, keys)
            assert ((rows >= 0) & (rows < len(keys))).all()
            assert (keys[rows] == wanted).tolist() == known.tolist()
            assert (rows[known] == np.searchsorted(keys, wanted[known])).all()


def test_rows_are_sorted_by_several_keys() -> None:
    table = rng.integers(0, 4, (50, 3))
    by_first = sorted_rows(table, 0, 1)
    assert by_first.tolist() == sorted(table.tolist(), key=lambda row: row[:2])
    assert are_sorted(by_first[:, 0], by_first[:, 1])
    assert sorted_rows(by_first, 0, 1) is by_first
    assert not are_sorted(ints(1, 1, 2), ints(2, 1, 1))
    assert are_sorted(ints(1, 1, 2), ints(1, 2, 0))
    assert are_sorted(ints())


@pytest.mark.parametrize("most", [1 << 16, (1 << 16) + 1])
def test_the_order_of_small_and_of_large_numbers_is_stable(most: int) -> None:
    numbers = np.append(rng.integers(0, 5, 100), most - 1)
    assert stable_order(numbers).tolist() == sorted(range(101), key=lambda i: int(numbers[i]))
    assert stable_order(ints()).tolist() == []


@pytest.mark.parametrize("piece", [1, 3, 1 << 16])
def test_sums_do_not_depend_on_the_size_of_a_piece(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_sums, "PIECE", piece)
    keys = np.append(rng.integers(0, 60, 40), [0, 59]).astype(np.int32)
    values = rng.integers(0, 1 << 40, 42)
    first = rng.integers(0, 100, 42)
    chosen = keys % 2 == 0
    intervals = Intervals(keys, first, first + 2, np.zeros(42, np.uint8), keys)

    expected = [int(values[keys == key].sum()) for key in range(70)]
    assert sum_by(keys, 70, lambda part: values[part]).tolist() == expected
    assert sum_by(keys, 70, lambda part: chosen[part]).tolist() == [
        int(chosen[keys == key].sum()) for key in range(70)
    ]
    small = sum_by(keys, 70, lambda part: values[part] >> 20, np.int32)
    assert small.dtype == np.int32
    assert small.tolist() == [int((values[keys == key] >> 20).sum()) for key in range(70)]
    assert count_records(intervals, chosen) == 3 * int(chosen.sum())
    assert [size for part in pieces(42) for size in sizes(intervals, part).tolist()] == [3] * 42
