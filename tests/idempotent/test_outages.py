"""Brokers that are away, come back, forget, or never knew: what stands, is recognised, is refused."""

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
from tests.idempotent.bench import Bench, Raw
from tests.outages import brought_back
from tests.tapped import Evidence

pytestmark = pytest.mark.cluster

NOT_ENOUGH_REPLICAS = 19
# Appended by the leader, and not acknowledged by enough followers in time: nobody knows yet.
APPENDED_AND_UNSURE = (7, 20)
MakeTopic = Callable[..., str]


@pytest.mark.timing
def test_below_the_minimum_of_replicas_nothing_is_acknowledged_and_nothing_acknowledged_is_lost(
    cluster: Cluster, bench: Bench, make_topic: MakeTopic, evidence: Evidence
) -> None:
    hasty = bench.actor(1, listener="PROXIED", message_timeout_ms=3000)
    patient = bench.actor(2, listener="PROXIED")
    before = hasty.send(0, 2)
    place, probe = (bench.topic, 0), (make_topic([[1, 2, 3]]), 0)
    pid = new_producer_ids((HOST, cluster.ports.direct(1)), 1)[0]
    answers: list[ProduceResult] = []

    def refused() -> bool:
        batch = encode_batch(pid, 0, 0, [b"refused"])
        answers.append(produce((HOST, cluster.ports.direct(1)), probe, batch))
        return answers[-1].code == NOT_ENOUGH_REPLICAS

    with inject(cluster, Kill(), "kafka-2"), inject(cluster, Kill(), "kafka-3"):
        # Until the leader knows that its followers are gone, it appends, waits for them, and says so.
        wait_until(refused, 30, "the leader to refuse")
        given_up = hasty.send(0, 1, limit=20)
        waiting = patient.hand_over(0)
        patient.serve(0.5)
        unanswered = waiting.waiting
        stands = [b[:5] for b in replica_log(cluster, 1, place)]
    patient.finish()
    judged = bench.judge()
    evidence(
        before=before,
        broker=answers,
        client=given_up.error and given_up.error.name(),
        stands=stands,
        healed=waiting.first_offset,
        verdict=judged.verdict,
    )
    assert answers[-1] == ProduceResult(NOT_ENOUGH_REPLICAS, "NOT_ENOUGH_REPLICAS", -1)
    assert {answer.code for answer in answers} <= {NOT_ENOUGH_REPLICAS, *APPENDED_AND_UNSURE}
    assert given_up.error is not None
    assert given_up.error.name() == "_MSG_TIMED_OUT"
    assert unanswered == 1
    assert [s[:2] for s in stands] == [(0, 1)]  # what had been acknowledged, and nothing of what was refused
    # It healed by itself: the patient producer's record is there, and the verdict misses nothing.
    assert waiting.count == 1
    assert (judged.verdict, judged.names()) == ("valid", [])


ORDERS = list(itertools.permutations(BROKER_IDS))


@pytest.mark.parametrize(
    "order",
    [ORDERS[0], *(pytest.param(o, marks=pytest.mark.soak) for o in ORDERS[1:])],
    ids=lambda order: "".join(map(str, order)),
)
def test_all_brokers_are_killed_and_come_back_in_some_order(
    cluster: Cluster, bench: Bench, evidence: Evidence, order: tuple[int, ...]
) -> None:
    client = bench.client(rate=1000)
    wait_until(lambda: client.progress().acknowledged > 500, 30, "records in flight")
    with inject(cluster, Kill(), "all"):
        acknowledged = client.progress().acknowledged
        led = {broker: brought_back(cluster, broker, bench.topic) for broker in order}
    wait_until(lambda: client.progress().acknowledged > acknowledged + 500, 60, "the producer to go on")
    assert client.stop() == 0

    recognised = resend_last_batches(cluster, bench)
    judged = bench.judge()
    evidence(order=order, leaders_after_each=led, resent=recognised, verdict=judged.verdict)
    assert all(answer.code == 0 and answer.offset == offset for answer, offset in recognised)
    assert judged.names() == []
    assert judged.verdict == "valid"


def resend_last_batches(cluster: Cluster, bench: Bench) -> list[tuple[ProduceResult, int]]:
    """Send each partition's last batch once more: the answer, and where the batch stands."""
    found = []
    for partition in range(bench.partitions):
        raw = Raw(cluster, bench.topic, partition)
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
    "Recovering unflushed segment": "looked through its log",
    "Wrote producer snapshot": "wrote a snapshot",
    "Loading producer state from snapshot file": "read a snapshot",
}


def recovery(cluster: Cluster, place: tuple[str, int]) -> list[str]:
    """What broker 1 said of its snapshots of a partition, and of looking through its log, in order."""
    about = [
        line for line in cluster.node(1).log(5000).splitlines() if f"partition={place[0]}-{place[1]}" in line
    ]
    return [said for line in about for phrase, said in RECOVERY.items() if phrase in line]


# One replica only: the broker that comes back leads again, and knows what its own disk tells it.


@pytest.mark.parametrize(
    ("hard", "emptied"),
    [
        (True, False),
        (False, True),
        *(pytest.param(both, both, marks=pytest.mark.soak) for both in (False, True)),
    ],
    ids=["kill", "clean stop, emptied by retention", "clean stop", "kill, emptied by retention"],
)
def test_a_leader_that_comes_back_knows_what_its_log_tells(
    cluster: Cluster, make_topic: MakeTopic, evidence: Evidence, hard: bool, emptied: bool
) -> None:
    """From a snapshot after a clean stop, from the log after a kill: the same, while the log is there."""
    raw = Raw(cluster, make_topic([[1]], min_insync_replicas="1"))
    pid = new_producer_ids((HOST, cluster.ports.direct(1)), 1)[0]
    assert [raw.send(pid, 0, s, 2).offset for s in (0, 2, 4)] == [0, 2, 4]
    if emptied:
        delete_records(cluster.admin, 1, raw.place, 6)
    with inject(cluster, Restart(hard=hard), "kafka-1") as restart:
        pass
    wait_until(lambda: cluster.partition(*raw.place).leader == 1, 30, "broker 1 to lead again")
    known = active_producers(cluster.admin, 1, raw.place)
    start = freeze(cluster.bootstrap("DIRECT"), [raw.place[0]])[0].start
    said = recovery(cluster, raw.place)
    again, following = raw.send(pid, 0, 4, 2), raw.send(pid, 0, 6, 2)
    evidence(
        ended=restart.bite,
        emptied=emptied,
        log_start=start,
        known=known,
        again=again,
        next=following,
        said=said,
        log=[b[:5] for b in raw.log()],
    )
    assert ("looked through its log" in said) is hard
    if not hard:
        assert "wrote a snapshot" in said
        assert ("read a snapshot" in said) is not emptied
    # A kill may bring deleted records back: where the log begins is written down once a minute only.
    assert start in ((0, 6) if emptied and hard else (6,) if emptied else (0,))
    if start < 6:
        assert [(k.producer_id, k.last_sequence) for k in known] == [(pid, 5)]
        assert again == ProduceResult(0, "NONE", 4)
        assert following == ProduceResult(0, "NONE", 6)
    else:
        # Nothing is left that could tell: the snapshot goes with the log, and the repeat is a new record.
        assert known == []
        assert again == ProduceResult(0, "NONE", 6)
        assert following == ProduceResult(0, "NONE", 8)


@pytest.mark.timing
def test_a_replica_that_never_saw_the_producer_takes_over_under_load(
    cluster: Cluster, make_topic: MakeTopic, tmp_path: Path, evidence: Evidence
) -> None:
    """First with the whole log, then with nothing left of it: neither breaks the producer."""
    bench = Bench(cluster, make_topic([[1, 2]]), tmp_path)
    try:
        client = bench.client(rate=500)
        moves = []
        for replicas in ([3, 2], [1, 2]):
            count = client.progress().acknowledged
            wait_until(lambda c=count: client.progress().acknowledged > c, 30, "records under way")  # type: ignore[misc]
            before = cluster.partition(bench.topic, 0)
            cluster.reassign(bench.topic, {0: replicas})
            wait_until(
                lambda r=replicas: cluster.leader_of(bench.topic, 0) == r[0], 30, "the new replica to lead"
            )  # type: ignore[misc]
            after = cluster.partition(bench.topic, 0)
            moves.append((before.leader, after.leader, before.leader_epoch, after.leader_epoch))
            count = client.progress().acknowledged
            wait_until(lambda c=count: client.progress().acknowledged > c, 30, "records after the move")  # type: ignore[misc]
        assert client.stop() == 0
        pids = {b.producer_id for b in bench.log()}
        judged = bench.judge()
    finally:
        bench.end()
    evidence(moves=moves, pids=sorted(pids), verdict=judged.verdict)
    assert [(a, b) for a, b, _, _ in moves] == [(1, 3), (3, 1)]
    assert len(pids) == 1
    assert (judged.verdict, judged.names()) == ("valid", [])


def test_a_replica_without_any_trace_of_the_producer_takes_its_next_sequence(
    cluster: Cluster, make_topic: MakeTopic, evidence: Evidence
) -> None:
    raw = Raw(cluster, make_topic([[1, 2]]))
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
