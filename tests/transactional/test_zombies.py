"""Producers that freeze during a transaction and thaw after a successor has taken over."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer

from harness.base.waits import wait_until
from harness.clients.client_process import ClientProcess
from harness.clients.client_settings import GROUP, settings
from harness.clients.scripted.producer_process import ProducerProcess
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.model import Expect, Pipeline
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.history import Info
from harness.faults import Zombie, inject
from harness.kafka import transactions as by_hand
from harness.kafka.errors import error_name
from harness.kafka.transactions import commit_offsets
from tests.client_case import operations, text
from tests.tapped import Evidence, Frames
from tests.transactional.transactional_case import TransactionalCase, refusals

pytestmark = pytest.mark.cluster

TIMEOUT_MS = 2_000
FENCED = {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}


def test_a_zombie_is_refused_on_every_request(
    cluster: Cluster, case: TransactionalCase, frames: Frames, evidence: Evidence
) -> None:
    """Freeze three producers in open transactions. After the thaw, each first sends a different request."""
    topic, group = case.topic("t"), f"{case.name}-g"
    calls: dict[str, list[Any]] = {
        "Produce": ["send", 0, 2],
        "TxnOffsetCommit": ["offsets", group, topic, 0, 3],
        "EndTxn": ["commit"],
    }
    zombies: dict[str, ProducerProcess] = {
        what: case.process(topic, f"{case.name}-{what}", transaction_timeout_ms=TIMEOUT_MS) for what in calls
    }
    before: dict[str, by_hand.ProducerIdentity] = {}
    with ExitStack() as frozen:
        for what, zombie in zombies.items():
            assert all(zombie.call(call).ok for call in ("init", "begin"))
            assert zombie.call("send", 0, 3).ok
            name = f"{case.name}-{what}"
            before[what] = by_hand.ProducerIdentity(name, *case.describe(name)[1:3])
            frozen.enter_context(inject(cluster, Zombie(), "client(zombie)", process=zombie))
        timed_out = {}
        for what, who in before.items():
            timed_out[what] = wait_until(
                partial(aborted, case, who.transactional_id), 20, f"the time-out of {who.transactional_id}"
            )
        for who in before.values():
            successor = case.producer(topic, who.transactional_id)
            assert successor.init().ok
            assert successor.whole({0: 3, 1: 2}).ok
            case.wait_ended(who.transactional_id)
        # On a new cluster, the coordinator may refuse the first InitProducerId while it loads its partition.
        before_thaw = len(frames())
    ends = cluster.end_offsets(topic)

    by_hand_errors = {what: refused_by_hand(case, who, (topic, 0), group) for what, who in before.items()}
    woken = {what: zombies[what].call(*call) for what, call in calls.items()}
    seen = {what: refusals(frames()[before_thaw:], zombie.name) for what, zombie in zombies.items()}
    after = {what: case.describe(who.transactional_id) for what, who in before.items()}
    unmoved = cluster.end_offsets(topic)
    judged = case.judge()
    epochs = {what: (before[what].epoch, timed_out[what], after[what].epoch) for what in calls}
    evidence(
        epochs=epochs,
        answers=woken,
        broker_errors=seen,
        by_hand=by_hand_errors["EndTxn"],
        verdict=judged.verdict,
    )

    assert unmoved == ends
    for what in calls:
        assert not woken[what].ok
        assert "fatal" in woken[what].flags, woken
        assert {api for api, _ in seen[what]} <= {what, "AddOffsetsToTxn"}
        assert {error for _, error in seen[what]} <= FENCED
        assert seen[what]
        assert timed_out[what] == before[what].epoch + 1
        assert after[what].epoch == before[what].epoch + 2
        assert after[what].producer_id == before[what].producer_id
    assert all("NONE" not in answers.values() for answers in by_hand_errors.values())
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def aborted(case: TransactionalCase, transactional_id: str) -> int:
    """Return the epoch of a transactional id if its transaction has been aborted, else 0."""
    known = case.describe(transactional_id)
    return known.epoch if known.state == "CompleteAbort" else 0


def refused_by_hand(
    case: TransactionalCase, who: by_hand.ProducerIdentity, place: tuple[str, int], group: str
) -> dict[str, str]:
    """Send each kind of request by hand with a producer's identity; return the errors of the brokers."""
    admin = case.cluster.admin
    codes = {
        "AddPartitionsToTxn": by_hand.add_partitions(admin, who, [(place[0], 2)]),
        "Produce": case.produce_by_hand(who, place, 3).code,
        "AddOffsetsToTxn": by_hand.add_offsets(admin, who, group),
        "TxnOffsetCommit": commit_offsets(admin, who, group, {place: 1}),
        "EndTxn": by_hand.end(admin, who, commit=True),
        "InitProducerId": by_hand.initialise(
            admin, who.transactional_id, producer_id=who.producer_id, epoch=who.epoch
        ).code,
    }
    return {api: error_name(code) for api, code in codes.items()}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_accepts_offsets_only_with_current_metadata(
    cluster: Cluster, case: TransactionalCase, frames: Frames, evidence: Evidence, protocol: str
) -> None:
    """Send offsets with metadata of a current member, from before a rebalance, or of a former member."""
    source, sink, group = case.topic("source", 2), case.topic("sink"), f"{case.name}-g"
    config = {
        **settings(GROUP[protocol]),
        "bootstrap.servers": cluster.bootstrap("DIRECT"),
        "group.id": group,
    }
    first, second = Consumer(config), Consumer(config)
    producer = case.producer(sink)
    assert producer.init().ok
    answers: dict[str, str] = {}

    def take(what: str, partition: int, metadata: object) -> None:
        assert producer.begin().ok
        producer.send(0)
        answer = producer.offsets(group, source, partition, 1, metadata)
        answers[what] = answer.name
        assert (producer.commit() if answer.ok else producer.abort()).ok

    first.subscribe([source])
    wait_until(lambda: len(polled(first)) == 2, 30, "the first member to have both partitions")
    alone = first.consumer_group_metadata()
    take("current", 0, alone)
    second.subscribe([source])
    wait_until(
        lambda: (len(polled(first)), len(polled(second))) == (1, 1), 30, "the second to have one of them"
    )
    (kept,), (moved,) = polled(first), polled(second)
    take("outdated, partition kept", kept, alone)
    take("outdated, partition moved", moved, alone)
    shared = first.consumer_group_metadata()
    take("current, partition of the other", moved, shared)
    first.close()
    wait_until(lambda: len(polled(second)) == 2, 30, "the second to have both")
    take("left", kept, shared)
    take("never a member", kept, None)
    second.close()
    seen = refusals(frames(), producer.name)
    evidence(protocol=protocol, answers=answers, broker_errors=seen)
    case.wait_ended()
    assert case.judge(sink).names() == []
    stale = {"classic": "ILLEGAL_GENERATION", "consumer": "ok"}[protocol]
    assert answers == {
        "current": "ok",
        "outdated, partition kept": stale,
        "outdated, partition moved": "ILLEGAL_GENERATION",
        "current, partition of the other": "ok",
        "left": "UNKNOWN_MEMBER_ID",
        "never a member": "ok",
    }


def polled(consumer: Consumer) -> list[int]:
    """Poll once; return the numbers of the partitions that are assigned to the consumer."""
    consumer.poll(0.05)
    return [place.partition for place in consumer.assignment()]


@dataclass
class Handover:
    """Handover from a worker, frozen in a transaction, to a successor with another transactional id."""

    case: TransactionalCase
    fields: dict[str, Any]

    def __post_init__(self) -> None:
        self.source, self.sink = self.case.topic("source"), self.case.topic("sink")
        self.group = f"{self.case.name}-g"
        writer = self.case.producer(self.source)
        writer.init()
        for _, lane in itertools.product(range(4), range(3)):
            assert writer.whole({lane: 10}).ok
        self.frozen = self._worker(work=3.0, linger=0.1, transaction_timeout_ms=120_000)

    def _worker(self, **fields: object) -> ClientProcess:
        return self.case.pipeline(self.source, self.sink, abort_share=0.0, **(self.fields | fields))

    def between_output_and_offsets(self) -> bool:
        return len(operations(self.frozen, "begin")) > 0 and operations(self.frozen, "send_offsets") == []

    def replace(self) -> None:
        assert operations(self.frozen, "send_offsets") == []
        self.successor = self._worker()

    def refused(self) -> list[str]:
        done = operations(self.frozen, "send_offsets")
        return [o.error.name for o in done if isinstance(o, Info) and o.error]

    def judge(self) -> Judgement:
        assert [self.successor.stop(), self.frozen.stop()] == [0, 0]
        return self.case.judge(expect=Expect(pipeline=Pipeline(group=self.group, inputs=[self.source])))


def test_a_group_fences_a_frozen_worker_whose_successor_has_another_transactional_id(
    cluster: Cluster, make_case: Callable[[str], TransactionalCase], evidence: Evidence
) -> None:
    """With group metadata, the group refuses the frozen worker. Without it, inputs are processed twice."""
    kinds: dict[str, dict[str, Any]] = {
        "classic": {"protocol": "classic"},
        "consumer": {"protocol": "consumer"},
        "not given": {"protocol": "classic", "group_metadata": False},
    }
    over: dict[str, Handover] = {}
    with ExitStack() as frozen:
        for kind, fields in kinds.items():
            each = over[kind] = Handover(make_case(kind), fields)
            wait_until(each.between_output_and_offsets, 60, "a transaction whose outputs are sent")
            frozen.enter_context(inject(cluster, Zombie(), "client(frozen)", process=each.frozen))
        for each in over.values():
            each.replace()
        for each in over.values():
            each.case.wait_caught_up(each.source, each.group)
    for kind in ("classic", "consumer"):
        wait_until(lambda k=kind: over[k].frozen.progress().aborted > 0, 60, f"the {kind} worker to abort")  # type: ignore[misc]
    over["not given"].case.wait_committed(over["not given"].frozen)

    for each in over.values():
        each.frozen.request_stop()
        each.successor.request_stop()
    judged = {kind: each.judge() for kind, each in over.items()}
    refused = {kind: each.refused() for kind, each in over.items()}
    evidence(refused=refused, found={kind: (j.verdict, j.names()) for kind, j in judged.items()})
    for kind in ("classic", "consumer"):
        assert set(refused[kind]) & {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"}, over[kind].frozen.log()
        assert (judged[kind].verdict, judged[kind].names()) == ("valid", []), text(judged[kind])
    assert refused["not given"] == []
    assert "processed_twice" in judged["not given"].names(), text(judged["not given"])
