"""Cures of late requests and of a reused sequence: which of them help with confluent-kafka, and which do not.

Each case makes the hazard happen, with one change of the application or of the client's settings. A cure that
helps leaves everything whole. A setting that does not help leaves the damage that docs/hazards.md describes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.faults import HoldFrame, LoseResponseFrame, arm
from harness.tap.tap_client import ensure_tap
from tests.hazards.conftest import CHANGED, LIMIT_S, answer_of, committed, wait_complete

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

_numbers = itertools.count(1)


@contextmanager
def producer_of(cluster: Cluster, ident: str, **settings: object) -> Iterator[Any]:
    from confluent_kafka import Producer

    config = {"bootstrap.servers": cluster.bootstrap("TAPPED"), "transactional.id": ident, "log_level": 2}
    producer = Producer(config | settings)
    producer.init_transactions(LIMIT_S)
    yield producer
    producer.purge()


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[str]:
    """Yield a topic of one partition; its name is also used as the transactional id."""
    ensure_tap(cluster)
    name = f"cures-{next(_numbers)}"
    cluster.create_topic(name, 1)
    yield name
    cluster.delete_topics([name])


def write(producer: Any, topic: str, value: bytes) -> None:
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    assert producer.flush(LIMIT_S) == 0
    producer.commit_transaction(LIMIT_S)


def test_a_new_producer_before_each_transaction_refuses_a_late_offset_commit(
    cluster: Cluster, topic: str, evidence: Callable[..., None]
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    group = Consumer({"bootstrap.servers": cluster.bootstrap("DIRECT"), "group.id": f"{topic}-g"})
    group.subscribe([topic])
    wait_until(lambda: (group.poll(0.1), group.assignment())[1], LIMIT_S, "an assignment")
    member = group.consumer_group_metadata()
    fault = HoldFrame(api="TxnOffsetCommit", transactional_id=topic, drop_client=True)
    with arm(cluster, fault) as held:
        for position in (1, 4):
            with producer_of(cluster, topic) as producer:
                producer.begin_transaction()
                producer.send_offsets_to_transaction([TopicPartition(topic, 0, position)], member, LIMIT_S)
                if position == 4:
                    answer = answer_of(held)
                producer.commit_transaction(LIMIT_S)

    def position_now() -> int:
        return int(group.committed([TopicPartition(topic, 0)], LIMIT_S)[0].offset)

    wait_complete(cluster, topic)
    wait_until(lambda: position_now() == 4, LIMIT_S, f"position 4. {CHANGED}")
    group.close()
    evidence(answer=answer)
    assert answer == "INVALID_PRODUCER_EPOCH", CHANGED


def test_a_new_producer_before_each_transaction_refuses_a_late_request_for_partitions(
    cluster: Cluster, topic: str, evidence: Callable[..., None]
) -> None:
    fault = HoldFrame(api="AddPartitionsToTxn", transactional_id=topic, drop_client=True)
    with arm(cluster, fault) as held:
        with producer_of(cluster, topic) as producer:
            write(producer, topic, b"A")
        with producer_of(cluster, topic) as producer:
            answer = answer_of(held)
            write(producer, topic, b"B")
    evidence(answer=answer)
    assert answer in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"), CHANGED
    assert committed(cluster, topic) == [b"A", b"B"]


SETTINGS: dict[str, dict[str, object]] = {
    "default": {},
    "one request in flight": {"max.in.flight.requests.per.connection": 1},
    "one retry": {"retries": 1},
    "no batching": {"batch.num.messages": 1},
}


@pytest.mark.parametrize("label", SETTINGS)
def test_settings_do_not_keep_librdkafka_from_reusing_a_sequence(
    cluster: Cluster, topic: str, evidence: Callable[..., None], label: str
) -> None:
    fault = LoseResponseFrame(api="Produce", transactional_id=topic)
    with producer_of(cluster, topic, **SETTINGS[label]) as producer:
        write(producer, topic, b"S")
        with arm(cluster, fault) as lost:
            producer.begin_transaction()
            producer.produce(topic, b"A", partition=0)
            producer.poll(0)
            lost.wait("lost")
            producer.abort_transaction(LIMIT_S)
        write(producer, topic, b"B")
    values = committed(cluster, topic)
    evidence(setting=label, values=str(values))
    # B was acknowledged and committed.
    assert values == [b"S"], f"{label}: B is readable. {CHANGED}"


def test_a_message_time_out_before_the_abort_raises_the_epoch(
    cluster: Cluster, topic: str, evidence: Callable[..., None]
) -> None:
    short = {"message.timeout.ms": 1500, "retry.backoff.ms": 3000, "retry.backoff.max.ms": 3000}
    fault = LoseResponseFrame(api="Produce", transactional_id=topic)
    with producer_of(cluster, topic, **short) as producer:
        write(producer, topic, b"S")
        with arm(cluster, fault) as lost:
            reports: list[object] = []
            producer.begin_transaction()
            producer.produce(topic, b"A", partition=0, on_delivery=lambda error, _: reports.append(error))
            producer.poll(0)
            lost.wait("lost")
            producer.flush(LIMIT_S)
            producer.abort_transaction(LIMIT_S)
        write(producer, topic, b"B")
    evidence(delivery=str(reports), values=str(committed(cluster, topic)))
    assert committed(cluster, topic) == [b"S", b"B"], CHANGED
