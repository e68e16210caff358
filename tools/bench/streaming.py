"""Measure whether the streaming verification keeps up with clients that write at a steady rate.

    python -m tools.bench.streaming --bootstrap HOST:PORT [--rate 200000] [--seconds 30] [--warm-up 20]

Writes transactions of 20,000 records, one in ten aborted, at a steady rate while the streaming job runs in a
separate process, as in every run. Prints every second how many records are written and how far the job is
behind the readable ones; at the end, the rate of the writes and how long the job took to end after the last
record. The job keeps up if it is no further behind in the second half than in the first, with a tolerance of
a second. The first seconds are printed but not counted: until its JVM has compiled itself the job is several
times slower.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from threading import Thread
from typing import Final, NamedTuple

from harness.base.errors import HarnessError
from harness.base.waits import wait_until
from harness.evidence.observation import Window
from harness.witness.spark.frozen_offsets import freeze_ends
from harness.witness.spark.spark_process import Job
from harness.witness.spark.stream_supervisor import StreamVerification
from tools.bench.synthetic_topic import PARTITIONS, RUN, TXN, Plan, Writer

FIRST: Final = 2
"""Transactions before the measured ones: the job starts its session and its first batch on them."""


class Look(NamedTuple):
    """The lag of the job in seconds, at a time in seconds after the first record."""

    at: float
    behind: float


class Steady(Thread):
    """Writes a plan's transactions, each at its planned time."""

    def __init__(self, writer: Writer, rate: int) -> None:
        super().__init__(daemon=True)
        self.writer = writer
        self.rate = rate
        self.written = 0
        self.took = 0.0
        self.failed: BaseException | None = None

    def run(self) -> None:
        """Write all but the first transactions; `end` raises any error."""
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001  # raised by `end`, in another thread
            self.failed = error

    def end(self) -> None:
        """Wait for the end, and raise the error of the writer if there was one."""
        self.join()
        if self.failed is not None:
            raise self.failed

    def _write(self) -> None:
        """Write each transaction when it is due; a late one at once."""
        start = time.perf_counter()
        for txn in range(FIRST, len(self.writer.plan.aborted)):
            due = start + (txn - FIRST) * TXN / self.rate
            time.sleep(max(0.0, due - time.perf_counter()))
            self.writer.transaction(txn)
            self.written += TXN
        self.took = time.perf_counter() - start


def watch(stream: StreamVerification, writing: Steady) -> list[Look]:
    """Print a line a second while records are written; return the lag over time."""
    looks: list[Look] = []
    start = time.perf_counter()
    while writing.is_alive():
        writing.join(1.0)
        progress = stream.progress()
        if progress is None or progress.lag is None:
            continue
        looks.append(Look(time.perf_counter() - start, progress.lag.behind_stable / writing.rate))
        print(
            f"{looks[-1].at:5.1f} s  {writing.written:>11,} written  "
            f"{progress.lag.behind_stable:>9,} behind ({looks[-1].behind:.2f} s)  "
            f"{progress.lag.unstable:>7,} not stable  "
            f"last batch {progress.rows:,} records, {progress.rows_per_s / 1e6:.2f} M rows/s",
            flush=True,
        )
    writing.end()
    return looks


def halves(looks: Sequence[Look], warm_up: float) -> tuple[list[float], list[float]]:
    """Return the lags in the first and in the second half of the counted seconds."""
    behind = [look.behind for look in looks if look.at >= warm_up]
    half = len(behind) // 2
    if not half:
        raise HarnessError(
            f"{len(behind)} samples after {warm_up:g} s of warm-up are too few", "use more --seconds"
        )
    return behind[:half], behind[half:]


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a line a second and a summary; exit code 1 if the job did not keep up."""
    parser = argparse.ArgumentParser(
        prog="bench streaming", description="Measure whether the streaming job keeps up."
    )
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rate", type=int, default=200_000, help="records a second, aborted ones included")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=20, help="seconds that do not count")
    given = parser.parse_args(arguments)
    topic = f"stream-{uuid.uuid4().hex[:8]}"
    plan = Plan(topic, int(given.rate * (given.warm_up + given.seconds) * 0.9) + FIRST * TXN)
    writer = Writer(given.bootstrap, plan)
    for txn in range(FIRST):
        writer.transaction(txn)
    windows = [Window(topic, partition, 0, 0, 0, 0) for partition in range(PARTITIONS)]
    with tempfile.TemporaryDirectory(prefix="eos-stream-") as folder:
        job = Job(kind="stream", bootstrap=given.bootstrap, windows=windows, folder=folder, run=RUN)
        stream = StreamVerification(job, print)
        stream.start()
        try:
            wait_until(stream.progress, 300, "the job's first batch", hint=f"look at {folder}/driver.log")
            return measure(stream, Steady(writer, given.rate), given.warm_up)
        finally:
            stream.kill()


def measure(stream: StreamVerification, writing: Steady, warm_up: int) -> int:
    """Write, watch, wait for the end of the job, and print the result."""
    writing.start()
    first, second = halves(watch(stream, writing), warm_up)
    start = time.perf_counter()
    observation = stream.finish(freeze_ends(stream.job.bootstrap, [writing.writer.plan.topic]).windows)
    ended = time.perf_counter() - start
    before, after = statistics.median(first), statistics.median(second)
    kept = after <= before + 1
    committed = writing.writer.plan.aborted.count(False) * TXN
    assert observation.meta.records == committed, (
        f"the job read {observation.meta.records} of {committed} records"
    )
    print(
        f"{writing.written / writing.took:,.0f} records/s written of {writing.rate:,}",
        f"behind: {before:.2f} s in the first half, {after:.2f} s in the second, "
        f"{max(*first, *second):.2f} s at most",
        f"all {committed:,} committed records verified {ended:.1f} s after the last one",
        "the job kept up" if kept else "the job did NOT keep up",
        sep="\n",
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
