"""Brokers that stop, return, or have no producer state: which batches they write, recognise or refuse."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, HOST
from harness.faults import Kill, Restart, inject
from harness.kafka.raw_produce import ProduceResult, encode_batch, new_producer_ids, produce
from harness.walkthroughs.broker_evidence import replica_log
from harness.witness.plain_consumer import freeze
from tests.broker_requests import active_producers, delete_records
from tests.idempotent.idempotent_case import IdempotentCase, RawProducer
from tests.outages import restart_broker
from tests.tapped import Evidence

pytestmark = pytest.mark.cluster

NOT_ENOUGH_REPLICAS = 19
# Errors for a batch that the leader appended, but that too few followers acknowledged in time. With these
# errors, it is unknown whether the batch will remain in the log.
APPENDED_AND_UNSURE = (7, 20)
MakeTopic = Callable[..., str]


@pytest.mark.timing
def test_below_min_insync_replicas_no_record_is_acknowledged_and_no_acknowledged_record_is_lost(
    cluster: Cluster, case: IdempotentCase, make_topic: MakeTopic, evidence: Evidence
) -> None:
    hasty = case.producer(1, listener="PROXIED", message_timeout_ms=3000)
    patient = case.producer(2, listener="PROXIED")
    before = hasty.send(0, 2)
    place, probe = (case.topic, 0), (make_topic([[1, 2, 3]]), 0)
    pid = new_producer_ids((HOST, cluster.ports.direct(1)), 1)[0]
    answers: list[ProduceResult] = []

    def refused() -> bool:
        batch = encode_batch(pid, 0, 0, [b"refused"])
        answers.append(produce((HOST, cluster.ports.direct(1)), probe, batch))
        return answers[-1].code == NOT_ENOUGH_REPLICAS

    with inject(cluster, Kill(), "kafka-2"), inject(cluster, Kill(), "kafka-3"):
        # While the killed followers are still in the ISR, the leader appends the batch, waits for the
        # followers, and returns an error of APPENDED_AND_UNSURE. So wait until it returns
        # NOT_ENOUGH_REPLICAS.
        wait_until(refused, 30, "the leader to refuse")
        given_up = hasty.send(0, 1, limit=20)
        waiting = patient.hand_over(0)
        patient.serve(0.5)
        unanswered = waiting.waiting
        stored = [b[:5] for b in replica_log(cluster, 1, place)]
    patient.finish()
    judged = case.judge()
    evidence(
        before=before,
        broker=answers,
        client=given_up.error and given_up.error.name(),
        stored=stored,
        healed=waiting.first_offset,
        verdict=judged.verdict,
    )
    assert answers[-1] == ProduceResult(NOT_ENOUGH_REPLICAS, "NOT_ENOUGH_REPLICAS", -1)
    assert {answer.code for answer in answers} <= {NOT_ENOUGH_REPLICAS, *APPENDED_AND_UNSURE}
    assert given_up.error is not None
    assert given_up.error.name() == "_MSG_TIMED_OUT"
    assert unanswered == 1
    assert [s[:2] for s in stored] == [(0, 1)]  # no refused record is in the log
    # The producer `patient` still held one record during the outage. After the heal, its client library
    # delivered it.
    assert waiting.count == 1
    assert (judged.verdict, judged.names()) == ("valid", [])


ORDERS = list(itertools.permutations(BROKER_IDS))


@pytest.mark.parametrize(
    "order",
    [ORDERS[0], *(pytest.param(o, marks=pytest.mark.soak) for o in ORDERS[1:])],
    ids=lambda order: "".join(map(str, order)),
)
def test_all_brokers_are_killed_and_restarted_in_any_order(
    cluster: Cluster, case: IdempotentCase, evidence: Evidence, order: tuple[int, ...]
) -> None:
    client = case.process(rate=1000)
    wait_until(lambda: client.progress().acknowledged > 500, 30, "records in flight")
    with inject(cluster, Kill(), "all"):
        acknowledged = client.progress().acknowledged
        led = {broker: restart_broker(cluster, broker, case.topic) for broker in order}
    wait_until(lambda: client.progress().acknowledged > acknowledged + 500, 60, "the producer to continue")
    assert client.stop() == 0

    recognised = resend_last_batches(cluster, case)
    judged = case.judge()
    evidence(order=order, leaders_after_each=led, resent=recognised, verdict=judged.verdict)
    assert all(answer.code == 0 and answer.offset == offset for answer, offset in recognised)
    assert judged.names() == []
    assert judged.verdict == "valid"


def resend_last_batches(cluster: Cluster, case: IdempotentCase) -> list[tuple[ProduceResult, int]]:
    """Send the last batch of each partition again, and check that the log does not grow.

    Return a pair for each partition: the leader's response, and the offset of the original batch.
    """
    found = []
    for partition in range(case.partitions):
        raw = RawProducer(cluster, case.topic, partition)
        last = raw.log()[-1]
        values = [value for _, value in last.values if value is not None]
        end = raw.end()
        answer = produce(
            raw.leader, raw.place, encode_batch(last.producer_id, last.epoch, last.base_sequence, values)
        )
        assert raw.end() == end
        found.append((answer, last.base_offset))
    return found


RECOVERY = {
    "Recovering unflushed segment": "scanned its log",
    "Wrote producer snapshot": "wrote a snapshot",
    "Loading producer state from snapshot file": "read a snapshot",
}


def recovery(cluster: Cluster, place: tuple[str, int]) -> list[str]:
    """Return the steps in which broker 1 recovered a partition, in order, according to the broker's log."""
    about = [
        line for line in cluster.node(1).log(5000).splitlines() if f"partition={place[0]}-{place[1]}" in line
    ]
    return [recovered for line in about for phrase, recovered in RECOVERY.items() if phrase in line]


# In the next test, the topic has one replica. So the restarted broker is leader again, and restores producer
# state from its own disk.


@pytest.mark.parametrize(
    ("hard", "emptied"),
    [
        (True, False),
        (False, True),
        *(pytest.param(both, both, marks=pytest.mark.soak) for both in (False, True)),
    ],
    ids=["kill", "clean stop, emptied by retention", "clean stop", "kill, emptied by retention"],
)
def test_a_restarted_leader_restores_producer_state_from_its_log(
    cluster: Cluster, make_topic: MakeTopic, evidence: Evidence, hard: bool, emptied: bool
) -> None:
    """Restart the only replica, and check the producer state that the broker restores.

    After a clean stop the broker reads a snapshot, unless the records were deleted. After a kill it scans the
    log. If no records were deleted, the restored state is the same in both cases.
    """
    raw = RawProducer(cluster, make_topic([[1]], min_insync_replicas="1"))
    pid = new_producer_ids((HOST, cluster.ports.direct(1)), 1)[0]
    assert [raw.send(pid, 0, s, 2).offset for s in (0, 2, 4)] == [0, 2, 4]
    if emptied:
        delete_records(cluster.admin, 1, raw.place, 6)
    with inject(cluster, Restart(hard=hard), "kafka-1") as restart:
        pass
    wait_until(lambda: cluster.partition(*raw.place).leader == 1, 30, "broker 1 to lead again")
    known = active_producers(cluster.admin, 1, raw.place)
    start = freeze(cluster.bootstrap("DIRECT"), [raw.place[0]])[0].start
    recovered = recovery(cluster, raw.place)
    again, following = raw.send(pid, 0, 4, 2), raw.send(pid, 0, 6, 2)
    evidence(
        ended=restart.bite,
        emptied=emptied,
        log_start=start,
        known=known,
        again=again,
        next=following,
        recovered=recovered,
        log=[b[:5] for b in raw.log()],
    )
    assert ("scanned its log" in recovered) is hard
    if not hard:
        assert "wrote a snapshot" in recovered
        assert ("read a snapshot" in recovered) is not emptied
    # The broker writes the log start offset to disk only once a minute. So after a kill, it may restore
    # records that were already deleted.
    assert start in ((0, 6) if emptied and hard else (6,) if emptied else (0,))
    if start < 6:
        assert [(k.producer_id, k.last_sequence) for k in known] == [(pid, 5)]
        assert again == ProduceResult(0, "NONE", 4)
        assert following == ProduceResult(0, "NONE", 6)
    else:
        # No producer state is left, because the snapshot is deleted with the log. The retry becomes a new
        # record.
        assert known == []
        assert again == ProduceResult(0, "NONE", 6)
        assert following == ProduceResult(0, "NONE", 8)


@pytest.mark.timing
def test_a_replica_without_the_producers_requests_takes_over_under_load(
    cluster: Cluster, make_topic: MakeTopic, tmp_path: Path, evidence: Evidence
) -> None:
    """Move the partition to a new replica, then back. The producer continues after both moves."""
    case = IdempotentCase(cluster, make_topic([[1, 2]]), tmp_path)
    try:
        client = case.process(rate=500)
        moves = []
        for replicas in ([3, 2], [1, 2]):
            count = client.progress().acknowledged
            wait_until(lambda c=count: client.progress().acknowledged > c, 30, "records under way")  # type: ignore[misc]
            before = cluster.partition(case.topic, 0)
            cluster.reassign(case.topic, {0: replicas})
            wait_until(
                lambda r=replicas: cluster.leader_of(case.topic, 0) == r[0], 30, "the new replica to lead"
            )  # type: ignore[misc]
            after = cluster.partition(case.topic, 0)
            moves.append((before.leader, after.leader, before.leader_epoch, after.leader_epoch))
            count = client.progress().acknowledged
            wait_until(lambda c=count: client.progress().acknowledged > c, 30, "records after the move")  # type: ignore[misc]
        assert client.stop() == 0
        pids = {b.producer_id for b in case.log()}
        judged = case.judge()
    finally:
        case.end()
    evidence(moves=moves, pids=sorted(pids), verdict=judged.verdict)
    assert [(a, b) for a, b, _, _ in moves] == [(1, 3), (3, 1)]
    assert len(pids) == 1
    assert (judged.verdict, judged.names()) == ("valid", [])


def test_a_replica_without_producer_state_accepts_the_next_sequence(
    cluster: Cluster, make_topic: MakeTopic, evidence: Evidence
) -> None:
    raw = RawProducer(cluster, make_topic([[1, 2]]))
    pid = new_producer_ids((HOST, cluster.ports.direct(1)), 1)[0]
    assert [raw.send(pid, 0, s, 2).offset for s in (0, 2, 4)] == [0, 2, 4]
    delete_records(cluster.admin, 1, raw.place, 6)
    cluster.reassign(raw.place[0], {0: [3, 2]})
    wait_until(lambda: cluster.leader_of(*raw.place) == 3, 30, "the new replica to lead")
    known = active_producers(cluster.admin, 3, raw.place)
    following = raw.send(pid, 0, 6, 2)
    evidence(known=known, next=following, log=[b[:5] for b in raw.log()])
    assert known == []
    assert following == ProduceResult(0, "NONE", 6)
