"""Benchmark of an application under test: the search for tokens, and a run with a JVM application."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import psutil

from harness.base.errors import HarnessError
from harness.cli.options import backend_option, log, state_option
from harness.cluster.cluster import Cluster
from harness.cluster.state_directory import BackendChoice
from harness.evidence.observation import Window
from harness.evidence.token import token_of
from harness.report.text_format import format_table
from harness.witness.spark.frozen_offsets import freeze_ends
from harness.witness.spark.spark_session import start_session
from tools.bench.command import (
    benchmark,
    cluster_up,
    json_option,
    keep_option,
    number_option,
    records_option,
    rounds_option,
)
from tools.bench.figure import Figure, Part, show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EOS: Final = Path(sys.executable).with_name("eos")
RUN: Final = "bench001"
PARTITIONS: Final = 4
BURST: Final = 20_000
EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "java" / "invoices.toml"
ENOUGH: Final = 0.7
"""Target: rate of the search for tokens, as a share of the rate of Spark's bare count."""


STEADY, DRAIN, VERIFY = ('"name":"steady"', '"name":"drain"', '"name":"verify"')
INJECTED: Final = '"event":"injected"'
KINDS: Final = {
    "harness.clients": "the producer of the inputs",
    "harness.app.keeper": "the keepers of the instances",
    "harness.tap.server": "the wire tap",
    "toxiproxy": "Toxiproxy",
    "spark": "Spark's stream",
}
"""Kinds of processes by a part of their command. The others are nodes, shells and the application."""
OWN: Final = ("the run itself", "the keepers of the instances")
_FILLER: Final = '"currency":"EUR","lines":[{"article":"4711","count":2},{"article":"4712","count":1}]'


def write_outputs(bootstrap: str, topic: str, records: int, keys: int) -> None:
    """Write outputs of an application: JSON with a token each; the keys take turns within a partition."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.num.messages": 10_000,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
        }
    )
    lanes = [(lane, token_of(RUN, 1, lane, 0)[:-12]) for lane in range(keys)]
    for first in range(0, records, BURST):
        for partition in range(PARTITIONS):
            own = lanes[partition::PARTITIONS]
            start, end = first // keys, (first + BURST) // keys
            values = [
                {"value": f'{{"order":"{head}{seq:012d}","customer":{lane},"total":{seq % 500}.5,{_FILLER}}}'}
                for seq in range(start, end)
                for lane, head in own
            ]
            taken = producer.produce_batch(topic, values, partition=partition)
            assert taken == len(values), "the queue of the client is too small"
            producer.poll(0)
        if first % (10 * BURST) == 0:
            producer.flush(120)
    assert not producer.flush(300)


def interleave(readers: dict[str, Callable[[], int]], rounds: int, records: int) -> dict[str, list[float]]:
    """Return the records per second of each reader in each round. A first round does not count."""
    rates: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(rounds + 1):
        for name, reader in readers.items():
            start = time.perf_counter()
            count = reader()
            rate = count / (time.perf_counter() - start)
            assert count == records, f"{name} read {count} of {records} records"
            if number:
                rates[name].append(rate)
                log(f"{rate / 1e6:6.2f} M records/s  {name}")
    return rates


def readers_of(spark: SparkSession, bootstrap: str, windows: list[Window]) -> dict[str, Callable[[], int]]:
    """Return the bare count and the search for tokens. Each returns the number of records."""
    from spark_jobs import batch_job
    from spark_jobs.kafka_source import KafkaSource, read_ranges
    from spark_jobs.scan_pass import Wanted

    bare = KafkaSource(bootstrap)
    slots = {window.topic: 1 for window in windows}
    tokens = KafkaSource(bootstrap, "token", {}, RUN, slots)
    return {
        "bare count": read_ranges(spark, bare, windows).frame.count,
        "search for tokens": read_ranges(spark, tokens, windows).frame.count,
        "search and bit words": lambda: batch_job.main(spark, tokens, windows, Wanted(RUN)).meta.records,
    }


def measure_search(cluster: Cluster, records: int, rounds: int, keys: int, heap: str) -> Part:
    """Measure the search for tokens against a bare count, and count the outputs of each input."""
    from spark_jobs.kafka_source import KafkaSource, count_outputs

    bootstrap, topic = cluster.bootstrap("DIRECT"), f"bench-{uuid.uuid4().hex[:8]}"
    start = time.perf_counter()
    write_outputs(bootstrap, topic, records, keys)
    log(f"wrote {records:,} outputs in {time.perf_counter() - start:.0f} s")
    windows = freeze_ends(bootstrap, [topic]).windows
    spark = start_session("bench", log=log, overrides={"spark.driver.memory": heap})
    try:
        rates = interleave(readers_of(spark, bootstrap, windows), rounds, records)
        start = time.perf_counter()
        counted = count_outputs(spark, KafkaSource(bootstrap, "token", {}, RUN, {topic: 1}), windows)
        assert int(counted["n"].sum()) == records, "the outputs of each input were not counted"
        took = time.perf_counter() - start
    finally:
        spark.stop()
        cluster.delete_topics([topic])
    return _search_part(rates, took, f"outputs of each of {records:,} inputs counted, heap {heap}")


def _search_part(rates: dict[str, list[float]], took: float, counted: str) -> Part:
    base, *others = rates
    least = {others[0]: ENOUGH}
    figures = [
        Figure(
            f"{name}, compared with Spark's {base}",
            "",
            [a / b for a, b in zip(rates[name], rates[base], strict=True)],
            least=least.get(name),
        )
        for name in others
    ]
    rows = [(name, f"{statistics.median(of_reader) / 1e6:.2f}") for name, of_reader in rates.items()]
    lines = format_table(rows, ("reader", "M records/s"), right=(1,))
    return Part(lines, [*figures, Figure(counted, "s", [took])])


class Watched(NamedTuple):
    """What was seen of a run in its own process: seconds since its command was started."""

    first_fault: float
    steady: float
    drain: float
    verify: float
    end: float
    used: dict[str, float]
    """Share of a core that each kind of process used from the calm phase to the drain."""


def watch_run(command: list[str], runs: Path, state: Path) -> Watched:
    """Run `eos run` as a user does, and watch its events and its processes."""
    start, times, used = time.perf_counter(), dict[str, float](), list[dict[str, float]]()
    process = psutil.Popen(command, stdout=sys.stderr)
    while process.poll() is None:
        for text in _seen(runs):
            if text not in times:
                times[text] = time.perf_counter() - start
                if text in (STEADY, DRAIN):
                    used.append(processor_times(process, state))
        time.sleep(0.05)  # the resolution of the measurement
    end = time.perf_counter() - start
    if process.returncode != 0:
        raise HarnessError(f"eos run ended with exit code {process.returncode}", "read its output")
    spent = times[DRAIN] - times[STEADY]
    shares = {kind: (used[1][kind] - used[0].get(kind, 0)) / spent for kind in used[1]}
    return Watched(times[INJECTED], times[STEADY], times[DRAIN], times[VERIFY], end, shares)


def _seen(runs: Path) -> list[str]:
    text = "".join(file.read_text() for file in runs.glob("*/*/events.jsonl"))
    return [mark for mark in (STEADY, INJECTED, DRAIN, VERIFY) if mark in text]


def processor_times(process: psutil.Process, state: Path) -> dict[str, float]:
    """Return the processor time of the processes of the harness, by kind."""
    found: dict[str, float] = {}
    own = {process.pid, *(child.pid for child in process.children(recursive=True))}
    for member in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            text = " ".join(member.cmdline())
            if member.pid not in own and str(state) not in text:
                continue
            kinds = [kind for part, kind in KINDS.items() if part in text]
            kind = "the run itself" if member.pid == process.pid else next(iter(kinds), "")
            times = member.cpu_times()
            if kind:
                found[kind] = found.get(kind, 0) + times.user + times.system
    return found


def measure_run(state: Path, seconds: float) -> Part:
    """Run the Java example on a cluster that is up, and return the figures of the run."""
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as runs:
        options = ["--seed", "1", "--duration", f"{seconds:g}s", "--state", str(state), "--runs", runs]
        seen = watch_run([str(EOS), "run", str(EXAMPLE), *options, "--keep", "-q"], Path(runs), state)
    rows = [(kind, f"{share:.1%}") for kind, share in sorted(seen.used.items())]
    own = sum(share for kind, share in seen.used.items() if kind in OWN)
    return Part(
        format_table(rows, ("processor time while the application runs", "of a core")),
        [
            Figure("from `eos run` to the first fault", "s", [seen.first_fault], most=20),
            Figure(f"processor time of {' and '.join(OWN)}", "% of a core", [own * 100], most=10),
            Figure(
                "from the end of the drain to the end of the command", "s", [seen.end - seen.verify], most=20
            ),
        ],
    )


@benchmark("app", "--records 2000000 --rounds 3")
@records_option(10_000_000, "Outputs of the topic in which tokens are searched.")
@rounds_option(3)
@number_option("--keys", 20, "Keys of the inputs, which take turns in the topic.")
@click.option("--heap", metavar="SIZE", default="2g", show_default=True, help="Heap of the Spark driver.")
@click.option("--only", type=click.Choice(["search", "run"]), help="Measure only this part.")
@backend_option
@keep_option
@state_option
@json_option
def main(
    backend: BackendChoice,
    state_path: Path | None,
    *,
    keep: bool,
    only: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure the search for tokens in outputs, and a run with a JVM application.

    The first part writes a topic of outputs, each a JSON object of about 190 bytes with a token. Then Spark
    reads it in interleaved runs: a bare count, the search for tokens, and the search with bit words. Then
    Spark counts the outputs of each input. The second part runs the Java example for a minute.
    """
    with cluster_up(backend, state_path, "load" if only == "search" else "quick", keep=keep) as cluster:
        parts = [measure_search(cluster, **options)] if only != "run" else []
        if only != "search":
            parts.append(measure_run(cluster.state.path, 60))
    show(parts, as_json=as_json)
    sys.exit(0 if all(figure.held for part in parts for figure in part.figures) else 1)


if __name__ == "__main__":
    main()
