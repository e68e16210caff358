"""Benchmark of the verification against plain readers of the same topic."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import click

from harness.cli.options import backend_option, log, state_option
from harness.cluster.state_directory import BackendChoice
from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.checkers.verdict import judge
from harness.evidence.ledger import Ledger
from harness.evidence.observation import Window
from harness.evidence.record import LaneEncoder
from harness.report.text_format import format_table
from harness.witness.spark.frozen_offsets import freeze_ends
from harness.witness.spark.spark_session import start_session
from tools.bench.baseline_readers import consumer_performance, cpu_seconds, two_processes
from tools.bench.command import (
    benchmark,
    cluster_up,
    json_option,
    keep_option,
    number_option,
    records_option,
    rounds_option,
    spark_options,
)
from tools.bench.figure import Figure, Part, show
from tools.bench.synthetic_topic import RUN, Plan, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON: Final = "confluent-kafka, two processes"
BARE: Final = "Spark, bare count"
COUNTS: Final = "Spark, words, from its own source"
OWN: Final = "Spark, words, with a consumer in the tasks"
FETCHED: Final = "Spark, words, with fetch requests in the tasks"
FINDINGS: Final = "Spark, all findings"
JAVA: Final = "Kafka's ConsumerPerformance"
BASELINES: Final = (PYTHON, BARE, JAVA)

Rates = dict[str, list[float]]
Reader = Callable[[], int | tuple[int, float]]

TARGETS: Final = (
    (COUNTS, BARE, 0.9),
    (FINDINGS, BARE, 0.9),
    (COUNTS, PYTHON, 2.0),
    (FINDINGS, PYTHON, 2.0),
    (OWN, JAVA, 0.9),
    (FETCHED, JAVA, 2.0),
)
"""Each target is a reader, its baseline, and the minimum ratio of the reader's rate to the baseline's rate.
"""


def readers(spark: SparkSession, bootstrap: str, windows: list[Window], ledger: Ledger) -> dict[str, Reader]:
    """Return the readers by name. Each reads the whole topic once and returns the number of records."""
    from harness.witness.spark.topic_verification import WITH_LEDGER, frames_of, own_findings
    from spark_jobs import batch_job
    from spark_jobs.kafka_source import KafkaSource, read_ranges
    from spark_jobs.range_scan import OWN_READERS, collect, scan_ranges
    from spark_jobs.scan_pass import Wanted, scan_words

    source = KafkaSource(bootstrap)
    # The ledger of a plan contains no offsets that brokers returned, so there are none to compare.
    properties = [name for name in WITH_LEDGER if name != "offsets"]

    def bare() -> int:
        return read_ranges(spark, source, windows).frame.count()

    def words(*, with_runs: bool) -> int:
        log = read_ranges(spark, source, windows)
        return counted(collect(log, scan_words(Wanted(RUN, with_runs=with_runs))))

    def own_words(reader: Literal["fetches", "consumer"]) -> int:
        rows, reading = scan_ranges(
            spark, KafkaSource(bootstrap, reader=reader), windows, scan_words(Wanted(RUN))
        )
        assert reading.reader == OWN_READERS[reader][0], reading
        return counted(rows)

    def all_findings(*, twice: bool) -> int:
        observed = batch_job.main_with_rows(spark, source, windows, Wanted(RUN))
        judgement = judge(Evidence(ledger, [observed.observation], Expect(properties=properties)))
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
        OWN: lambda: own_words("consumer"),
        FETCHED: lambda: own_words("fetches"),
        "Spark, words and runs": lambda: words(with_runs=True),
        "Spark, the whole account": lambda: batch_job.main(spark, source, windows, Wanted(RUN)).meta.records,
        **with_ledger,
    }


def counted(rows: Any) -> int:
    """Return the number of records in the words of scan rows."""
    return sum(n for kind, n in zip(*(rows[c].to_pylist() for c in ("kind", "n")), strict=True) if kind == 0)


def pass_alone(records: int) -> float:
    """Return the records per second of the scan alone: on one core, from memory, without Spark and Kafka."""
    import numpy as np
    import pyarrow as pa

    from spark_jobs.scan_pass import Wanted, scan_words

    values = pa.array(LaneEncoder(RUN, 1, 0).batch(0, records, 7, "c"), pa.binary())
    window, offset = pa.array(np.zeros(records, np.int32)), pa.array(np.arange(records))
    batch_job = pa.RecordBatch.from_arrays([window, offset, values], names=["window", "offset", "value"])

    def once() -> int:
        batches = (batch_job.slice(at, 50_000) for at in range(0, records, 50_000))
        return int(sum(words.num_rows for words in scan_words(Wanted(RUN))(batches))) * 256

    return max(rate_of(once)[1] for _ in range(5))


def rate_of(reader: Reader) -> tuple[int, float]:
    """Run a reader; return its number of records, and records per second.

    A reader may measure its own rate, such as a program whose start does not count.
    """
    start = time.perf_counter()
    result = reader()
    if isinstance(result, tuple):
        return result
    return result, result / (time.perf_counter() - start)


def interleave_readers(chosen: dict[str, Reader], rounds: int) -> tuple[Rates, Rates]:
    """Return the rates of each reader per round, by wall time and by processor time.

    Processor time is that of the benchmark's processes. The readers are interleaved, so that other load on
    the machine affects all of them.
    """
    rates: Rates = {name: [] for name in chosen}
    by_processor: Rates = {name: [] for name in chosen}
    for number in range(rounds + 1):
        for name, reader in chosen.items():
            before = cpu_seconds()
            count, rate = rate_of(reader)
            used = cpu_seconds() - before
            if number:  # the first round is the warm-up and does not count
                rates[name].append(rate)
                by_processor[name].append(count / used)
                figures = (
                    f"{rate / 1e6:6.2f} M rows/s  {used / count * 1e6:5.2f} µs of processor time per row"
                )
                log(f"{figures}  {count:>11,}  {name}")
    return rates, by_processor


def ratios_of(rates: Rates, name: str, other: str) -> list[float]:
    """Return the ratio between two readers' rates in each round."""
    return [a / b for a, b in zip(rates[name], rates[other], strict=True)]


def format_rates(rates: Rates) -> list[str]:
    """Return the lines of a table of median rates with their ratios to the baselines."""
    head = ("M rows/s", "of the bare count", "of two processes", "of ConsumerPerformance", "reader")
    rows = [
        (
            f"{statistics.median(of_reader) / 1e6:.2f}",
            f"{statistics.median(ratios_of(rates, name, BARE)):.2f}",
            f"{statistics.median(ratios_of(rates, name, PYTHON)):.2f}",
            f"{statistics.median(ratios_of(rates, name, JAVA)):.2f}",
            name,
        )
        for name, of_reader in rates.items()
    ]
    return format_table(rows, head, right=(0, 1, 2, 3))


def figures_of(rates: Rates, by_processor: Rates) -> list[Figure]:
    """Return the figures that have a target, by wall time, each with the same ratio by processor time."""
    figures = []
    for name, base, least in TARGETS:
        if name in rates:
            wall, processor = (ratios_of(of, name, base) for of in (rates, by_processor))
            figures.append(Figure(f"{name}, compared with {base}", "", wall, least=least))
            figures.append(Figure("  the same by processor time", "", processor))
    return figures


@benchmark("verify", "--backend process --rounds 5")
@click.option("--bootstrap", metavar="HOST:PORT", help="Brokers to use instead of a cluster of the harness.")
@records_option(3_600_000, "Committed records of the topic.")
@rounds_option(3)
@number_option("--lanes", 1, "Lanes per partition; with 2 the records alternate and do not fold.")
@click.option(
    "--topic", metavar="NAME", help="Topic that an earlier run wrote with the same records and lanes."
)
@click.option(
    "--only", multiple=True, metavar="READER", help="Measure this reader and the baselines; repeatable."
)
@spark_options
@backend_option
@keep_option
@state_option
@json_option
def main(
    bootstrap: str | None, backend: BackendChoice, state_path: Path | None, *, keep: bool, **options: Any
) -> None:
    """Measure the verification against plain readers of the same topic.

    The command writes a topic of transactions, one in ten aborted, unless --topic names one. Then it measures
    several readers in interleaved runs: two processes with confluent-kafka, a bare count with Spark, the
    Spark scan alone with each of Spark's three readers, the Spark scan with all findings, and Kafka's
    ConsumerPerformance. The results are medians and quartiles of the ratios within a round, because seconds
    on a shared machine mean little. The command uses a cluster of the load profile, and starts one if none is
    up.
    """
    settings = Settings(**options)
    if not settings.as_json:
        click.echo(f"{pass_alone(2_000_000) / 1e6:6.2f} M rows/s  the scan alone, one core, from memory")
    if bootstrap is not None:
        measure(settings, bootstrap)
        return
    with cluster_up(backend, state_path, "load", keep=keep) as cluster:
        measure(settings, cluster.bootstrap("DIRECT"))


class Settings(NamedTuple):
    """The options of a measurement."""

    records: int
    rounds: int
    lanes: int
    topic: str | None
    only: tuple[str, ...]
    master: str
    heap: str
    as_json: bool


def measure(settings: Settings, bootstrap: str) -> None:
    """Write the topic unless an existing one is given, measure the readers, and print the results."""
    topic = settings.topic or f"bench-{uuid.uuid4().hex[:8]}"
    plan = Plan(topic, settings.records, settings.lanes)
    if settings.topic is None:
        start = time.perf_counter()
        writer = Writer(bootstrap, plan)
        for txn in range(len(plan.aborted)):
            writer.transaction(txn)
        log(f"wrote {topic} in {time.perf_counter() - start:.1f} s")
    windows = freeze_ends(bootstrap, [topic]).windows
    start = time.perf_counter()
    spark = start_session("bench", settings.master, log, {"spark.driver.memory": settings.heap})
    log(f"started the Spark session in {time.perf_counter() - start:.1f} s")
    chosen = {
        name: reader
        for name, reader in readers(spark, bootstrap, windows, plan.ledger()).items()
        if not settings.only or name in {*settings.only, *BASELINES}
    }
    chosen[JAVA] = lambda: consumer_performance(bootstrap, topic, settings.records, log)
    rates, by_processor = interleave_readers(chosen, settings.rounds)
    spark.stop()
    show([Part(format_rates(rates), figures_of(rates, by_processor))], as_json=settings.as_json)


if __name__ == "__main__":
    main()
