"""Confidence intervals of proportions, compared with a published table."""

from __future__ import annotations

import pytest

from harness.report.proportions import bounds, format_per_thousand, hidden_share


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (0, 10, 0.0, 0.3085),
        (1, 10, 0.002529, 0.4450),
        (5, 10, 0.1871, 0.8129),
        (10, 10, 0.6915, 1.0),
        (1, 830, 0.0000305, 0.006694),
        (800, 830, 0.9488, 0.9755),
    ],
)
def test_the_bounds_match_the_table_of_clopper_and_pearson(
    hits: int, of: int, low: float, high: float
) -> None:
    assert bounds(hits, of) == pytest.approx((low, high), rel=0.002, abs=1e-9)


def test_the_bounds_of_a_share_and_of_its_complement_are_symmetric() -> None:
    low, high = bounds(3, 40)
    assert bounds(37, 40) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(("hits", "of"), [(0, 0), (-1, 3), (4, 3)])
def test_impossible_counts_are_an_error(hits: int, of: int) -> None:
    with pytest.raises(ValueError, match=f"{hits} of {of}"):
        bounds(hits, of)


def test_a_share_of_nothing_is_not_computed() -> None:
    assert format_per_thousand(0, 0) == "0 of 0: nothing was counted"


def test_a_small_share_is_formatted_per_thousand() -> None:
    assert format_per_thousand(1, 4200) == "1 of 4,200: 0.238 per thousand (0.00603 to 1.33, 95% confidence)"


@pytest.mark.parametrize(
    ("runs", "share"), [(1, 0.95), (3, 0.632), (10, 0.259), (20, 0.139), (60, 0.0487), (300, 0.00994)]
)
def test_what_valid_runs_leave_possible_follows_the_rule_of_three(runs: int, share: float) -> None:
    assert hidden_share(runs) == pytest.approx(share, rel=0.002)
    assert (1 - share) ** runs == pytest.approx(0.05, rel=0.01), "the probability that all runs miss it"
