"""Calls out of turn, rights that are missing, a coordinator that cannot be: what a producer is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.faults import Jitter, inject
from harness.kafka.errors import KafkaAnswerError
from harness.kafka.raw_produce import new_producer_ids
from tests.rig import text
from tests.single_broker import OneBroker, one_broker
from tests.tapped import Evidence, Frames
from tests.transactional.bench import Bench, refusals
from tests.transactional.scripted_producer import Answer, ScriptedProducer

pytestmark = pytest.mark.cluster

WRITE, READ, DESCRIBE = AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE


def begun(told: ScriptedProducer) -> ScriptedProducer:
    assert [told.init().said, told.begin().said] == ["ok", "ok"]
    return told


def started(told: ScriptedProducer) -> ScriptedProducer:
    assert told.init().said == "ok"
    return told


MISUSES: dict[str, Callable[[ScriptedProducer], Answer]] = {
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


def test_a_call_out_of_turn_is_refused_and_breaks_nothing(bench: Bench, evidence: Evidence) -> None:
    """It is an error of the caller alone: what should have been called still works."""
    topic = bench.topic("t")
    said = {}
    for number, (misuse, call) in enumerate(MISUSES.items()):
        told = bench.told(topic, f"{bench.name}-{number}")
        said[misuse] = call(told)
        if misuse.endswith("before init"):
            assert told.init().said == "ok", misuse
        if misuse != "two begins":
            assert told.begin().said == "ok", misuse
        assert told.send(0, 2).said == "ok", misuse
        assert told.commit().said == "ok", misuse
    bench.ended()
    judged = bench.judge()
    evidence(said=said, verdict=judged.verdict)
    assert {(answer.said, *answer.flags) for answer in said.values()} == {("_STATE",)}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


ROUNDS = 5
SLOW_MS = 150


@pytest.mark.timing
@pytest.mark.parametrize("how", ["at once", "while on the way", "flushed"])
def test_an_abort_with_sends_in_flight(
    cluster: Cluster, bench: Bench, frames: Frames, evidence: Evidence, how: str
) -> None:
    """Whatever the producer is told, nothing of it is ever read."""
    topic = bench.topic("t")
    told = started(bench.told(topic, settings={"linger.ms": 0}))
    lane = next(p for p in range(3) if p + 1 != cluster.txn_coordinator(bench.transactional_id))
    producers, waiting, took, said = [told.name], [], [], Counter[str]()
    with ExitStack() as slow:
        if how == "while on the way":
            # The batch is late and the end is not: they go to different brokers.
            fault = Jitter(latency_ms=SLOW_MS, stream="upstream")
            slow.enter_context(inject(cluster, fault, f"leader_of({topic}, {lane})"))
        for _ in range(ROUNDS):
            assert told.begin().said == "ok"
            for _ in range(3):
                assert told.hand_over(lane, 20, "a").said == "ok"
                told.producer.poll(SLOW_MS / 4000 if how == "while on the way" else 0)
            if how == "flushed":
                assert told.flush().said == "ok"
            waiting.append(len(told.producer))
            answer = told.abort()
            took.append(answer.took)
            said[" ".join([answer.said, *answer.flags])] += 1
            if answer.said != "ok":
                told = started(bench.told(topic, settings={"linger.ms": 0}))
                producers.append(told.name)
    assert told.whole({0: 2, 1: 2, 2: 2}).said == "ok"
    refused = Counter(" ".join(each) for name in producers for each in refusals(frames(), name))
    bench.ended()
    judged = bench.judge()
    evidence(how=how, waiting=waiting, took=took, said=said, broker_said=refused, verdict=judged.verdict)
    assert all((left > 0) == (how != "flushed") for left in waiting), waiting
    if how == "flushed":
        assert said == {"ok": ROUNDS}
    assert [len(values) for values in bench.read(topic).values()] == [2, 2, 2]
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
def alice(guarded: OneBroker, bench: Bench) -> Callable[..., ScriptedProducer]:
    """Producers that come in as alice."""

    def make(transactional_id: str, topic: str = "mine") -> ScriptedProducer:
        settings: dict[str, Any] = guarded.as_alice | {"message.timeout.ms": 5000}
        bootstrap = settings.pop("bootstrap.servers")
        return bench.told(topic, transactional_id, bootstrap=bootstrap, settings=settings, partitions=1)

    return make


def test_rights_of_transactional_ids_step_by_step(
    guarded: OneBroker, alice: Callable[..., ScriptedProducer], evidence: Evidence
) -> None:
    """The id must be written to start, the topic to send, and the group read for its offsets."""
    said: dict[str, Answer] = {}
    said["no right"] = alice("theirs").init(5)
    guarded.allow(ResourceType.TRANSACTIONAL_ID, "looked-at", DESCRIBE)
    said["describe the id"] = alice("looked-at").init(5)
    guarded.allow(ResourceType.TRANSACTIONAL_ID, "hers", WRITE)
    said["write the id"] = alice("hers").init()
    outside = begun(alice("hers", "seen"))
    said["a topic without a right"] = outside.send(0)
    said["its commit"] = outside.commit()
    said["its abort"] = outside.abort()
    told = begun(alice("hers"))
    said["a topic with write"] = told.send(0)
    said["a group without a right"] = told.offsets("theirs", "mine", 0, 1)
    assert told.abort().said == "ok"
    guarded.allow(ResourceType.GROUP, "billing", READ)
    guarded.allow(ResourceType.TOPIC, "mine", READ)
    told.begin()
    said["a group with read"] = told.offsets("billing", "mine", 0, 1)
    assert told.send(0).said == "ok"
    said["all rights"] = told.commit()
    evidence(said=said)
    assert {what: answer.said for what, answer in said.items()} == {
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
    assert "fatal" in said["no right"].flags
    assert guarded.written("seen") == 0


def refused_replicas(log: Path) -> list[str]:
    """What a broker's log says of a state topic with too many replicas."""
    lines = log.read_text().splitlines()
    return [x for x in lines if "__transaction_state" in x and "replication factor" in x.lower()]


def test_a_state_topic_that_cannot_be_replicated(
    cluster: Cluster, bench: Bench, tmp_path: Path, evidence: Evidence
) -> None:
    """One broker with the default of three replicas: there is never a coordinator, and the log says why."""
    assert cluster
    folder = tmp_path / "alone"
    folder.mkdir()
    with one_broker(folder) as alone:
        alone.topic("t")
        told = bench.told("t", "x", bootstrap=alone.open, partitions=1)
        answer = told.init(2)
        with pytest.raises(KafkaAnswerError) as raw:
            alone.admin.coordinator("transaction", "x")
        (plain,) = new_producer_ids(alone.address, 1)
        said = wait_until(lambda: refused_replicas(folder / "log"), 20, "the broker to say why")
    evidence(told=answer, broker=str(raw.value), log=said[:2], idempotent_id=plain)
    assert answer.said == "_TIMED_OUT"
    assert "retriable" in answer.flags
    assert raw.value.code == 15
    assert plain >= 0
