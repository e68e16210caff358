"""Interleaved runs: each run is compared with the mean of the baseline runs before and after it.

The speed of a shared machine varies, so a ratio of neighbouring runs is more reliable than a rate. A run has
a minimum duration, because short runs are too noisy. The output has the median and the quartiles of the
ratios; ratios whose quartiles are far apart are reported as inconclusive.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

WIDEST: Final = 0.2
"""A ratio is inconclusive if its quartiles are further apart than this share of the median."""
FEWEST: Final = 4
"""Fewer ratios than this have no meaningful quartiles."""
WARM_UP: Final = 4
"""The first round is shorter by this factor; it warms the brokers up and does not count."""


class Length(NamedTuple):
    """The minimum length of a run, in records and in seconds."""

    records: int
    seconds: float

    def bursts(self, size: int) -> Iterator[int]:
        """Yield the numbers of the bursts, of `size` records each, in a run of this length."""
        end = time.perf_counter() + self.seconds
        number = 0
        while number * size < self.records or time.perf_counter() < end:
            yield number
            number += 1


class Cost(NamedTuple):
    """The cost of a run: elapsed seconds, and processor seconds of the sending thread."""

    records: int
    wall: float
    thread: float

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.wall

    @property
    def thread_us(self) -> float:
        """Microseconds of the sending thread per record."""
        return self.thread / self.records * 1e6


def timed(work: Callable[[], int]) -> Cost:
    """Measure `work`, which returns the number of records that it sent."""
    wall, thread = time.perf_counter(), time.thread_time()
    records = work()
    return Cost(records, time.perf_counter() - wall, time.thread_time() - thread)


@dataclass(frozen=True)
class Spread:
    """The median and the quartiles of some values."""

    median: float
    low: float
    high: float
    of: int

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        """Return the spread of these values; a single value is its own median and quartiles."""
        if len(values) < 2:
            return cls(values[0], values[0], values[0], 1)
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(middle, low, high, len(values))

    @property
    def doubt(self) -> str:
        """The reason why the value is inconclusive; empty if it is not."""
        if self.of < FEWEST:
            return f"inconclusive: {self.of} rounds have no spread; use more --rounds"
        apart = self.high - self.low
        if apart <= WIDEST * abs(self.median):
            return ""
        return (
            f"inconclusive: quartiles {apart:.2g} apart; use longer runs (--seconds) "
            "or a machine without other load"
        )

    def __str__(self) -> str:
        values = f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"
        return f"{values}  {self.doubt}".rstrip()


Run = Callable[[Length], Cost]


class Pair(NamedTuple):
    """A run, with the baseline runs before and after it."""

    before: Cost
    run: Cost
    after: Cost

    def ratio(self, of: Callable[[Cost], float]) -> float:
        """Return a measure of the run divided by the mean of its neighbours."""
        return 2 * of(self.run) / (of(self.before) + of(self.after))


def run_interleaved(base: Run, others: Sequence[Run], length: Length, rounds: int) -> list[list[Pair]]:
    """Run baseline, other, baseline, next other and so on; return the pairs of the baseline and of each run.

    The pairs of the baseline show how much two equal runs differ on this machine.
    """
    short = Length(length.records // WARM_UP, length.seconds / WARM_UP)
    for run in (base, *others):
        run(short)
    bases, runs = [base(length)], []
    for number in range(rounds):
        # Each round starts with a different run, so that none is always the first.
        for i in range(len(others)):
            other = (number + i) % len(others)
            runs.append((other, others[other](length)))
            bases.append(base(length))
    own = [Pair(*three) for three in zip(bases, bases[1:], bases[2:], strict=False)]
    pairs = [(i, Pair(bases[at], run, bases[at + 1])) for at, (i, run) in enumerate(runs)]
    return [own, *([pair for i, pair in pairs if i == other] for other in range(len(others)))]


def rates(names: Sequence[str], pairs: Sequence[Sequence[Pair]], of: str) -> Iterator[str]:
    """Yield a line for each run: records a second, and the ratio to the baseline; the baseline comes first.

    If the baseline is inconclusive compared with itself, every ratio to it is inconclusive.
    """
    spreads = [Spread.over([pair.ratio(lambda cost: cost.rate) for pair in each]) for each in pairs]
    for number, (name, own_pairs, spread) in enumerate(zip(names, pairs, spreads, strict=True)):
        rate = statistics.median(pair.run.rate for pair in own_pairs)
        beside = f"of {of}" if number else "of its own neighbours"
        ratio = f"{spread.median:.3g} {beside} ({spread.low:.3g} to {spread.high:.3g})"
        doubt = spread.doubt or (spreads[0].doubt and "inconclusive: the baseline varies too much")
        yield f"  {name:26}{rate:11,.0f} records/s   {ratio}  {doubt}".rstrip()
