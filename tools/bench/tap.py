"""Benchmark of the wire tap."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click
import psutil

from harness.cli.options import backend_option, state_of, state_option
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.cluster.state_directory import BackendChoice, State
from harness.report.text_format import format_table
from harness.tap.tap_client import Tap, ensure_tap
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

_TOPIC = "bench-tap"
_VALUE = b"x" * 100
_PATHS = ("DIRECT", "PROXIED", "TAPPED", "TAPPED+log")


class _Round(NamedTuple):
    """Measurements of one round on one path to the brokers."""

    rate: float
    latencies: list[float]
    load_s: float
    singles_s: float


def _measure(cluster: Cluster, records: int, singles: int, rounds: int) -> Part:
    tap = ensure_tap(cluster)
    measured: dict[str, list[_Round]] = {path: [] for path in _PATHS}
    for number in range(rounds + 1):
        for path in _PATHS:
            one_round = _round(cluster, tap, path, records, singles)
            if number:  # the first round is the warm-up and does not count
                measured[path].append(one_round)
    summaries = {path: _summary(of_path, records, singles) for path, of_path in measured.items()}
    return Part(_table(summaries), _figures(measured, "TAPPED", "PROXIED"))


def _figures(measured: dict[str, list[_Round]], name: str, base: str) -> list[Figure]:
    """Return the ratios of the rounds over one path to the rounds over another path."""
    pairs = list(zip(measured[name], measured[base], strict=True))
    latency = [statistics.median(a.latencies) / statistics.median(b.latencies) for a, b in pairs]
    return [
        Figure(f"records a second, {name} compared with {base}", "", [a.rate / b.rate for a, b in pairs]),
        Figure(f"median latency, {name} compared with {base}", "", latency),
    ]


def _measure_internal(plain: Cluster, tapped: Cluster, records: int, singles: int, rounds: int) -> Part:
    """Measure DIRECT on a cluster without a tap between its brokers and on one with it, alternately."""
    taps = {
        "without": (plain, ensure_tap(plain)),
        "with": (tapped, ensure_tap(tapped, BrokerListener.INTERNAL)),
    }
    measured: dict[str, list[_Round]] = {name: [] for name in taps}
    for number in range(rounds + 1):
        for name, (cluster, tap) in taps.items():
            one_round = _round(cluster, tap, "DIRECT", records, singles)
            if number:  # the first round is the warm-up and does not count
                measured[name].append(one_round)
    processor = _summary(measured["with"], records, singles)["tap_processor_us_per_record"]
    line = f"tap between the brokers: {processor} µs of processor time a record"
    names = {"DIRECT with the tap": measured["with"], "DIRECT without it": measured["without"]}
    return Part([line], _figures(names, *names))


def _summary(rounds: list[_Round], records: int, singles: int) -> dict[str, float]:
    times = [ms for a_round in rounds for ms in a_round.latencies]
    return {
        "records_per_s": round(statistics.median(a_round.rate for a_round in rounds)),
        "latency_ms_median": round(statistics.median(times), 3),
        "latency_ms_p99": round(statistics.quantiles(times, n=100)[98], 3),
        "tap_processor_us_per_record": round(sum(r.load_s for r in rounds) / len(rounds) / records * 1e6, 3),
        "tap_processor_us_per_single": round(
            sum(r.singles_s for r in rounds) / len(rounds) / singles * 1e6, 1
        ),
    }


def _round(cluster: Cluster, tap: Tap, path: str, records: int, singles: int) -> _Round:
    with tempfile.TemporaryDirectory() as folder:
        if path == "TAPPED+log":
            tap.log_to(Path(folder))
        try:
            servers = cluster.bootstrap(path.removesuffix("+log"))
            before = _processor_s(tap)
            rate = _throughput(servers, records)
            between = _processor_s(tap)
            latencies = _latencies(servers, singles)
            return _Round(rate, latencies, between - before, _processor_s(tap) - between)
        finally:
            tap.stop_log()


def _processor_s(tap: Tap) -> float:
    """Return the processor time of the tap's process, which other load on the machine does not change."""
    times = psutil.Process(tap.status().pid).cpu_times()
    return float(times.user + times.system)


def _producer(servers: str, linger_ms: int) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": 1_000_000,
            "client.id": _TOPIC,
        }
    )


def _throughput(servers: str, records: int) -> float:
    producer = _producer(servers, 5)
    _single(producer)
    start = time.monotonic()
    for number in range(records):
        producer.produce(_TOPIC, _VALUE, partition=number % 3)
    if left := producer.flush(120):
        raise TimeoutError(f"{left} of {records} records were not acknowledged in 120 s")
    rate = records / (time.monotonic() - start)
    producer.close()
    return rate


def _latencies(servers: str, singles: int) -> list[float]:
    producer = _producer(servers, 0)
    for partition in range(3):
        _single(producer, partition)
    latencies = [_single(producer, number % 3) for number in range(singles)]
    producer.close()
    return latencies


def _single(producer: Any, partition: int = 0) -> float:
    start = time.monotonic()
    producer.produce(_TOPIC, _VALUE, partition=partition)
    if producer.flush(30):
        raise TimeoutError("one record was not acknowledged in 30 s")
    return (time.monotonic() - start) * 1000


def _table(figures: dict[str, Any]) -> list[str]:
    speed = ("path", "records/s", "of DIRECT", "of PROXIED", "median ms", "- DIRECT", "- PROXIED", "p99 ms")
    head = (*speed, "tap µs/record", "tap µs/single")
    direct, proxied = figures["DIRECT"], figures["PROXIED"]
    rows = []
    for path, figure in figures.items():
        rate, median = figure["records_per_s"], figure["latency_ms_median"]
        rows.append(
            (
                path,
                f"{rate:,}",
                f"{rate / direct['records_per_s']:.2f}",
                f"{rate / proxied['records_per_s']:.2f}",
                f"{median:.2f}",
                f"{median - direct['latency_ms_median']:.2f}",
                f"{median - proxied['latency_ms_median']:.2f}",
                f"{figure['latency_ms_p99']:.2f}",
                f"{figure['tap_processor_us_per_record']:.2f}",
                f"{figure['tap_processor_us_per_single']:.1f}",
            )
        )
    return format_table(rows, head, right=range(1, len(head)))


@benchmark("tap", "--state DIR")
@records_option(200_000, "Records for the throughput of one round.")
@number_option("--singles", 400, "Records for the latency of one round.")
@rounds_option(5)
@backend_option
@click.option("--internal-tap", is_flag=True, help="Measure a tap between the brokers instead.")
@keep_option
@state_option
@json_option
def main(
    records: int,
    singles: int,
    rounds: int,
    backend: BackendChoice,
    state_path: Path | None,
    *,
    internal_tap: bool,
    keep: bool,
    as_json: bool,
) -> None:
    """Measure the cost of the wire tap, compared with DIRECT and with Toxiproxy alone.

    There are four paths to the same brokers: DIRECT, PROXIED (Toxiproxy), TAPPED (tap and Toxiproxy) and
    TAPPED with a frame log. Throughput is measured with one idempotent producer, latency with single records.
    Both are measured up to the acknowledgement. The rounds alternate between the paths; the results are
    medians.

    With --internal-tap, measure DIRECT on two clusters alternately: one without a tap between its brokers,
    and one with it. Each pair of rounds gives one ratio. The second cluster's state directory has the suffix
    `-internal`.
    """
    with ExitStack() as stack:

        def started(state: State, *, tap: bool) -> Cluster:
            cluster = stack.enter_context(
                cluster_up(backend, state.path, "load", keep=keep, internal_tap=tap)
            )
            cluster.create_topic(_TOPIC, 3)
            stack.callback(cluster.delete_topics, [_TOPIC])
            return cluster

        state = state_of(state_path)
        cluster = started(state, tap=False)
        if internal_tap:
            second = started(State(state.path.with_name(f"{state.path.name}-internal")), tap=True)
            part = _measure_internal(cluster, second, records, singles, rounds)
        else:
            part = _measure(cluster, records, singles, rounds)
    show([part], as_json=as_json)


if __name__ == "__main__":
    main()
