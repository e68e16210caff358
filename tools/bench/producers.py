"""Benchmark of the cost of producer guarantees, and of the harness's own bookkeeping.

All records are sent over the DIRECT listener. Each measured run is interleaved with runs of its baseline. The
baseline of idempotence and of acks=1 is acks=all. The baseline of transactions is the idempotent producer.
The baseline of read_committed is read_uncommitted. The baseline of the harness's clients is a bare loop.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from confluent_kafka import Producer

from harness.cli.options import backend_option, state_option
from harness.clients.client_settings import PRODUCER, Value, settings, transaction_settings
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, BrokerListener, node_name
from harness.cluster.state_directory import BackendChoice
from tools.bench import bookkeeping, latency
from tools.bench.bookkeeping import LIMIT_S, PARTITIONS, nothing
from tools.bench.command import (
    benchmark,
    cluster_up,
    json_option,
    keep_option,
    records_option,
    rounds_option,
    seconds_option,
)
from tools.bench.figure import Figure, Part, show
from tools.bench.interleaved_runs import Cost, Length, format_rates, interleave, records_per_second, timed
from tools.bench.scratch_topic import on_scratch_topics, scratch_topic

SIZES: Final = (100, 1024)
TRANSACTIONS: Final = (10, 100, 1000, 10_000)
"""The measured numbers of records per transaction."""
REINIT_TRANSACTIONS: Final = (100, 10_000)
"""The measured numbers of records per transaction, if each transaction has a new producer."""
BURST: Final = 500
MOST_WAITING: Final = 20_000
"""Maximum number of records in the client's queue. It is large enough for full batches, and small enough to
avoid delivery time-outs.
"""
BATCH: Final = 100
HEADER_SHARE: Final = 8 + 2 + 4
"""Number of bytes for producer id, epoch and base sequence. Every batch header contains these fields, even
if they are not used.
"""
IN_FLIGHT: Final[dict[str, Value]] = {"max.in.flight.requests.per.connection": 5}
"""This limit is the same for all producers. Without idempotence, librdkafka's default would be a million
requests in flight.
"""


class Kind(NamedTuple):
    """One of the compared producers: its name and its settings."""

    name: str
    settings: dict[str, Value]


BASE: Final = Kind("acks=all", {"acks": "all", "enable.idempotence": False})
"""The producer that is the baseline for acks=1 and for idempotence."""
IDEMPOTENT: Final = Kind("acks=all, idempotent", {"acks": "all", "enable.idempotence": True})
KINDS: Final = (BASE, Kind("acks=1", {"acks": "1", "enable.idempotence": False}), IDEMPOTENT)


def _settings(cluster: Cluster, length: Length, rounds: int) -> Iterator[Part]:
    for size in SIZES:
        with_topic = partial(_rate, cluster, size=size)
        runs = [partial(with_topic, kind=kind) for kind in KINDS]
        head = f"{size} bytes per record"
        yield _compare(cluster, head, [kind.name for kind in KINDS], runs, length=length, rounds=rounds)
    yield Part([_batch_bytes(cluster)])


def _transactions(cluster: Cluster, length: Length, rounds: int) -> Iterator[Part]:
    runs = [partial(_rate, cluster, size=SIZES[0], kind=IDEMPOTENT)]
    runs += [partial(_transactional, cluster, size=SIZES[0], records=records) for records in TRANSACTIONS]
    names = ["idempotent, no transaction", *(f"{records:,} a transaction" for records in TRANSACTIONS)]
    yield _compare(
        cluster, f"transactions, {SIZES[0]} bytes per record", names, runs, length=length, rounds=rounds
    )


def _reinit(cluster: Cluster, length: Length, rounds: int) -> Iterator[Part]:
    """Compare one producer with a new one for each transaction, the cure of every late request."""
    for records in REINIT_TRANSACTIONS:
        head = f"transactions of {records:,} records, {SIZES[0]} bytes per record"
        run = partial(_transactional, cluster, size=SIZES[0], records=records)
        names = ["one producer", "a new producer per transaction"]
        yield _compare(cluster, head, names, [run, partial(run, renew=True)], length=length, rounds=rounds)


PARTS: Final[dict[str, Callable[[Cluster, Length, int], Iterator[Part]]]] = {
    "settings": _settings,
    "transactions": _transactions,
    "reinit": _reinit,
    "latency": latency.measure,
    "bookkeeping": bookkeeping.measure,
}
"""The parts of the benchmark. Each key is a value of the option --part; each value is the function that
measures the part.
"""


def measure(
    cluster: Cluster, length: Length, rounds: int, parts: Sequence[str] = tuple(PARTS)
) -> Iterator[Part]:
    """Measure the given parts of the benchmark; yield each comparison as soon as it is measured."""
    head = (
        f"over DIRECT, {rounds} interleaved rounds, at least {length.seconds:g} s and {length.records:,} "
        "records per run; medians and quartiles of the ratios of neighbouring runs"
    )
    yield Part([head])
    for part in parts:
        yield from PARTS[part](cluster, length, rounds)


def _compare(
    cluster: Cluster,
    head: str,
    names: Sequence[str],
    runs: Sequence[Callable[..., Cost]],
    *,
    length: Length,
    rounds: int,
) -> Part:
    """Compare the first run (the baseline) with each other run: records per second, and the ratios.

    Every run writes to a new topic.
    """
    base, *others = (on_scratch_topics(cluster, PARTITIONS, run) for run in runs)
    measured = interleave(base, others, length, rounds)
    figures = [
        Figure(
            f"{head}: {name}, compared with {names[0]}",
            "",
            [pair.ratio(records_per_second) for pair in pairs],
        )
        for name, pairs in zip(names[1:], measured[1:], strict=True)
    ]
    return Part([f"{head}:", *format_rates(names, measured, names[0])], figures)


def _producer(cluster: Cluster, kind: Kind, **changes: Value) -> Producer:
    config: dict[str, Any] = {
        **settings(PRODUCER, **changes),
        "bootstrap.servers": cluster.bootstrap(BrokerListener.DIRECT),
        **IN_FLIGHT,
        **kind.settings,
    }
    return Producer(config)


def _rate(cluster: Cluster, topic: str, length: Length, *, size: int, kind: Kind) -> Cost:
    """Send records to a topic with one of the compared producers, and return the cost of the run.

    The time runs from the first send to the last acknowledgement. Raise TimeoutError if an acknowledgement is
    missing.
    """
    producer = _producer(cluster, kind)
    producer.produce(topic, b"warm", partition=0, on_delivery=nothing)
    producer.flush(LIMIT_S)  # connect to the cluster and get a producer id before the measurement starts
    value, produce = b"x" * size, producer.produce

    def work() -> int:
        sent = 0
        for burst in length.bursts(BURST):
            while len(producer) > MOST_WAITING:
                producer.poll(0.01)
            for _ in range(BURST):
                produce(topic, value, partition=burst % PARTITIONS, on_delivery=nothing)
            producer.poll(0)
            sent += BURST
        if left := producer.flush(LIMIT_S):
            raise TimeoutError(f"{left} records were not acknowledged in {LIMIT_S:g} s")
        return sent

    cost = timed(work)
    producer.close()
    _await_replication(cluster, topic)
    return cost


def _await_replication(cluster: Cluster, topic: str) -> None:
    """Wait until the followers have all records.

    With acks=1, replication would otherwise continue during the next run and slow it.
    """
    producer = _producer(cluster, BASE)
    for partition in range(PARTITIONS):
        producer.produce(topic, b"last", partition=partition, on_delivery=nothing)
    producer.flush(LIMIT_S)
    producer.close()


def _transactional(
    cluster: Cluster, topic: str, length: Length, *, size: int, records: int, renew: bool = False
) -> Cost:
    """Write transactions of `records` records each over all partitions; return the cost of the run.

    The time ends when the last transaction is committed. With `renew`, each transaction has a new producer
    with the same transactional id.
    """
    config: dict[str, Any] = {
        **transaction_settings(f"{topic}-{records}", int(LIMIT_S * 1000), {}),
        **IN_FLIGHT,
        "bootstrap.servers": cluster.bootstrap(BrokerListener.DIRECT),
        "statistics.interval.ms": 1000,
    }
    producer = Producer(config)
    producer.init_transactions(LIMIT_S)
    value = b"x" * size

    def work() -> int:
        nonlocal producer
        sent = 0
        for _ in length._replace(records=records).bursts(records):
            if renew and sent:
                producer.close()
                producer = Producer(config)
                producer.init_transactions(LIMIT_S)
            producer.begin_transaction()
            produce = producer.produce
            for i in range(records):
                produce(topic, value, partition=i % PARTITIONS, on_delivery=nothing)
                if not i % BURST:
                    producer.poll(0)
            producer.commit_transaction(LIMIT_S)
            sent += records
        return sent

    cost = timed(work)
    producer.close()
    return cost


def _batch_bytes(cluster: Cluster) -> str:
    """Return a line that compares the bytes of one batch in the log, with and without idempotence."""
    plain, idempotent = (_stored_bytes(cluster, kind) for kind in (BASE, IDEMPOTENT))
    return (
        f"a batch of {BATCH} records of {SIZES[0]} bytes takes {plain} bytes in the log, {idempotent} with "
        f"idempotence: {idempotent - plain:+d} "
        f"({HEADER_SHARE} bytes of every header hold the fields, used or not)"
    )


def _stored_bytes(cluster: Cluster, kind: Kind) -> int:
    with scratch_topic(cluster, 1) as topic:
        producer = _producer(cluster, kind, linger_ms=1000)
        for _ in range(BATCH):
            producer.produce(topic, b"x" * SIZES[0], partition=0, on_delivery=nothing)
        producer.flush(LIMIT_S)
        producer.close()
        with tempfile.TemporaryDirectory(prefix="eos-segments-") as scratch:
            files = cluster.node(node_name(BROKER_IDS[0])).segments(f"{topic}-0", Path(scratch))
            return sum(file.stat().st_size for file in files)


@benchmark("producers", "--part transactions --rounds 5")
@records_option(10_000, "Minimum records per run.")
@seconds_option(2.0, "Minimum seconds per run; shorter runs are too noisy.")
@rounds_option(5, "Number of interleaved rounds.")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(list(PARTS)),
    help="Measure this part only; repeatable.  [default: all]",
)
@backend_option
@keep_option
@state_option
@json_option
def main(
    records: int,
    seconds: float,
    rounds: int,
    parts: tuple[str, ...],
    backend: BackendChoice,
    *,
    keep: bool,
    state_path: Path | None,
    as_json: bool,
) -> None:
    """Measure the cost of each producer guarantee, as ratios of neighbouring runs.

    `settings` compares acks=1, acks=all and idempotence, and the bytes per batch. `transactions` compares 10
    to 10,000 records per transaction with the idempotent producer. `latency` measures the additional delay of
    a read_committed reader while transactions are open. `bookkeeping` compares the harness's clients with a
    bare loop. The command uses a cluster of the load profile, and starts one if none is up.
    """
    with cluster_up(backend, state_path, "load", keep=keep) as cluster:
        measured = []
        for part in measure(cluster, Length(records, seconds), rounds, parts or tuple(PARTS)):
            measured.append(part)
            if not as_json:
                click.echo("\n".join(part.lines))
    if as_json:
        show(measured, as_json=True)


if __name__ == "__main__":
    main()
