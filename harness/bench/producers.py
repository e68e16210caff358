"""What a producer's settings cost, and what the harness's own bookkeeping costs: `eos bench producers`.

Three kinds of producer send the same records to the same topic over DIRECT, in turns, and so do the harness's
client and a bare loop. Told is the median of the rounds' ratios with the least and the greatest: on a machine
that others use too, a rate says little and a ratio of neighbours much.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer

from harness.bench import bookkeeping
from harness.bench.bookkeeping import LIMIT_S, PARTITIONS, nothing
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, Listener, node_name
from harness.workload.settings import PRODUCER, Value, settings

SIZES: Final = (100, 1024)
BURST: Final = 500
MOST_WAITING: Final = 20_000
"""Records that wait in the client: enough for full batches, too few for a request to be given up."""
BATCH: Final = 100
HEADER_SHARE: Final = 8 + 2 + 4
"""Bytes of a batch's header that hold producer id, epoch and base sequence, used or not."""


class Kind(NamedTuple):
    """A producer of the comparison."""

    name: str
    settings: dict[str, Value]


KINDS: Final = (
    Kind("acks=1", {"acks": "1", "enable.idempotence": False}),
    Kind("acks=all", {"acks": "all", "enable.idempotence": False}),
    Kind("acks=all, idempotent", {"acks": "all", "enable.idempotence": True}),
)
BASE: Final = 1
"""The kind that the others are compared with: what idempotence adds is seen against acks=all."""


def measure(cluster: Cluster, records: int, rounds: int) -> Iterator[str]:
    """Measure everything, a line for each result."""
    for size in SIZES:
        # The same bytes for each size: so many records of the smallest.
        yield from _compare(cluster, size, max(BURST, records * SIZES[0] // size), rounds)
    yield from _batch_bytes(cluster)
    yield "the harness's identity and history, against the same loop with an empty on_delivery:"
    yield from (f"  {line}" for line in bookkeeping.measure(cluster, records, rounds))


def _compare(cluster: Cluster, size: int, records: int, rounds: int) -> Iterator[str]:
    topic = f"bench-{time.time_ns():x}"
    cluster.create_topic(topic, PARTITIONS)
    rates: list[list[float]] = []
    try:
        for number in range(rounds + 1):
            # Each round begins with another kind, so that none always meets the same neighbour.
            turn = [(number + i) % len(KINDS) for i in range(len(KINDS))]
            found = {i: _rate(cluster, topic, KINDS[i], size, records) for i in turn}
            if number:  # the first round warms the brokers up
                rates.append([found[i] for i in range(len(KINDS))])
    finally:
        cluster.delete_topics([topic])
    yield f"{records} records of {size} bytes, {rounds} rounds, over DIRECT:"
    for i, kind in enumerate(KINDS):
        ratios = [each[i] / each[BASE] for each in rates]
        yield (
            f"  {kind.name:22}{statistics.median(each[i] for each in rates):11,.0f} records/s   "
            f"{statistics.median(ratios):.2f} of {KINDS[BASE].name} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def _producer(cluster: Cluster, kind: Kind, **changes: Value) -> Producer:
    config: dict[str, Any] = {
        **settings(PRODUCER, **changes), "bootstrap.servers": cluster.bootstrap(Listener.DIRECT),
        # The same for all: without idempotence a million may be in flight, and that would be compared too.
        "max.in.flight.requests.per.connection": 5, **kind.settings,
    }  # fmt: skip
    return Producer(config)


def _rate(cluster: Cluster, topic: str, kind: Kind, size: int, records: int) -> float:
    """Records a second from the first call to the last acknowledgement; a failed record is an error."""
    producer = _producer(cluster, kind)
    producer.produce(topic, b"warm", partition=0, on_delivery=nothing)
    producer.flush(LIMIT_S)  # connected, and an idempotent one has its id
    value, produce = b"x" * size, producer.produce
    start = time.perf_counter()
    for burst in range(records // BURST):
        while len(producer) > MOST_WAITING:
            producer.poll(0.01)
        for _ in range(BURST):
            produce(topic, value, partition=burst % PARTITIONS, on_delivery=nothing)
        producer.poll(0)
    if left := producer.flush(LIMIT_S):
        raise TimeoutError(f"{left} of {records} records were not acknowledged in {LIMIT_S:g} s")
    rate = records // BURST * BURST / (time.perf_counter() - start)
    producer.close()
    return rate


def _batch_bytes(cluster: Cluster) -> Iterator[str]:
    """The same batch in the log's files, from a producer without and from one with idempotence."""
    found = [_stored(cluster, kind) for kind in KINDS[BASE:]]
    yield (
        f"a batch of {BATCH} records of {SIZES[0]} bytes takes {found[0]} bytes in the log, {found[1]} with "
        f"idempotence: {found[1] - found[0]:+d} "
        f"({HEADER_SHARE} bytes of every header hold the fields, used or not)"
    )


def _stored(cluster: Cluster, kind: Kind) -> int:
    topic = f"bench-{time.time_ns():x}"
    cluster.create_topic(topic, 1)
    try:
        producer = _producer(cluster, kind, linger_ms=1000)
        for _ in range(BATCH):
            producer.produce(topic, b"x" * SIZES[0], partition=0, on_delivery=nothing)
        producer.flush(LIMIT_S)
        producer.close()
        with tempfile.TemporaryDirectory(prefix="eos-segments-") as scratch:
            files = cluster.node(node_name(BROKER_IDS[0])).segments(f"{topic}-0", Path(scratch))
            return sum(file.stat().st_size for file in files)
    finally:
        cluster.delete_topics([topic])
