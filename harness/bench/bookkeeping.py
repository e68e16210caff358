"""What identity and history cost a producer, beside the same loop without them.

Each round runs the bare loop and the harness's client one after the other, first one then the other first,
so that a machine that is busy in between burdens both alike. Told is the median of the rounds' ratios,
and the processor time of the sending thread, which no other process can lengthen.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from harness.cluster.cluster import Cluster
from harness.cluster.layout import Listener
from harness.history import HistoryWriter
from harness.record import COMMIT, LaneEncoder
from harness.workload.client import Stop
from harness.workload.idempotent import MOST_OPEN_BURSTS, BurstProducer
from harness.workload.progress import Progress
from harness.workload.settings import PRODUCER, settings, transaction_settings
from harness.workload.spec import IdempotentSpec, TransactionalSpec
from harness.workload.transactor import Transactor

RUN: Final = "bench001"
PARTITIONS: Final = 3
PAYLOAD: Final = b"x" * 100
BURST: Final = 500
TRANSACTION: Final = 100
LIMIT_S: Final = 60.0


class Cost(NamedTuple):
    """Seconds for one run: by the clock on the wall, and of the sending thread's processor time."""

    wall: float
    thread: float


def timed(work: Callable[[], object]) -> Cost:
    """How long the work took."""
    wall, thread = time.perf_counter(), time.thread_time()
    work()
    return Cost(time.perf_counter() - wall, time.thread_time() - thread)


def nothing(error: KafkaError | None, message: Message) -> None:
    """The empty delivery callback of the bare loop."""


def bare_idempotent(bootstrap: str, topic: str, records: int) -> Cost:
    """Send the records with an empty callback."""
    config: dict[str, Any] = {**settings(PRODUCER), "bootstrap.servers": bootstrap}
    producer = Producer(config)
    producer.list_topics(topic, LIMIT_S)

    def work() -> None:
        value = b"y" * 48 + PAYLOAD
        for burst in range(records // BURST):
            while len(producer) > MOST_OPEN_BURSTS * BURST:
                producer.poll(0.01)
            lane = burst % PARTITIONS
            for _ in range(BURST):
                _produce(producer, topic, value, lane)
            producer.poll(0)
        producer.flush(LIMIT_S)

    return timed(work)


def _produce(producer: Producer, topic: str, value: bytes, lane: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=lane, on_delivery=nothing)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def harness_idempotent(bootstrap: str, topic: str, records: int, folder: Path) -> Cost:
    """Send the records as the idempotent client does."""
    spec = IdempotentSpec(
        run=RUN, client="bench", number=1, bootstrap=bootstrap, history="", seconds=LIMIT_S,
        topic=topic, partitions=PARTITIONS,
    )  # fmt: skip
    with HistoryWriter(folder / "i.jsonl", run=RUN, client="bench", role="bench") as history:
        producer = BurstProducer(spec, topic, history, Progress(), idempotence=True)
        producer._producer.list_topics(topic, LIMIT_S)
        encoders = [LaneEncoder(RUN, 1, lane, PAYLOAD) for lane in range(PARTITIONS)]

        def work() -> None:
            for burst in range(records // BURST):
                while len(producer.open) > MOST_OPEN_BURSTS:
                    producer.serve(0.01)
                    producer.complete()
                lane = burst % PARTITIONS
                producer.send(lane, encoders[lane].batch(producer.next_of(lane), BURST))
                producer.serve(0)
                producer.complete()
            producer.flush(LIMIT_S)
            producer.complete(final=True)

        return timed(work)


def bare_transactional(bootstrap: str, topic: str, records: int) -> Cost:
    """Send the records in transactions of one hundred."""
    config: dict[str, Any] = {
        **transaction_settings(f"{topic}-bare", 20_000, {}), "bootstrap.servers": bootstrap,
        "error_cb": lambda _: None,
    }  # fmt: skip
    producer = Producer(config)
    producer.init_transactions(LIMIT_S)

    def work() -> None:
        value = b"y" * 48 + PAYLOAD
        for txn in range(records // TRANSACTION):
            producer.begin_transaction()
            for _ in range(TRANSACTION):
                producer.produce(topic, value, partition=txn % PARTITIONS)
            producer.flush(LIMIT_S)
            producer.commit_transaction(LIMIT_S)

    return timed(work)


def harness_transactional(bootstrap: str, topic: str, records: int, folder: Path) -> Cost:
    """Send the records as the transactional client does."""
    spec = TransactionalSpec(
        run=RUN, client="bench", number=2, bootstrap=bootstrap, history="", seconds=LIMIT_S,
        topic=topic, partitions=PARTITIONS, transactional_id=f"{topic}-harness",
    )  # fmt: skip
    with HistoryWriter(folder / "t.jsonl", run=RUN, client="bench", role="bench") as history:
        transactor = Transactor(spec, topic, history, Progress(), Stop(10 * LIMIT_S))
        transactor.settle()
        encoders = [LaneEncoder(RUN, 2, lane, PAYLOAD) for lane in range(PARTITIONS)]

        def work() -> None:
            for txn in range(records // TRANSACTION):
                transactor.begin()
                lane = txn % PARTITIONS
                first = transactor.next_of(lane)
                transactor.send(lane, encoders[lane].batch(first, TRANSACTION, transactor.txn, COMMIT))
                transactor.commit()

        cost = timed(work)
        transactor.close()
        return cost


def measure(cluster: Cluster, records: int, rounds: int) -> list[str]:
    """Run each harness client and its bare loop in turns; return a line for each kind."""
    topic = f"bench-{time.time_ns():x}"
    cluster.create_topic(topic, PARTITIONS)
    bootstrap, few = cluster.bootstrap(Listener.DIRECT), records // 20
    try:
        return [
            compare(
                "idempotent", records, rounds, lambda: bare_idempotent(bootstrap, topic, records),
                lambda folder: harness_idempotent(bootstrap, topic, records, folder),
            ),
            compare(
                f"transactional, {TRANSACTION} a transaction", few, rounds,
                lambda: bare_transactional(bootstrap, topic, few),
                lambda folder: harness_transactional(bootstrap, topic, few, folder),
            ),
        ]  # fmt: skip
    finally:
        cluster.delete_topics([topic])


def compare(
    name: str, records: int, rounds: int, bare: Callable[[], Cost], ours: Callable[[Path], Cost]
) -> str:
    """Run both in turns and say what the harness adds."""
    wall, thread, more, rates = [], [], [], []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            first = ours(Path(folder)) if number % 2 else None
            plain = bare()
            mine = first or ours(Path(folder))
        wall.append(mine.wall / plain.wall)
        more.append(mine.thread / plain.thread)
        thread.append((mine.thread - plain.thread) / records * 1e6)
        rates.append((records / plain.wall, records / mine.wall))
    plain_rate, our_rate = (statistics.median(one) for one in zip(*rates, strict=True))
    return (
        f"{name}: bare {plain_rate:,.0f} records/s, harness {our_rate:,.0f} records/s; "
        f"takes {statistics.median(wall):.2f} times as long ({min(wall):.2f} to {max(wall):.2f}), "
        f"{statistics.median(more):.2f} times the sending thread's processor time ({min(more):.2f} to "
        f"{max(more):.2f}), {statistics.median(thread):.2f} µs more a record"
    )
