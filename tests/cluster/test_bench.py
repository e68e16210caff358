"""Short runs of the benchmarks: each comparison prints a line, and an open transaction delays readers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from tools.bench import latency, producers
from tools.bench.interleaved_runs import Length
from tools.bench.latency import _Bench

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

SHORT = Length(records=1, seconds=0.2)


def test_every_part_prints_a_line_for_each_comparison(
    cluster: Cluster, evidence: Callable[..., None]
) -> None:
    lines = [line for part in producers.measure(cluster, SHORT, rounds=1) for line in part.lines]
    evidence(lines=lines)
    for name in (
        *(kind.name for kind in producers.KINDS),
        *(f"{records:,} a transaction" for records in producers.TRANSACTIONS),
        *(f"{ms} ms each" for ms in latency.OPEN_MS if ms),
        "none open",
        "idempotent: bare",
        "transactional, 100 a transaction: bare",
        "bytes in the log",
    ):
        assert any(name in line for line in lines), name


def test_a_reader_waits_for_the_open_transaction_before_a_record(
    cluster: Cluster, evidence: Callable[..., None]
) -> None:
    topic = "bench-latency"
    cluster.create_topic(topic, 1)
    try:
        with _Bench(cluster.bootstrap(BrokerListener.DIRECT), topic) as bench:
            free, held = bench.run(0, 1.0), bench.run(500, 3.0)
    finally:
        cluster.delete_topics([topic])
    evidence(free=max(free.added), held=max(held.added), longest=held.longest)
    assert held.longest >= 500
    # Each transaction stays open for 500 ms, and a reader gets later records only after its end. At least one
    # record was sent shortly after the beginning of a transaction, so it was delayed by most of the 500 ms.
    assert max(held.added) > 250
    assert 0 < len(held.added) <= len(held.plain)
