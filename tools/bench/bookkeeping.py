"""Benchmark of the cost of the harness's bookkeeping: an identity for each record, and a history.

The baseline is a bare loop, which sends records without identity and history. Runs of the bare loop and of
the harness's client alternate, so that other load on the machine affects both. The results are two ratios of
the client to the bare loop. One ratio compares the total time. The other compares the processor time of the
sending thread, which does not depend on other processes.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from harness.clients.client import Deadline
from harness.clients.client_settings import PRODUCER, settings, transaction_settings
from harness.clients.client_spec import IdempotentSpec, TransactionalSpec
from harness.clients.idempotent import MOST_OPEN_BURSTS, BurstProducer
from harness.clients.progress import ClientProgress
from harness.clients.transactor import Transactor
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.history import HistoryWriter
from harness.evidence.record import COMMIT, LaneEncoder
from tools.bench.figure import Figure, Part
from tools.bench.interleaved_runs import Cost, Length, Pair, Spread, interleave, records_per_second, timed
from tools.bench.scratch_topic import on_scratch_topics

RUN: Final = "bench001"
PARTITIONS: Final = 3
PAYLOAD: Final = b"x" * 100
BURST: Final = 500
TRANSACTION: Final = 100
LIMIT_S: Final = 60.0
MOST: Final = 1.1
"""Target: time with identity and history, as a share of the time without them."""


def nothing(error: KafkaError | None, message: Message) -> None:
    """Do nothing. This is the delivery callback of the bare loop."""


def bare_idempotent(bootstrap: str, topic: str, length: Length) -> Cost:
    """Send records with an idempotent producer and an empty delivery callback.

    Return the number of records and the time that they took.
    """
    config: dict[str, Any] = {**settings(PRODUCER), "bootstrap.servers": bootstrap}
    producer = Producer(config)
    producer.list_topics(topic, LIMIT_S)

    def work() -> int:
        value, sent = b"y" * 48 + PAYLOAD, 0
        for burst in length.bursts(BURST):
            while len(producer) > MOST_OPEN_BURSTS * BURST:
                producer.poll(0.01)
            lane = burst % PARTITIONS
            for _ in range(BURST):
                _produce(producer, topic, value, lane)
            producer.poll(0)
            sent += BURST
        producer.flush(LIMIT_S)
        return sent

    return timed(work)


def _produce(producer: Producer, topic: str, value: bytes, lane: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=lane, on_delivery=nothing)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def harness_idempotent(bootstrap: str, topic: str, length: Length, folder: Path) -> Cost:
    """Send records as the harness's idempotent client does, with identities and a history.

    Return the number of records and the time that they took.
    """
    spec = IdempotentSpec(
        run=RUN,
        client="bench",
        number=1,
        bootstrap=bootstrap,
        history="",
        seconds=LIMIT_S,
        topic=topic,
        partitions=PARTITIONS,
    )
    with HistoryWriter(folder / "i.jsonl", run=RUN, client="bench", role="bench") as history:
        producer = BurstProducer(spec, topic, history, ClientProgress(), idempotence=True)
        producer._producer.list_topics(topic, LIMIT_S)
        encoders = [LaneEncoder(RUN, 1, lane, PAYLOAD) for lane in range(PARTITIONS)]

        def work() -> int:
            sent = 0
            for burst in length.bursts(BURST):
                while len(producer.open) > MOST_OPEN_BURSTS:
                    producer.serve(0.01)
                    producer.complete()
                lane = burst % PARTITIONS
                producer.send(lane, encoders[lane].batch(producer.next_of(lane), BURST))
                producer.serve(0)
                producer.complete()
                sent += BURST
            producer.flush(LIMIT_S)
            producer.complete(final=True)
            return sent

        return timed(work)


def bare_transactional(bootstrap: str, topic: str, length: Length) -> Cost:
    """Send transactions of one hundred records each with a producer that keeps no history.

    Return the number of records and the time that they took.
    """
    config: dict[str, Any] = {
        **transaction_settings(f"{topic}-bare", 20_000, {}),
        "bootstrap.servers": bootstrap,
        "error_cb": lambda _: None,
    }
    producer = Producer(config)
    producer.init_transactions(LIMIT_S)

    def work() -> int:
        value, sent = b"y" * 48 + PAYLOAD, 0
        for txn in length.bursts(TRANSACTION):
            producer.begin_transaction()
            for _ in range(TRANSACTION):
                producer.produce(topic, value, partition=txn % PARTITIONS)
            producer.flush(LIMIT_S)
            producer.commit_transaction(LIMIT_S)
            sent += TRANSACTION
        return sent

    return timed(work)


def harness_transactional(bootstrap: str, topic: str, length: Length, folder: Path) -> Cost:
    """Send transactions as the harness's transactional client does, with identities and a history.

    Return the number of records and the time that they took.
    """
    spec = TransactionalSpec(
        run=RUN,
        client="bench",
        number=2,
        bootstrap=bootstrap,
        history="",
        seconds=LIMIT_S,
        topic=topic,
        partitions=PARTITIONS,
        transactional_id=f"{topic}-harness",
    )
    with HistoryWriter(folder / "t.jsonl", run=RUN, client="bench", role="bench") as history:
        transactor = Transactor(spec, history, ClientProgress(), Deadline(10 * LIMIT_S))
        transactor.settle()
        encoders = [LaneEncoder(RUN, 2, lane, PAYLOAD) for lane in range(PARTITIONS)]

        def work() -> int:
            sent = 0
            for txn in length.bursts(TRANSACTION):
                transactor.begin()
                lane = txn % PARTITIONS
                first = transactor.next_of(lane)
                transactor.send(lane, encoders[lane].batch(first, TRANSACTION, transactor.txn, COMMIT))
                transactor.commit()
                sent += TRANSACTION
            return sent

        cost = timed(work)
        transactor.close()
        return cost


def measure(cluster: Cluster, length: Length, rounds: int) -> Iterator[Part]:
    """Run each client of the harness interleaved with its bare loop; yield the results of each client."""
    bootstrap, short = cluster.bootstrap(BrokerListener.DIRECT), length._replace(records=TRANSACTION)
    yield Part(
        ["identity and history of the harness, compared with the same loop with an empty on_delivery:"]
    )
    for name, of_length, bare, harness in (
        ("idempotent", length, bare_idempotent, harness_idempotent),
        (f"transactional, {TRANSACTION} a transaction", short, bare_transactional, harness_transactional),
    ):
        base = on_scratch_topics(cluster, PARTITIONS, partial(bare, bootstrap))
        client = on_scratch_topics(cluster, PARTITIONS, partial(_with_folder, harness, bootstrap))
        yield _part(name, interleave(base, [client], of_length, rounds)[1])


def _with_folder(run: Callable[..., Cost], bootstrap: str, topic: str, length: Length) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        return run(bootstrap, topic, length, Path(folder))


def _part(name: str, pairs: list[Pair]) -> Part:
    bare = statistics.median(pair.before.rate for pair in pairs)
    harness = statistics.median(pair.run.rate for pair in pairs)
    wall = [1 / pair.ratio(records_per_second) for pair in pairs]
    thread = Spread.over([pair.ratio(lambda cost: cost.thread_us) for pair in pairs])
    added = statistics.median(_added_us(pair) for pair in pairs)
    lines = [
        f"  {name}: bare {bare:,.0f} records/s, harness {harness:,.0f} records/s",
        f"    ratio of the total time: {Spread.over(wall)}",
        f"    ratio of the sending thread's processor time: {thread}; {added:.2f} µs added per record",
    ]
    return Part(lines, [Figure(f"time with identity and history, {name}", "of a bare loop", wall, most=MOST)])


def _added_us(pair: Pair) -> float:
    return pair.run.thread_us - (pair.before.thread_us + pair.after.thread_us) / 2
