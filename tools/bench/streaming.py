"""Benchmark of the streaming verification while clients write at a steady rate."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from threading import Thread
from typing import Final, NamedTuple

import click

from harness.base.errors import HarnessError
from harness.base.waits import wait_until
from harness.cli.options import log
from harness.evidence.observation import Window
from harness.witness.spark.frozen_offsets import freeze_ends
from harness.witness.spark.spark_process import Job
from harness.witness.spark.stream_supervisor import StreamVerification
from tools.bench.command import benchmark, number_option, seconds_option
from tools.bench.synthetic_topic import PARTITIONS, RUN, TXN, Plan, Writer

FIRST: Final = 2
"""Number of transactions that are written before the measured ones, so that the job has a first batch to
read.
"""


class LagSample(NamedTuple):
    """Lag of the streaming job (`lag`) at a time since the start of writing (`at`), both in seconds."""

    at: float
    lag: float


class Steady(Thread):
    """Thread that writes the transactions of a synthetic topic at a steady rate."""

    def __init__(self, writer: Writer, rate: int) -> None:
        super().__init__(daemon=True)
        self.writer = writer
        self.rate = rate
        self.written = 0
        self.took = 0.0
        self.failed: BaseException | None = None

    def run(self) -> None:
        """Write all transactions except the first ones. If writing fails, `end` raises the error."""
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001 - `end` raises it in the other thread
            self.failed = error

    def end(self) -> None:
        """Wait for the thread to end, and raise its error if it had one."""
        self.join()
        if self.failed is not None:
            raise self.failed

    def _write(self) -> None:
        start = time.perf_counter()
        for txn in range(FIRST, len(self.writer.plan.aborted)):
            due = start + (txn - FIRST) * TXN / self.rate
            time.sleep(max(0.0, due - time.perf_counter()))
            self.writer.transaction(txn)
            self.written += TXN
        self.took = time.perf_counter() - start


def watch(live: StreamVerification, writing: Steady) -> list[LagSample]:
    """Print a line per second while records are written; return the lag that each line shows."""
    samples: list[LagSample] = []
    start = time.perf_counter()
    while writing.is_alive():
        writing.join(1.0)
        progress = live.progress()
        if progress is None or progress.lag is None:
            continue
        lag = progress.lag
        samples.append(LagSample(time.perf_counter() - start, lag.behind_stable / writing.rate))
        click.echo(
            f"{samples[-1].at:5.1f} s  {writing.written:>11,} written  "
            f"{lag.behind_stable:>9,} behind ({samples[-1].lag:.2f} s)  {lag.unstable:>7,} not stable  "
            f"last batch {progress.rows:,} records, {progress.rows_per_s / 1e6:.2f} M rows/s"
        )
    writing.end()
    return samples


def halves(samples: Sequence[LagSample], warm_up: float) -> tuple[list[float], list[float]]:
    """Split the lags after the warm-up into a first and a second half, and return both."""
    lags = [sample.lag for sample in samples if sample.at >= warm_up]
    half = len(lags) // 2
    if not half:
        raise HarnessError(
            f"{len(lags)} samples after {warm_up:g} s of warm-up are too few", "use more --seconds"
        )
    return lags[:half], lags[half:]


def measure(live: StreamVerification, writing: Steady, warm_up: float) -> bool:
    """Write the records, wait until the job has read them, and print the result.

    Return whether the job kept up with the writing.
    """
    writing.start()
    first, second = halves(watch(live, writing), warm_up)
    start = time.perf_counter()
    observation = live.finish(freeze_ends(live.job.bootstrap, [writing.writer.plan.topic]).windows).stream
    ended = time.perf_counter() - start
    before, after = statistics.median(first), statistics.median(second)
    kept_up = after <= before + 1
    committed = writing.writer.plan.aborted.count(False) * TXN
    records = observation.meta.records
    assert records == committed, f"{records} of {committed} records were read"
    click.echo(
        f"{writing.written / writing.took:,.0f} records/s written of {writing.rate:,}\n"
        f"lag: {before:.2f} s in the first half, {after:.2f} s in the second, "
        f"{max(*first, *second):.2f} s at most\n"
        f"all {committed:,} committed records were read {ended:.1f} s after the last one was written\n"
        f"the job {'kept' if kept_up else 'did NOT keep'} up"
    )
    return kept_up


@benchmark("streaming", "--bootstrap localhost:9092 --rate 200000")
@click.option("--bootstrap", required=True, metavar="HOST:PORT", help="Brokers; not the proxies.")
@number_option("--rate", 200_000, "Records per second, aborted ones included.")
@seconds_option(30, "Seconds that count.")
@seconds_option(20, "Seconds before those that count.", name="--warm-up")
def main(bootstrap: str, rate: int, seconds: float, warm_up: float) -> None:
    """Measure whether the streaming verification keeps up with clients that write at a steady rate.

    The command writes transactions of 20,000 records, one in ten aborted, while the streaming job runs in its
    own process, as in a run. It prints the lag of the job every second. The job keeps up if its median lag is
    at most a second higher in the second half than in the first. The first seconds do not count: the job is
    several times slower until its JVM has compiled the code. The exit code is 1 if the job does not keep up.
    """
    topic = f"live-{uuid.uuid4().hex[:8]}"
    plan = Plan(topic, int(rate * (warm_up + seconds) * 0.9) + FIRST * TXN)
    writer = Writer(bootstrap, plan)
    for txn in range(FIRST):
        writer.transaction(txn)
    windows = [Window(topic, partition, 0, 0, 0, 0) for partition in range(PARTITIONS)]
    with tempfile.TemporaryDirectory(prefix="eos-stream-") as folder:
        job = Job(kind="stream", bootstrap=bootstrap, windows=windows, folder=folder, run=RUN)
        live = StreamVerification(job, log)
        live.start()
        try:
            hint = f"read {folder}/driver.log"
            wait_until(live.progress, 300, "the first batch of the streaming job", hint=hint)
            kept_up = measure(live, Steady(writer, rate), warm_up)
        finally:
            live.kill()
    sys.exit(0 if kept_up else 1)


if __name__ == "__main__":
    main()
