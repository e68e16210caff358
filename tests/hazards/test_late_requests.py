"""Hazards of late requests of clients, with confluent-kafka: positions, partitions, and a reused sequence.

    TxnOffsetCommit       a late one moves a group back, and no client gets an error
    AddPartitionsToTxn    a late one opens a transaction that its client did not begin; the time-out of this
                          transaction fences the client
    Produce               if its answer is lost and the application aborts at once, librdkafka gives its
                          sequence to the next transaction, whose record is acknowledged, committed and lost

Each has a control that differs in one step and has no damage. `eos audit` finds each one in the logs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness.base.waits import wait_until
from harness.clients.client import library_error
from harness.cluster.cluster import Cluster
from harness.evidence.log_audit import audit
from harness.faults import HoldFrame, LoseResponseFrame, arm
from harness.faults.frame_faults import ArmedFrameFault
from harness.kafka.admin import Admin
from harness.kafka.log.audit_tables import read_tables
from harness.kafka.read_to_end import read_to_end
from harness.kafka.transactions import describe_transactions
from harness.tap.tap_client import ensure_tap
from tests.hazards.conftest import CHANGED

pytestmark = pytest.mark.cluster

LIMIT_S = 30.0
GHOST_TIMEOUT_MS = 3_000
_numbers = itertools.count(1)


@contextmanager
def producer_of(cluster: Cluster, ident: str, **settings: object) -> Iterator[Any]:
    """Yield an initialised producer behind the tap."""
    from confluent_kafka import Producer

    config = {"bootstrap.servers": cluster.bootstrap("TAPPED"), "transactional.id": ident, "log_level": 2}
    producer = Producer(config | settings)
    producer.init_transactions(LIMIT_S)
    yield producer
    producer.purge()


def send(producer: Any, topic: str, value: bytes) -> list[tuple[object, int | None]]:
    """Send one record. The returned list gets its delivery: the error and the offset."""
    reports: list[tuple[object, int | None]] = []

    def delivered(error: object, message: Any) -> None:
        reports.append((error, message.offset() if error is None else None))

    producer.produce(topic, value, partition=0, on_delivery=delivered)
    producer.poll(0)
    return reports


def whole(producer: Any, topic: str, value: bytes) -> list[tuple[object, int | None]]:
    """Commit a transaction with one record, and return its delivery."""
    producer.begin_transaction()
    reports = send(producer, topic, value)
    assert producer.flush(LIMIT_S) == 0
    producer.commit_transaction(LIMIT_S)
    return reports


def committed_values(cluster: Cluster, topic: str) -> list[bytes]:
    """Return what a read_committed reader gets from partition 0."""
    values: list[bytes] = []
    config = {
        "bootstrap.servers": cluster.bootstrap("DIRECT"),
        "group.id": "alone",
        "isolation.level": "read_committed",
    }
    deadline = time.monotonic() + LIMIT_S
    assert not read_to_end(config, {(topic, 0): 0}, lambda _, m: values.append(m.value()), deadline)
    return values


def late_answer(held: ArmedFrameFault) -> str:
    """Release the held frame, and return the broker's answer to it."""
    held.release()
    return wait_until(lambda: held.wait().hits[0].answer or "", LIMIT_S, "the answer to the late frame")


def found_by_audit(admin: Admin, topic: str, ident: str) -> list[str]:
    """Return the kinds of damage and suspicion that the logs show for a transactional id."""
    tables = read_tables(admin, [topic])
    assert tables.unread == []
    found = audit(tables.partitions, tables.coordinators)
    return [finding.kind for finding in found.findings if finding.transactional_id == ident]


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[str]:
    """Yield a topic of one partition, whose name no other test uses."""
    ensure_tap(cluster)
    name = f"late-requests-{next(_numbers)}"
    cluster.create_topic(name, 1)
    yield name
    cluster.delete_topics([name])


@pytest.mark.parametrize("inside", [True, False], ids=["during the next", "after the next"])
def test_a_late_offset_commit_moves_a_group_back(
    cluster: Cluster, topic: str, evidence: Callable[..., None], *, inside: bool
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    group = Consumer({"bootstrap.servers": cluster.bootstrap("DIRECT"), "group.id": f"{topic}-g"})
    group.subscribe([topic])
    wait_until(lambda: (group.poll(0.1), group.assignment())[1], LIMIT_S, "an assignment")
    member = group.consumer_group_metadata()
    fault = HoldFrame(api="TxnOffsetCommit", transactional_id=topic, drop_client=True)
    with producer_of(cluster, topic) as producer, arm(cluster, fault) as held:
        for position in (1, 4):
            producer.begin_transaction()
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, position)], member, LIMIT_S)
            if position == 4 and inside:
                answer = late_answer(held)
            producer.commit_transaction(LIMIT_S)
        if not inside:
            wait_complete(cluster, topic)
            answer = late_answer(held)
    expected = 1 if inside else 4
    wait_until(lambda: position_of(group, topic) == expected, LIMIT_S, f"position {expected}. {CHANGED}")
    group.close()
    damage = found_by_audit(cluster.admin, topic, topic)
    evidence(answer=answer, position=expected, damage=damage)
    assert answer == ("NONE" if inside else "INVALID_TXN_STATE"), CHANGED
    assert damage == (["position_went_back"] if inside else [])


def wait_complete(cluster: Cluster, ident: str) -> None:
    """Wait until the last transaction is complete. Before that, the coordinator refuses further requests."""
    coordinator = cluster.txn_coordinator(ident)

    def complete() -> bool:
        (described,) = describe_transactions(cluster.admin, coordinator, [ident])
        return described.state == "CompleteCommit"

    wait_until(complete, LIMIT_S, f"the transaction of {ident} to be complete")


def position_of(group: Any, topic: str) -> int:
    """Return the committed position of a group, or -1 while a transaction with a position is open."""
    from confluent_kafka import KafkaException, TopicPartition

    try:
        return int(group.committed([TopicPartition(topic, 0)], 5)[0].offset)
    except KafkaException:
        return -1


@pytest.mark.parametrize("released", [True, False], ids=["late", "never"])
def test_a_late_request_for_partitions_opens_a_transaction_that_fences_its_client(
    cluster: Cluster, topic: str, evidence: Callable[..., None], *, released: bool
) -> None:
    from confluent_kafka import KafkaException

    fault = HoldFrame(api="AddPartitionsToTxn", transactional_id=topic, drop_client=True)
    timeout = {"transaction.timeout.ms": GHOST_TIMEOUT_MS}
    with producer_of(cluster, topic, **timeout) as producer, arm(cluster, fault) as held:
        whole(producer, topic, b"A")
        wait_complete(cluster, topic)
        if not released:
            whole(producer, topic, b"B")
            assert found_by_audit(cluster.admin, topic, topic) == []
            return
        answer = late_answer(held)
        wait_until(
            lambda: "ghost_transaction" in found_by_audit(cluster.admin, topic, topic),
            LIMIT_S,
            f"a transaction that the client did not begin to end by its time-out. {CHANGED}",
        )
        with pytest.raises((KafkaException, SystemError)) as raised:
            whole(producer, topic, b"B")
    error = library_error(raised.value)
    assert error is not None
    assert error.name() == "_FENCED", CHANGED
    evidence(answer=answer)
    assert answer == "NONE", CHANGED
    assert committed_values(cluster, topic) == [b"A"], "the client got an error, and nothing is lost"


@pytest.mark.parametrize("cure", ["", "flush before the abort", "a new producer after the abort"])
def test_an_abort_without_an_answer_gives_its_sequence_to_the_next_transaction(
    cluster: Cluster, topic: str, evidence: Callable[..., None], cure: str
) -> None:
    fault = LoseResponseFrame(api="Produce", transactional_id=topic)
    with producer_of(cluster, topic) as producer:
        whole(producer, topic, b"S")
        with arm(cluster, fault) as lost:
            producer.begin_transaction()
            aborted = send(producer, topic, b"A")
            lost.wait("lost")
            if cure == "flush before the abort":
                assert producer.flush(LIMIT_S) == 0
            producer.abort_transaction(LIMIT_S)
        if cure == "a new producer after the abort":
            with producer_of(cluster, topic) as successor:
                acknowledged = whole(successor, topic, b"B")
        else:
            acknowledged = whole(producer, topic, b"B")
    values, damage = committed_values(cluster, topic), found_by_audit(cluster.admin, topic, topic)
    evidence(
        cure=cure, aborted=str(aborted), acknowledged=str(acknowledged), values=str(values), damage=damage
    )
    ((error, offset),) = acknowledged
    assert error is None, f"the client got an error for B. {CHANGED}"
    if cure:
        assert (values, damage) == ([b"S", b"B"], [])
        return
    # B has the sequence of A, so the broker took B for a duplicate of A, and returned A's offset.
    assert offset == 2, CHANGED
    assert values == [b"S"], f"B was acknowledged and committed. {CHANGED}"
    assert damage == ["empty_commit"]
