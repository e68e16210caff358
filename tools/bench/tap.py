"""Measure the cost of the wire tap, compared with no proxy and with Toxiproxy alone.

    python -m tools.bench.tap --state DIR

Uses the cluster that is up. Three ways to the same brokers and topic: DIRECT, PROXIED (Toxiproxy), TAPPED
(tap and Toxiproxy), the last without and with a frame log. Throughput is that of one idempotent producer,
latency that of one record at a time, both to the acknowledgement. The ways are interleaved, and the medians
of the rounds are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from harness.cluster import lifecycle
from harness.cluster.cluster import Cluster
from harness.cluster.state_directory import State, default_state
from harness.tap.tap_client import Tap, ensure_tap

_TOPIC = "bench-tap"
_VALUE = b"x" * 100
_WAYS = ("DIRECT", "PROXIED", "TAPPED", "TAPPED+log")


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description="Measure what the wire tap costs.")
    parser.add_argument("--state", type=Path, default=default_state().resolve())
    parser.add_argument("--records", type=int, default=200_000, help="for the throughput of one round")
    parser.add_argument("--singles", type=int, default=400, help="for the latency of one round")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    cluster = lifecycle.attach(State(arguments.state))
    cluster.create_topic(_TOPIC, 3)
    try:
        measured = _measure(cluster, arguments.records, arguments.singles, arguments.rounds)
    finally:
        cluster.delete_topics([_TOPIC])
    print(json.dumps(measured, indent=1))
    _table(measured)


class _Round(NamedTuple):
    """One round of one way."""

    rate: float
    latencies: list[float]
    load_s: float
    singles_s: float


def _measure(cluster: Cluster, records: int, singles: int, rounds: int) -> dict[str, Any]:
    tap = ensure_tap(cluster)
    found: dict[str, list[_Round]] = {way: [] for way in _WAYS}
    for number in range(rounds + 1):
        for way in _WAYS:
            each = _round(cluster, tap, way, records, singles)
            if number:  # the first round warms the brokers and is not counted
                found[way].append(each)
    return {way: _summary(each, records, singles) for way, each in found.items()}


def _summary(rounds: list[_Round], records: int, singles: int) -> dict[str, float]:
    times = [ms for each in rounds for ms in each.latencies]
    return {
        "records_per_s": round(statistics.median(each.rate for each in rounds)),
        "latency_ms_median": round(statistics.median(times), 3),
        "latency_ms_p99": round(statistics.quantiles(times, n=100)[98], 3),
        "tap_processor_us_per_record": round(sum(r.load_s for r in rounds) / len(rounds) / records * 1e6, 3),
        "tap_processor_us_per_single": round(
            sum(r.singles_s for r in rounds) / len(rounds) / singles * 1e6, 1
        ),
    }


def _round(cluster: Cluster, tap: Tap, way: str, records: int, singles: int) -> _Round:
    with tempfile.TemporaryDirectory() as folder:
        if way == "TAPPED+log":
            tap.log_to(Path(folder))
        try:
            servers = cluster.bootstrap(way.removesuffix("+log"))
            before = _processor_s(tap)
            rate = _throughput(servers, records)
            between = _processor_s(tap)
            latencies = _latencies(servers, singles)
            return _Round(rate, latencies, between - before, _processor_s(tap) - between)
        finally:
            tap.stop_log()


def _processor_s(tap: Tap) -> float:
    """Return the processor time of the tap, which other load on the machine does not change."""
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
    found = [_single(producer, number % 3) for number in range(singles)]
    producer.close()
    return found


def _single(producer: Any, partition: int = 0) -> float:
    start = time.monotonic()
    producer.produce(_TOPIC, _VALUE, partition=partition)
    if producer.flush(30):
        raise TimeoutError("one record was not acknowledged in 30 s")
    return (time.monotonic() - start) * 1000


def _table(measured: dict[str, Any]) -> None:
    print(f"\n{'way':12}{'records/s':>11}{'of DIRECT':>11}{'of PROXIED':>12}{'median ms':>11}", end="")
    print(f"{'+ DIRECT':>10}{'+ PROXIED':>11}{'p99 ms':>9}")
    direct, proxied = measured["DIRECT"], measured["PROXIED"]
    for way, found in measured.items():
        rate, median = found["records_per_s"], found["latency_ms_median"]
        print(
            f"{way:12}{rate:11,}{rate / direct['records_per_s']:11.2f}{rate / proxied['records_per_s']:12.2f}"
            f"{median:11.2f}{median - direct['latency_ms_median']:10.2f}"
            f"{median - proxied['latency_ms_median']:11.2f}{found['latency_ms_p99']:9.2f}"
        )


if __name__ == "__main__":
    main()
