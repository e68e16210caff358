"""Failures of nodes that a transaction needs: a killed leader, frozen nodes that thaw, missing replicas."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka.protocol.producer import EndTxnRequest

from harness.base.waits import wait_until
from harness.clients.scripted.transactional_producer import OK
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST
from harness.faults import Kill, Pause, inject
from harness.kafka import transactions as by_hand
from harness.kafka.connection import RawConnection
from harness.kafka.errors import error_name
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.kafka.raw_produce import encode_batch, produce
from harness.walkthroughs.broker_evidence import replica_log
from tests.client_case import text, values_of
from tests.tapped import Evidence
from tests.transactional.transactional_case import TransactionalCase
from tests.transactional.under_faults import DONE, decisions, lead, opened, visible, wait_decisions

pytestmark = [pytest.mark.cluster, pytest.mark.timing]

FROZEN_LIMIT_S = 30.0
STALE = b"from before"


@pytest.mark.soak  # soak only, because the next test also replaces a partition's leader
def test_a_transaction_commits_after_a_partitions_leader_is_killed(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    topic = case.topic("t", [[1, 2, 3], [2, 1, 3]])
    lead(cluster, TRANSACTION_TOPIC, case.transactional_id, 3)
    producer = opened(case, topic, {0: 3, 1: 2})
    with inject(cluster, Kill(), f"leader_of({topic}, 0)") as kill:
        more, ended = producer.send(0, 3), producer.commit()
        following = producer.whole({0: 1, 1: 1}, commits=False)
    judged, seen = case.judge(), visible(case, topic)
    evidence(killed=kill.bite, more=more, ended=ended, following=following, seen=seen, verdict=judged.verdict)
    assert kill.names == ["kafka-1"]
    assert [more.name, ended.name, following.name] == [OK] * 3
    assert seen == {0: 6, 1: 2}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_thawed_leader_refuses_a_batch_from_before(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    """Send a batch to a frozen leader, and check that it refuses the batch after the thaw.

    The batch waits in the socket of the frozen broker. Meanwhile another broker becomes the leader. After the
    thaw, the broker reads this batch first.
    """
    topic = case.topic("t", [[3, 1, 2]])
    place = (topic, 0)
    lead(cluster, TRANSACTION_TOPIC, case.transactional_id, 2)
    producer = opened(case, topic, {0: 2})
    who = case.init_by_hand(f"{case.name}-stale", timeout_ms=60_000)
    assert by_hand.add_partitions(cluster.admin, who, [place]) == 0
    assert case.produce_by_hand(who, place).code == 0
    late = encode_batch(who.producer_id, who.epoch, 1, [STALE], transactional=True)
    with ThreadPoolExecutor(1) as pool:
        with inject(cluster, Pause(), f"leader_of({topic}, 0)") as pause:
            old = HOST, cluster.ports.direct(3)
            sent = pool.submit(produce, old, place, late, transactional_id=who.transactional_id)
            more, ended = producer.send(0, 2), producer.commit()
        stale = sent.result(FROZEN_LIMIT_S)
    # Abort the transaction of the hand-made producer `who`. Broker 3, which was frozen, may have been its
    # coordinator. In this case the abort fails until the metadata name a new coordinator, so repeat it.
    wait_until(lambda: by_hand.end(cluster.admin, who, commit=False) == 0, 20, "the stale one to be aborted")
    following = producer.whole({0: 1})
    log = case.log(topic)
    same = wait_until(
        lambda: replica_log(cluster, 3, place)[: len(log)] == log, 20, "broker 3 to have the leader's log"
    )
    judged, seen = case.judge(), visible(case, topic)
    evidence(frozen=pause.bite, stale=stale, more=more, ended=ended, seen=seen, verdict=judged.verdict)
    assert pause.names == ["kafka-3"]
    assert stale.code != 0
    assert STALE not in values_of(log)
    assert same
    assert [more.name, ended.name, following.name] == [OK] * 3
    assert seen == {0: 5}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_thawed_coordinator_refuses_an_abort_from_before(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    """Send an abort to a frozen coordinator, and check that it refuses the abort after the thaw.

    By then, another coordinator has committed the transaction, and the producer's next transaction is open.
    """
    ident, topic, since = case.transactional_id, case.topic("t", [[1, 2, 3]]), time.time_ns()
    lead(cluster, TRANSACTION_TOPIC, ident, 3)
    producer = opened(case, topic, {0: 3})
    known = case.describe()
    abort = EndTxnRequest(
        transactional_id=ident,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        committed=False,
        version=1,
    )

    def ask_the_old_one() -> int:
        with RawConnection(HOST, cluster.ports.direct(3), FROZEN_LIMIT_S) as connection:
            return int(connection.call(abort).error_code)

    with ThreadPoolExecutor(1) as pool:
        with inject(cluster, Pause(), f"txn_coordinator({ident})") as pause:
            asked = pool.submit(ask_the_old_one)
            ended = producer.commit()
            wait_decisions(cluster, ident, since, DONE)
            assert producer.begin().ok
            more = producer.send(0, 2)
        refused = error_name(asked.result(FROZEN_LIMIT_S))
    second = producer.commit()
    noted = wait_decisions(cluster, ident, since, DONE * 2)
    judged, seen = case.judge(), visible(case, topic)
    evidence(
        frozen=pause.bite, abort=refused, ended=ended, second=second, decisions=noted, verdict=judged.verdict
    )
    assert pause.names == ["kafka-3"]
    assert refused != "NONE"
    assert [ended.name, more.name, second.name] == [OK] * 3
    assert noted == decisions(cluster, ident, since) == DONE * 2
    assert seen == {0: 5}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_transaction_waits_for_min_insync_replicas(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    """Require three replicas in sync while one is dead: the coordinator logs the commit, but readers wait."""
    topic = case.topic("t", [[1, 2, 3]], min_insync_replicas="3")
    ident, hasty_id, since = case.transactional_id, f"{case.name}-hasty", time.time_ns()
    for name in (ident, hasty_id):
        lead(cluster, TRANSACTION_TOPIC, name, 1)
    producer = opened(case, topic, {0: 3})
    hasty = opened(case, topic, {0: 2}, transactional_id=hasty_id, transaction_timeout_ms=4_000)
    with inject(cluster, Kill(), "kafka-3"):
        wait_until(lambda: set(cluster.partition(topic, 0).isr) == {1, 2}, 20, "the ISR to be too small")
        ended = producer.commit()
        more = hasty.send(0, 1)
        given_up = hasty.commit()
        during, waiting = visible(case, topic), decisions(cluster, ident, since)
        held = cluster.end_offsets(topic)[0]
    finished = wait_decisions(cluster, ident, since, DONE)
    wait_until(
        lambda: (end := cluster.end_offsets(topic)[0]).last_stable == end.high_watermark, 20, "its markers"
    )
    judged, seen = case.judge(), visible(case, topic)
    evidence(
        ended=ended,
        more=more,
        given_up=given_up,
        during=during,
        decisions=waiting,
        held=held,
        finished=finished,
        seen=seen,
        verdict=judged.verdict,
    )
    assert ended.ok
    assert waiting == ["PrepareCommit"]
    assert (during, held.last_stable) == ({0: 0}, 0)
    assert more.name == "_MSG_TIMED_OUT"
    assert not given_up.ok
    assert finished == DONE
    assert seen == {0: 3}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
