"""Interleaved runs of a benchmark: their order, their comparison, and inconclusive ratios."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tools.bench.interleaved_runs import Cost, Length, Spread, format_rates, interleave, timed

LENGTH = Length(records=40, seconds=0.0)


def running(name: str, order: list[str], rate: Callable[[], float]) -> Callable[[Length], Cost]:
    def run(length: Length) -> Cost:
        order.append(f"{name}{length.records}")
        return Cost(length.records, length.records / rate(), 0.0)

    return run


def test_each_run_is_between_two_of_the_baseline_and_the_warm_up_does_not_count() -> None:
    order: list[str] = []
    base, first, second = (running(name, order, lambda: 1.0) for name in "abc")
    own, *others = interleave(base, [first, second], LENGTH, 2)
    assert order == ["a10", "b10", "c10", "a40", "b40", "a40", "c40", "a40", "c40", "a40", "b40", "a40"]
    assert [len(pairs) for pairs in others] == [2, 2]
    assert len(own) == 3


def test_a_machine_that_becomes_slower_does_not_change_a_ratio() -> None:
    now = iter(range(1000, 0, -1))
    order: list[str] = []
    base = running("a", order, lambda: 2.0 * next(now))
    half = running("b", order, lambda: 1.0 * next(now))
    own, others = interleave(base, [half], LENGTH, 5)
    assert [pair.ratio(lambda cost: cost.rate) for pair in others] == pytest.approx([0.5] * 5)
    assert [pair.ratio(lambda cost: cost.rate) for pair in own] == pytest.approx([1.0] * 4)


def test_a_run_lasts_for_its_records_and_for_its_seconds() -> None:
    assert list(Length(1001, 0.0).bursts(500)) == [0, 1, 2]
    cost = timed(lambda: sum(1 for _ in Length(0, 0.05).bursts(1)))
    assert cost.wall >= 0.05
    assert cost.records > 1


@pytest.mark.parametrize(
    ("values", "doubt"),
    [
        ([1.0, 1.01, 0.99, 1.02, 0.98], ""),
        ([1.0, 1.4, 0.6, 1.5, 0.7], "inconclusive: quartiles 0.7 apart"),
        ([1.0, 1.0, 1.0], "inconclusive: 3 rounds are too few"),
        ([1.0], "inconclusive: 1 rounds are too few"),
    ],
)
def test_a_ratio_with_a_wide_spread_is_inconclusive(values: list[float], doubt: str) -> None:
    spread = Spread.over(values)
    assert spread.doubt.startswith(doubt)
    assert bool(spread.doubt) is bool(doubt)
    assert str(spread).endswith(spread.doubt)


def test_the_baseline_is_compared_with_its_own_neighbours() -> None:
    order: list[str] = []
    runs = [running(name, order, lambda rate=rate: rate) for name, rate in (("a", 4.0), ("b", 2.0))]  # type: ignore[misc]
    lines = list(format_rates(["plain", "dear"], interleave(runs[0], runs[1:], LENGTH, 5), "plain"))
    assert lines[0].split() == [
        "plain",
        "4",
        "records/s",
        "1",
        "of",
        "its",
        "own",
        "neighbours",
        "(1",
        "to",
        "1)",
    ]
    assert lines[1].split() == ["dear", "2", "records/s", "0.5", "of", "plain", "(0.5", "to", "0.5)"]
