"""How often something happens, and what a few observations can say of that."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

SURE: Final = 0.95
_HALVINGS: Final = 60


def bounds(hits: int, of: int) -> tuple[float, float]:
    """Between which shares the true one is, 95 % surely: the exact interval of Clopper and Pearson.

    The least share is the one with which so many hits or more would be as rare as 2.5 %; the greatest the one
    with which so many or fewer would be.
    """
    if not 0 <= hits <= of or not of:
        raise ValueError(f"{hits} of {of}")
    rare = (1 - SURE) / 2
    low = _where(lambda share: 1 - _at_most(hits - 1, of, share) > rare) if hits else 0.0
    high = _where(lambda share: _at_most(hits, of, share) < rare) if hits < of else 1.0
    return low, high


def in_a_thousand(hits: int, of: int) -> str:
    """A share with its bounds, for what is rare."""
    if not of:
        return "0 of 0: nothing that it could have happened to"
    low, high = bounds(hits, of)
    return (
        f"{hits} of {of:,}: {1000 * hits / of:.3g} in a thousand "
        f"({1000 * low:.3g} to {1000 * high:.3g}, {SURE:.0%} sure)"
    )


def _where(beyond: Callable[[float], bool]) -> float:
    """The share from which on this is so."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return high


def _at_most(hits: int, of: int, share: float) -> float:
    """How probable so many hits or fewer are, if each try hits with this share."""
    hit, miss = math.log(share), math.log1p(-share)
    return math.fsum(
        math.exp(
            math.lgamma(of + 1) - math.lgamma(i + 1) - math.lgamma(of - i + 1) + i * hit + (of - i) * miss
        )
        for i in range(hits + 1)
    )
