"""Interleaved runs: each measured run is between two runs of a baseline, and is compared with their mean.

On a shared machine the speed changes all the time. Absolute rates therefore mean little, but ratios of
neighbouring runs are reliable. A run lasts for a minimum time, because short runs are too noisy. The result
is the median of the ratios with its quartiles. If the quartiles are too far apart, the result is
inconclusive.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from harness.report.text_format import format_table

WIDEST: Final = 0.2
"""Largest distance between the quartiles for a conclusive result, as a share of the median."""
FEWEST: Final = 4
"""Smallest number of ratios for meaningful quartiles."""
WARM_UP: Final = 4
"""Measured runs are longer than warm-up runs by this factor. Warm-up runs do not count."""


class Length(NamedTuple):
    """The length of a run: minimum number of records and minimum number of seconds."""

    records: int
    seconds: float

    def bursts(self, size: int) -> Iterator[int]:
        """Yield the number of each burst, from 0, until the run is long enough.

        A burst has `size` records.
        """
        end = time.perf_counter() + self.seconds
        number = 0
        while number * size < self.records or time.perf_counter() < end:
            yield number
            number += 1


class Cost(NamedTuple):
    """The cost of a run: records, and seconds of wall time and of the sending thread's processor time."""

    records: int
    wall: float
    thread: float

    @property
    def rate(self) -> float:
        """Number of records per second of wall time."""
        return self.records / self.wall

    @property
    def thread_us(self) -> float:
        """Processor time of the sending thread per record, in microseconds."""
        return self.thread / self.records * 1e6


def records_per_second(cost: Cost) -> float:
    """Return the number of records per second of wall time."""
    return cost.rate


def timed(work: Callable[[], int]) -> Cost:
    """Run a function that sends records and returns their number. Return the cost of the run."""
    wall, thread = time.perf_counter(), time.thread_time()
    records = work()
    return Cost(records, time.perf_counter() - wall, time.thread_time() - thread)


@dataclass(frozen=True)
class Spread:
    """The median of some values, and their quartiles."""

    median: float
    low: float
    high: float
    of: int

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        """Return the spread of some values. If there is only one value, both quartiles equal it."""
        if len(values) < 2:
            return cls(values[0], values[0], values[0], 1)
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(middle, low, high, len(values))

    @property
    def doubt(self) -> str:
        """Text that explains why the result is inconclusive. It is empty if the result is conclusive."""
        if self.of < FEWEST:
            return f"inconclusive: {self.of} rounds are too few for quartiles, use more --rounds"
        apart = self.high - self.low
        if apart <= WIDEST * abs(self.median):
            return ""
        return f"inconclusive: quartiles {apart:.2g} apart, use more --seconds or an idle machine"

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})  {self.doubt}".rstrip()


Run = Callable[[Length], Cost]


class Pair(NamedTuple):
    """A measured run, and the runs of the baseline directly before and after it."""

    before: Cost
    run: Cost
    after: Cost

    def ratio(self, of: Callable[[Cost], float]) -> float:
        """Return `of(run)` divided by the mean of `of(before)` and `of(after)`."""
        return 2 * of(self.run) / (of(self.before) + of(self.after))


def interleave(base: Run, others: Sequence[Run], length: Length, rounds: int) -> list[list[Pair]]:
    """Run the baseline before and after every run of `others`; return the measured pairs.

    A pair is a measured run with the runs of the baseline directly before and after it. In the first list,
    the measured runs are those of the baseline itself. Each following list contains the pairs of one other
    run. The order of the runs is baseline, other, baseline, next other, baseline and so on. The pairs of the
    baseline show how much two equal runs differ on this machine.
    """
    short = Length(length.records // WARM_UP, length.seconds / WARM_UP)
    for run in (base, *others):
        run(short)
    bases, measured = [base(length)], []
    for number in range(rounds):
        # The order of the other runs rotates from round to round, so that no run is always the first one.
        for i in range(len(others)):
            other = (number + i) % len(others)
            measured.append((other, others[other](length)))
            bases.append(base(length))
    own = [Pair(*three) for three in zip(bases, bases[1:], bases[2:], strict=False)]
    pairs = [(i, Pair(bases[at], run, bases[at + 1])) for at, (i, run) in enumerate(measured)]
    return [own, *([pair for i, pair in pairs if i == other] for other in range(len(others)))]


def format_rates(names: Sequence[str], pairs: Sequence[Sequence[Pair]], base: str) -> list[str]:
    """Return a line per run, the baseline first: records per second, and the ratio to the baseline.

    The ratio of the baseline compares each of its runs with the runs of the baseline before and after it. If
    that ratio is inconclusive, every other ratio is inconclusive too.
    """
    spreads = [Spread.over([pair.ratio(records_per_second) for pair in of_run]) for of_run in pairs]
    rows = []
    for number, (name, of_run, spread) in enumerate(zip(names, pairs, spreads, strict=True)):
        rate = statistics.median(pair.run.rate for pair in of_run)
        ratio = f"{spread.median:.3g} of {base if number else 'its own neighbours'}"
        doubt = spread.doubt or (spreads[0].doubt and "inconclusive: the baseline varies too much")
        range_ = f"({spread.low:.3g} to {spread.high:.3g})"
        rows.append((f"  {name}", f"{rate:,.0f} records/s", f"{ratio} {range_}", doubt))
    return format_table(rows, right=(1,))
