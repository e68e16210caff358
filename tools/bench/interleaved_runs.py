"""Runs in turns: each stands between two runs of the base and is compared with their mean.

A machine that others use too is now fast, now slow: a rate says little there, a ratio of neighbours much. A
run lasts by the clock, because a short one measures the machine's moods. Told are the median of the ratios
and their quartiles; and where these lie far apart, that the ratio says nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

WIDEST: Final = 0.2
"""Quartiles that lie further apart than this share of the median: the ratio says nothing."""
FEWEST: Final = 4
"""With fewer ratios than this there are no quartiles to speak of."""
WARM_UP: Final = 4
"""How much shorter the first turn is, which warms the brokers up and does not count."""


class Length(NamedTuple):
    """How long a run is: at least so many records, and at least so many seconds."""

    records: int
    seconds: float

    def bursts(self, size: int) -> Iterator[int]:
        """Number the bursts of so many records that a run of this length has."""
        end = time.perf_counter() + self.seconds
        number = 0
        while number * size < self.records or time.perf_counter() < end:
            yield number
            number += 1


class Cost(NamedTuple):
    """What a run took: seconds by the clock on the wall, and of the sending thread's processor time."""

    records: int
    wall: float
    thread: float

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.wall

    @property
    def thread_us(self) -> float:
        """Microseconds of the sending thread a record."""
        return self.thread / self.records * 1e6


def timed(work: Callable[[], int]) -> Cost:
    """What the work takes, which returns how many records it has sent."""
    wall, thread = time.perf_counter(), time.thread_time()
    records = work()
    return Cost(records, time.perf_counter() - wall, time.thread_time() - thread)


@dataclass(frozen=True)
class Spread:
    """The median of some values, and the quartiles around it."""

    median: float
    low: float
    high: float
    of: int

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        """The spread of these values; of a single one it is that value."""
        if len(values) < 2:
            return cls(values[0], values[0], values[0], 1)
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(middle, low, high, len(values))

    @property
    def doubt(self) -> str:
        """Why this says nothing; empty if it says something."""
        if self.of < FEWEST:
            return f"NOTHING TOLD: {self.of} rounds have no spread; give more --rounds"
        apart = self.high - self.low
        if apart <= WIDEST * abs(self.median):
            return ""
        return (
            f"NOTHING TOLD: the quartiles are {apart:.2g} apart; give longer runs (--seconds), "
            "or the machine to this alone"
        )

    def __str__(self) -> str:
        told = f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"
        return f"{told}  {self.doubt}".rstrip()


Run = Callable[[Length], Cost]


class Pair(NamedTuple):
    """A run, and the runs of the base before it and after it."""

    before: Cost
    run: Cost
    after: Cost

    def ratio(self, of: Callable[[Cost], float]) -> float:
        """A measure of the run, as a share of the mean of its neighbours'."""
        return 2 * of(self.run) / (of(self.before) + of(self.after))


def in_turns(base: Run, others: Sequence[Run], length: Length, rounds: int) -> list[list[Pair]]:
    """Run base, other, base, next other, base and so on; for the base itself and each other, its pairs.

    The base's own pairs say how far apart two runs of the same thing are on this machine.
    """
    short = Length(length.records // WARM_UP, length.seconds / WARM_UP)
    for run in (base, *others):
        run(short)
    bases, found = [base(length)], []
    for number in range(rounds):
        # Each round begins with another of them, so that none always comes first.
        for i in range(len(others)):
            other = (number + i) % len(others)
            found.append((other, others[other](length)))
            bases.append(base(length))
    own = [Pair(*three) for three in zip(bases, bases[1:], bases[2:], strict=False)]
    pairs = [(i, Pair(bases[at], run, bases[at + 1])) for at, (i, run) in enumerate(found)]
    return [own, *([pair for i, pair in pairs if i == other] for other in range(len(others)))]


def rates(names: Sequence[str], pairs: Sequence[Sequence[Pair]], of: str) -> Iterator[str]:
    """A line for each: records a second, and what share that is of the base; the base comes first.

    Where the base has no spread to speak of beside its own neighbours, no ratio to it says anything.
    """
    spreads = [Spread.over([pair.ratio(lambda cost: cost.rate) for pair in mine]) for mine in pairs]
    for number, (name, mine, spread) in enumerate(zip(names, pairs, spreads, strict=True)):
        rate = statistics.median(pair.run.rate for pair in mine)
        beside = f"of {of}" if number else "of its own neighbours"
        told = f"{spread.median:.3g} {beside} ({spread.low:.3g} to {spread.high:.3g})"
        doubt = spread.doubt or (spreads[0].doubt and "NOTHING TOLD: the base swings too much")
        yield f"  {name:26}{rate:11,.0f} records/s   {told}  {doubt}".rstrip()
