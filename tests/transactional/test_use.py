"""Errors of a transactional producer: calls in the wrong order, missing rights, no available coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from harness.base.waits import wait_until
from harness.clients.scripted.transactional_producer import Answer, TransactionalProducer
from harness.cluster.cluster import Cluster
from harness.faults import Jitter, inject
from harness.kafka.errors import KafkaAnswerError
from harness.kafka.raw_produce import new_producer_ids
from tests.client_case import text
from tests.single_broker import OneBroker, one_broker
from tests.tapped import Evidence, Frames
from tests.transactional.transactional_case import TransactionalCase, refusals

pytestmark = pytest.mark.cluster

WRITE, READ, DESCRIBE = AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE


def begun(producer: TransactionalProducer) -> TransactionalProducer:
    assert [producer.init().name, producer.begin().name] == ["ok", "ok"]
    return producer


def started(producer: TransactionalProducer) -> TransactionalProducer:
    assert producer.init().ok
    return producer


MISUSES: dict[str, Callable[[TransactionalProducer], Answer]] = {
    "begin before init": lambda t: t.begin(),
    "produce before init": lambda t: t.send(0),
    "commit before init": lambda t: t.commit(),
    "a second init": lambda t: started(t).init(),
    "produce outside": lambda t: started(t).send(0),
    "offsets outside": lambda t: started(t).offsets("g", t.spec.topic, 0, 1),
    "commit before begin": lambda t: started(t).commit(),
    "abort before begin": lambda t: started(t).abort(),
    "two begins": lambda t: begun(t).begin(),
}


def test_a_call_in_the_wrong_order_is_refused_without_harm(
    case: TransactionalCase, evidence: Evidence
) -> None:
    """Make calls in the wrong order: each returns an error, and the producer works when called correctly."""
    topic = case.topic("t")
    answers = {}
    for number, (misuse, call) in enumerate(MISUSES.items()):
        producer = case.producer(topic, f"{case.name}-{number}")
        answers[misuse] = call(producer)
        if misuse.endswith("before init"):
            assert producer.init().ok, misuse
        if misuse != "two begins":
            assert producer.begin().ok, misuse
        assert producer.send(0, 2).ok, misuse
        assert producer.commit().ok, misuse
    case.wait_ended()
    judged = case.judge()
    evidence(answers=answers, verdict=judged.verdict)
    assert {(answer.name, *answer.flags) for answer in answers.values()} == {("_STATE",)}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


ROUNDS = 5
SLOW_MS = 150


@pytest.mark.timing
@pytest.mark.parametrize("how", ["at once", "while on the way", "flushed"])
def test_no_record_is_read_after_an_abort_with_sends_in_flight(
    cluster: Cluster, case: TransactionalCase, frames: Frames, evidence: Evidence, how: str
) -> None:
    """Readers get no record of the aborted transaction, whatever the producer's abort call returns."""
    topic = case.topic("t")
    producer = started(case.producer(topic, settings={"linger.ms": 0}))
    lane = next(p for p in range(3) if p + 1 != cluster.txn_coordinator(case.transactional_id))
    producers, waiting, took, answers = [producer.name], [], [], Counter[str]()
    with ExitStack() as slow:
        if how == "while on the way":
            # Delay requests to the leader of this partition, and so the batch. The EndTxn is not delayed,
            # because it goes to the coordinator, which is another broker.
            fault = Jitter(latency_ms=SLOW_MS, stream="upstream")
            slow.enter_context(inject(cluster, fault, f"leader_of({topic}, {lane})"))
        for _ in range(ROUNDS):
            assert producer.begin().ok
            for _ in range(3):
                assert producer.hand_over(lane, 20, "a").ok
                producer.producer.poll(SLOW_MS / 4000 if how == "while on the way" else 0)
            if how == "flushed":
                assert producer.flush().ok
            waiting.append(len(producer.producer))
            answer = producer.abort()
            took.append(answer.seconds)
            answers[" ".join([answer.name, *answer.flags])] += 1
            if not answer.ok:
                producer = started(case.producer(topic, settings={"linger.ms": 0}))
                producers.append(producer.name)
    assert producer.whole({0: 2, 1: 2, 2: 2}).ok
    refused = Counter(" ".join(each) for name in producers for each in refusals(frames(), name))
    case.wait_ended()
    judged = case.judge()
    evidence(
        how=how, waiting=waiting, took=took, answers=answers, broker_errors=refused, verdict=judged.verdict
    )
    assert all((left > 0) == (how != "flushed") for left in waiting), waiting
    if how == "flushed":
        assert answers == {"ok": ROUNDS}
    assert [len(values) for values in case.read(topic).values()] == [2, 2, 2]
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


@pytest.fixture(scope="module")
def guarded(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:  # noqa: ARG001
    folder = tmp_path_factory.mktemp("guarded")
    with one_broker(
        folder, transaction_state_log_replication_factor="1", transaction_state_log_min_isr="1"
    ) as made:
        made.topic("seen")
        made.topic("mine")
        made.allow(ResourceType.TOPIC, "mine", WRITE)
        yield made


@pytest.fixture
def alice(guarded: OneBroker, case: TransactionalCase) -> Callable[..., TransactionalProducer]:
    """Return a function that makes producers that connect as the user alice."""

    def make(transactional_id: str, topic: str = "mine") -> TransactionalProducer:
        settings: dict[str, Any] = guarded.as_alice | {"message.timeout.ms": 5000}
        bootstrap = settings.pop("bootstrap.servers")
        return case.producer(topic, transactional_id, bootstrap=bootstrap, settings=settings, partitions=1)

    return make


def test_a_transaction_needs_rights_for_id_topic_and_group(
    guarded: OneBroker, alice: Callable[..., TransactionalProducer], evidence: Evidence
) -> None:
    """An init needs WRITE on the id, a send needs WRITE on the topic, and offsets need READ on the group."""
    answers: dict[str, Answer] = {}
    answers["no right"] = alice("theirs").init(5)
    guarded.allow(ResourceType.TRANSACTIONAL_ID, "looked-at", DESCRIBE)
    answers["describe the id"] = alice("looked-at").init(5)
    guarded.allow(ResourceType.TRANSACTIONAL_ID, "hers", WRITE)
    answers["write the id"] = alice("hers").init()
    outside = begun(alice("hers", "seen"))
    answers["a topic without a right"] = outside.send(0)
    answers["its commit"] = outside.commit()
    answers["its abort"] = outside.abort()
    producer = begun(alice("hers"))
    answers["a topic with write"] = producer.send(0)
    answers["a group without a right"] = producer.offsets("theirs", "mine", 0, 1)
    assert producer.abort().ok
    guarded.allow(ResourceType.GROUP, "billing", READ)
    guarded.allow(ResourceType.TOPIC, "mine", READ)
    producer.begin()
    answers["a group with read"] = producer.offsets("billing", "mine", 0, 1)
    assert producer.send(0).ok
    answers["all rights"] = producer.commit()
    evidence(answers=answers)
    assert {what: answer.name for what, answer in answers.items()} == {
        "no right": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "describe the id": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "write the id": "ok",
        "a topic without a right": "TOPIC_AUTHORIZATION_FAILED",
        "its commit": "_INCONSISTENT",
        "its abort": "ok",
        "a topic with write": "ok",
        "a group without a right": "GROUP_AUTHORIZATION_FAILED",
        "a group with read": "ok",
        "all rights": "ok",
    }
    assert "fatal" in answers["no right"].flags
    assert guarded.written("seen") == 0


def refused_replicas(log: Path) -> list[str]:
    """Return a broker's log lines about a replication factor that is too high for the state topic."""
    lines = log.read_text().splitlines()
    return [x for x in lines if "__transaction_state" in x and "replication factor" in x.lower()]


def test_without_enough_brokers_for_the_state_topic_there_is_no_coordinator(
    cluster: Cluster, case: TransactionalCase, tmp_path: Path, evidence: Evidence
) -> None:
    """Use one broker and the default of three replicas for the state topic. The broker logs the reason."""
    assert cluster
    folder = tmp_path / "alone"
    folder.mkdir()
    with one_broker(folder) as alone:
        alone.topic("t")
        producer = case.producer("t", "x", bootstrap=alone.open, partitions=1)
        answer = producer.init(2)
        with pytest.raises(KafkaAnswerError) as raw:
            alone.admin.coordinator("transaction", "x")
        (plain,) = new_producer_ids(alone.address, 1)
        answers = wait_until(lambda: refused_replicas(folder / "log"), 20, "the reason in the broker's log")
    evidence(init=answer, broker=str(raw.value), log=answers[:2], idempotent_id=plain)
    assert answer.name == "_TIMED_OUT"
    assert "retriable" in answer.flags
    assert raw.value.code == 15
    assert plain >= 0
