"""Measure the verification, and compare it with plain ways to read the same topic.

    python -m tools.bench.verify [--bootstrap HOST:PORT] [--records 3600000] [--rounds 3]

Without --bootstrap it uses the cluster that is up, or starts one. It writes a topic of transactions (one in
ten aborted) unless `--topic` names the topic of an earlier run. Then it measures, in interleaved rounds: two
processes with confluent-kafka, Spark's bare count, Spark's words with and without everything else; and once
Kafka's ConsumerPerformance. It prints the median and the quartiles of the ratios of each round, because
seconds of a shared machine mean little. With `--lanes 2` records of two lanes alternate, so that nothing
folds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from harness.cluster import lifecycle
from harness.cluster.state_directory import State, default_state
from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.checkers.verdict import judge
from harness.evidence.ledger import Ledger
from harness.evidence.observation import Window
from harness.evidence.record import LaneEncoder
from harness.witness.spark.frozen_offsets import freeze_ends
from harness.witness.spark.spark_session import DEFAULT_MASTER, start_session
from tools.bench.baseline_readers import consumer_performance, cpu_seconds, two_processes
from tools.bench.interleaved_runs import Spread
from tools.bench.synthetic_topic import RUN, Plan, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON: Final = "confluent-kafka, two processes"
BARE: Final = "Spark, bare count"
COUNTS: Final = "Spark, words"
FINDINGS: Final = "Spark, all findings"
JAVA: Final = "Kafka's ConsumerPerformance, one thread of Java"

Rates = dict[str, list[float]]

TARGETS: Final = ((COUNTS, BARE, 0.9), (FINDINGS, BARE, 0.7), (COUNTS, PYTHON, 2.0), (FINDINGS, PYTHON, 2.0))
"""A measurement, its baseline, and the target for the ratio of their rates."""


def ways(
    spark: SparkSession, bootstrap: str, windows: list[Window], ledger: Ledger
) -> dict[str, Callable[[], int]]:
    """Return the measured functions by name; each reads the topic once and returns the number of records."""
    from harness.witness.spark.topic_verification import WITH_LEDGER, frames_of, own_findings
    from spark_jobs import batch_job
    from spark_jobs.batch_job import collect
    from spark_jobs.kafka_source import KafkaSource, read_ranges
    from spark_jobs.scan_pass import Wanted, scan_words

    source = KafkaSource(bootstrap)

    def bare() -> int:
        return read_ranges(spark, source, windows).frame.count()

    def words(*, with_runs: bool) -> int:
        log = read_ranges(spark, source, windows)
        rows = collect(log, scan_words(Wanted(RUN, with_runs=with_runs)))
        return sum(
            n for kind, n in zip(*(rows[c].to_pylist() for c in ("kind", "n")), strict=True) if kind == 0
        )

    def all_findings(*, twice: bool) -> int:
        observed = batch_job.main_with_rows(spark, source, windows, Wanted(RUN))
        judgement = judge(Evidence(ledger, [observed.observation], Expect(properties=list(WITH_LEDGER))))
        assert judgement.exit_code == 0, judgement.encode().decode()
        if twice:
            assert own_findings(frames_of(spark, ledger, observed)) == {}
        return observed.observation.meta.records

    with_ledger = {
        FINDINGS: lambda: all_findings(twice=False),
        "Spark, all findings, and again by its own join": lambda: all_findings(twice=True),
    }
    return {
        PYTHON: lambda: two_processes(bootstrap, windows),
        BARE: bare,
        COUNTS: lambda: words(with_runs=False),
        "Spark, words and runs": lambda: words(with_runs=True),
        "Spark, the whole observation": lambda: (
            batch_job.main(spark, source, windows, Wanted(RUN)).meta.records
        ),
        **with_ledger,
    }


def pass_alone(records: int) -> float:
    """Return the rate of the pass alone, on one core and from memory, without Spark and Kafka."""
    import numpy as np
    import pyarrow as pa

    from spark_jobs.scan_pass import Wanted, scan_words

    values = pa.array(LaneEncoder(RUN, 1, 0).batch(0, records, 7, "c"), pa.binary())
    window, offset = pa.array(np.zeros(records, np.int32)), pa.array(np.arange(records))
    batch_job = pa.RecordBatch.from_arrays([window, offset, values], names=["window", "offset", "value"])

    def once() -> int:
        batches = (batch_job.slice(at, 50_000) for at in range(0, records, 50_000))
        return int(sum(one.num_rows for one in scan_words(Wanted(RUN))(batches))) * 256

    return max(rate_of(once)[1] for _ in range(5))


def rate_of(way: Callable[[], int]) -> tuple[int, float]:
    """Return the number of records of one reading, and its rate."""
    start = time.perf_counter()
    count = way()
    return count, count / (time.perf_counter() - start)


def measure_ways(ways: dict[str, Callable[[], int]], rounds: int) -> tuple[Rates, Rates]:
    """Return the rates by elapsed time and by processor time of our own processes, round by round.

    The ways are interleaved, so that other load affects them all alike.
    """
    rates: Rates = {name: [] for name in ways}
    by_processor: Rates = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            before = cpu_seconds()
            count, rate = rate_of(way)
            used = cpu_seconds() - before
            if turn:  # the first round warms up
                rates[name].append(rate)
                by_processor[name].append(count / used)
                cost = f"{rate / 1e6:6.2f} M rows/s  {used / count * 1e6:5.2f} µs of processor per row"
                print(f"{cost}  {count:>11,}  {name}", flush=True)
    return rates, by_processor


def ratio_of(rates: Rates, name: str, other: str) -> Spread:
    """Return the median and the quartiles of the ratios of all rounds."""
    return Spread.over([a / b for a, b in zip(rates[name], rates[other], strict=True)])


def print_summary(rates: Rates, by_processor: Rates) -> None:
    """Print medians, ratios, and the targets."""
    for name, values in rates.items():
        ratios = (ratio_of(rates, name, BARE).median, ratio_of(rates, name, PYTHON).median)
        ratio_text = "{:5.2f} x bare count {:5.2f} x two processes".format(*ratios)
        print(f"{statistics.median(values) / 1e6:6.2f} M rows/s  {ratio_text}  {name}")
    for name, other, least in TARGETS:
        if name in rates:
            ratio, used = ratio_of(rates, name, other), ratio_of(by_processor, name, other)
            word = "met   " if ratio.median >= least else "MISSED"
            print(f"{word} {least} x {other}: {ratio}, by processor time {used}: {name}")


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table and one line of JSON."""
    parser = argparse.ArgumentParser(
        prog="bench verify", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--bootstrap", help="brokers; by default the cluster that is up, or a new one")
    parser.add_argument("--backend", default="auto", choices=("auto", "compose", "process"))
    parser.add_argument("--records", type=int, default=3_600_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lanes", type=int, default=1, help="lanes that alternate in every partition")
    parser.add_argument("--topic", help="topic of an earlier run with the same --records and --lanes")
    parser.add_argument(
        "--only", action="append", default=[], help="measure only this way and the plain ones; repeatable"
    )
    parser.add_argument("--master", default=DEFAULT_MASTER)
    parser.add_argument("--heap", default="2g", help="heap of the driver")
    given = parser.parse_args(arguments)
    print(f"{pass_alone(2_000_000) / 1e6:6.2f} M rows/s  the pass alone, one core, from memory", flush=True)
    if given.bootstrap is not None:
        measure(given, given.bootstrap)
        return 0
    state = State(default_state())
    cluster, started = lifecycle.up(state, given.backend, "load", print)
    try:
        measure(given, cluster.bootstrap("DIRECT"))
    finally:
        if started:
            lifecycle.down(state)
    return 0


def measure(given: argparse.Namespace, bootstrap: str) -> None:
    """Write the topic unless it exists, measure all ways in turn, and print the result."""
    topic = given.topic or f"bench-{uuid.uuid4().hex[:8]}"
    plan = Plan(topic, given.records, given.lanes)
    if given.topic is None:
        start = time.perf_counter()
        writer = Writer(bootstrap, plan)
        for txn in range(len(plan.aborted)):
            writer.transaction(txn)
        print(f"wrote {topic} in {time.perf_counter() - start:.1f} s", flush=True)
    windows = freeze_ends(bootstrap, [topic]).windows
    start = time.perf_counter()
    spark = start_session("bench", given.master, print, {"spark.driver.memory": given.heap})
    print(f"session: {time.perf_counter() - start:.1f} s", flush=True)
    chosen = ways(spark, bootstrap, windows, plan.ledger())
    chosen = {
        name: way for name, way in chosen.items() if not given.only or name in {*given.only, BARE, PYTHON}
    }
    rates, by_processor = measure_ways(chosen, given.rounds)
    spark.stop()
    count, java = consumer_performance(bootstrap, topic, given.records, print)
    print(f"{java / 1e6:6.2f} M rows/s  {count:>11,}  {JAVA}")
    print_summary(rates, by_processor)
    print(json.dumps({"topic": topic, "rates": rates, JAVA: java}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
