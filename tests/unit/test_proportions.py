"""How often something happens: bounds that are exact, and against a table of them."""

from __future__ import annotations

import pytest

from harness.report.proportions import bounds, in_a_thousand


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
def test_the_bounds_are_those_of_clopper_and_pearson(hits: int, of: int, low: float, high: float) -> None:
    assert bounds(hits, of) == pytest.approx((low, high), rel=0.002, abs=1e-9)


def test_the_bounds_of_a_share_and_of_what_is_left_mirror_each_other() -> None:
    low, high = bounds(3, 40)
    assert bounds(37, 40) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(("hits", "of"), [(0, 0), (-1, 3), (4, 3)])
def test_what_cannot_have_been_counted_is_an_error(hits: int, of: int) -> None:
    with pytest.raises(ValueError, match=f"{hits} of {of}"):
        bounds(hits, of)


def test_of_nothing_there_is_no_share() -> None:
    assert in_a_thousand(0, 0) == "0 of 0: nothing that it could have happened to"


def test_a_rare_thing_is_told_in_a_thousand() -> None:
    assert in_a_thousand(1, 4200) == "1 of 4,200: 0.238 in a thousand (0.00603 to 1.33, 95% sure)"
