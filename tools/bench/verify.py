"""Measure the verification against plain ways to read the same topic, in one run and on one machine.

    python -m tools.bench.verify [--bootstrap HOST:PORT] [--records 3600000] [--rounds 3]

Without brokers to ask, on the cluster that is up, or one that is started for it. Writes a topic of
transactions (one in ten aborted) unless `--topic` names one that a former run wrote, then times, turn by
turn: two processes with confluent-kafka, Spark's bare count, Spark's words without and with everything
else, and Kafka's ConsumerPerformance once. Told are the median and the quartiles of the rounds' ratios:
seconds of a shared machine mean little. With `--lanes 2` records of two lanes take turns, so that nothing
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
"""What is measured, against what, and the least ratio of their rates in one run."""


def ways(
    spark: SparkSession, bootstrap: str, windows: list[Window], ledger: Ledger
) -> dict[str, Callable[[], int]]:
    """Return what is measured by name: each reads the topic once and returns how many records it saw."""
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
        "Spark, all findings, and once more by its own join": lambda: all_findings(twice=True),
    }
    return {
        PYTHON: lambda: two_processes(bootstrap, windows),
        BARE: bare,
        COUNTS: lambda: words(with_runs=False),
        "Spark, words and runs": lambda: words(with_runs=True),
        "Spark, the whole account": lambda: batch_job.main(spark, source, windows, Wanted(RUN)).meta.records,
        **with_ledger,
    }


def pass_alone(records: int) -> float:
    """Return the rate of the pass itself, on one core and from memory: no Spark, no Kafka."""
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
    """Return how many records one reading saw, and how many in a second."""
    start = time.perf_counter()
    count = way()
    return count, count / (time.perf_counter() - start)


def take_turns(ways: dict[str, Callable[[], int]], rounds: int) -> tuple[Rates, Rates]:
    """Return rates by the clock and rates by the processor's time of our own processes, round by round.

    The ways take turns, so that a machine's other load meets them all alike.
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
                told = f"{rate / 1e6:6.2f} M rows/s  {used / count * 1e6:5.2f} µs of processor a row"
                print(f"{told}  {count:>11,}  {name}", flush=True)
    return rates, by_processor


def ratio_of(rates: Rates, name: str, other: str) -> Spread:
    """Return the rounds' ratios: their median and their quartiles."""
    return Spread.over([a / b for a, b in zip(rates[name], rates[other], strict=True)])


def tell(rates: Rates, by_processor: Rates) -> None:
    """Print medians, ratios, and the targets."""
    for name, one in rates.items():
        ratios = (ratio_of(rates, name, BARE).median, ratio_of(rates, name, PYTHON).median)
        told = "{:5.2f} x bare count {:5.2f} x two processes".format(*ratios)
        print(f"{statistics.median(one) / 1e6:6.2f} M rows/s  {told}  {name}")
    for name, other, least in TARGETS:
        if name in rates:
            ratio, used = ratio_of(rates, name, other), ratio_of(by_processor, name, other)
            word = "held  " if ratio.median >= least else "MISSED"
            print(f"{word} {least} x {other}: {ratio}, by processor time {used}: {name}")


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table and one line of JSON."""
    parser = argparse.ArgumentParser(
        prog="bench verify", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--bootstrap", help="brokers; else a cluster is started, unless one is up")
    parser.add_argument("--backend", default="auto", choices=("auto", "compose", "process"))
    parser.add_argument("--records", type=int, default=3_600_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lanes", type=int, default=1, help="lanes that take turns in every partition")
    parser.add_argument("--topic", help="a topic that a former run wrote, with as many records and lanes")
    parser.add_argument("--only", action="append", default=[], help="a way to measure beside the plain ones")
    parser.add_argument("--master", default=DEFAULT_MASTER)
    parser.add_argument("--heap", default="2g", help="the driver's heap")
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
    """Write the topic unless it is there, let the ways take turns, and tell."""
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
    rates, by_processor = take_turns(chosen, given.rounds)
    spark.stop()
    count, java = consumer_performance(bootstrap, topic, given.records, print)
    print(f"{java / 1e6:6.2f} M rows/s  {count:>11,}  {JAVA}")
    tell(rates, by_processor)
    print(json.dumps({"topic": topic, "rates": rates, JAVA: java}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
