"""Confidence intervals of a proportion that was estimated from a few observations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

CONFIDENCE: Final = 0.95
_HALVINGS: Final = 60


def bounds(hits: int, of: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a proportion, by the exact method of Clopper and Pearson.

    The proportion was observed as `hits` hits in `of` attempts. If the true proportion were the lower bound,
    the probability of `hits` or more hits would be 2.5 %. If it were the upper bound, the probability of
    `hits` or fewer hits would be 2.5 %.
    """
    if not 0 <= hits <= of or not of:
        raise ValueError(f"{hits} of {of}")
    rare = (1 - CONFIDENCE) / 2
    low = _first_share(lambda share: 1 - _at_most(hits - 1, of, share) > rare) if hits else 0.0
    high = _first_share(lambda share: _at_most(hits, of, share) < rare) if hits < of else 1.0
    return low, high


def hidden_share(runs: int) -> float:
    """Return the largest share of runs with an anomaly that `runs` runs without one leave possible.

    If the share were larger, the probability that none of the runs shows the anomaly would be below 5 %. For
    many runs it is 3 / runs, the rule of three.
    """
    if runs < 1:
        raise ValueError("no runs")
    return float(1 - (1 - CONFIDENCE) ** (1 / runs))


def format_per_thousand(hits: int, of: int) -> str:
    """Return a text with the counts, the hits per thousand attempts, and their confidence interval."""
    if not of:
        return "0 of 0: nothing was counted"
    low, high = bounds(hits, of)
    return (
        f"{hits} of {of:,}: {1000 * hits / of:.3g} per thousand "
        f"({1000 * low:.3g} to {1000 * high:.3g}, {CONFIDENCE:.0%} confidence)"
    )


def _first_share(beyond: Callable[[float], bool]) -> float:
    """Return the smallest share between 0 and 1 for which `beyond` is true, found by bisection.

    `beyond` must be false below a certain share and true above it.
    """
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return high


def _at_most(hits: int, of: int, share: float) -> float:
    """Return the probability of at most `hits` hits in `of` attempts with the hit rate `share`."""
    hit, miss = math.log(share), math.log1p(-share)
    return math.fsum(
        math.exp(
            math.lgamma(of + 1) - math.lgamma(i + 1) - math.lgamma(of - i + 1) + i * hit + (of - i) * miss
        )
        for i in range(hits + 1)
    )
