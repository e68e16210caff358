"""Nodes that a transaction needs: a partition's leader killed, nodes frozen and back, replicas missing."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka.protocol.producer import EndTxnRequest

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST
from harness.faults import Kill, Pause, inject
from harness.kafka import transactions as by_hand
from harness.kafka.connection import RawConnection
from harness.kafka.errors import error_name
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.kafka.raw_produce import encode_batch, produce
from harness.walkthroughs.broker_evidence import replica_log
from tests.rig import text, values_of
from tests.tapped import Evidence
from tests.transactional.bench import Bench
from tests.transactional.scripted_producer import OK
from tests.transactional.under_faults import DONE, decisions, lead, opened, visible, wait_decisions

pytestmark = [pytest.mark.cluster, pytest.mark.timing]

FROZEN_LIMIT_S = 30.0
STALE = b"from before"


@pytest.mark.soak  # a frozen one is replaced too, and comes back besides
def test_the_leader_of_a_partition_is_killed_in_a_transaction(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    topic = bench.topic("t", [[1, 2, 3], [2, 1, 3]])
    lead(cluster, TRANSACTION_TOPIC, bench.transactional_id, 3)
    told = opened(bench, topic, {0: 3, 1: 2})
    with inject(cluster, Kill(), f"leader_of({topic}, 0)") as kill:
        more, ended = told.send(0, 3), told.commit()
        following = told.whole({0: 1, 1: 1}, commits=False)
    judged, seen = bench.judge(), visible(bench, topic)
    evidence(killed=kill.bite, more=more, ended=ended, following=following, seen=seen, verdict=judged.verdict)
    assert kill.names == ["kafka-1"]
    assert [more.said, ended.said, following.said] == [OK] * 3
    assert seen == {0: 6, 1: 2}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_frozen_leader_comes_back_with_a_batch_that_it_was_sent(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    """The batch waits in its socket for as long as it is frozen, and is the first thing that it sees."""
    topic = bench.topic("t", [[3, 1, 2]])
    place = (topic, 0)
    lead(cluster, TRANSACTION_TOPIC, bench.transactional_id, 2)
    told = opened(bench, topic, {0: 2})
    who = bench.take(f"{bench.name}-stale", timeout_ms=60_000)
    assert by_hand.add_partitions(cluster.admin, who, [place]) == 0
    assert bench.produce(who, place).code == 0
    late = encode_batch(who.producer_id, who.epoch, 1, [STALE], transactional=True)
    with ThreadPoolExecutor(1) as pool:
        with inject(cluster, Pause(), f"leader_of({topic}, 0)") as pause:
            old = HOST, cluster.ports.direct(3)
            sent = pool.submit(produce, old, place, late, transactional_id=who.transactional_id)
            more, ended = told.send(0, 2), told.commit()
        stale = sent.result(FROZEN_LIMIT_S)
    # Its coordinator may have been the frozen one: then there is a new one, of which everybody has to hear.
    wait_until(lambda: by_hand.end(cluster.admin, who, commit=False) == 0, 20, "the stale one to be aborted")
    following = told.whole({0: 1})
    log = bench.log(topic)
    same = wait_until(
        lambda: replica_log(cluster, 3, place)[: len(log)] == log, 20, "broker 3 to have the leader's log"
    )
    judged, seen = bench.judge(), visible(bench, topic)
    evidence(frozen=pause.bite, stale=stale, more=more, ended=ended, seen=seen, verdict=judged.verdict)
    assert pause.names == ["kafka-3"]
    assert stale.code != 0
    assert STALE not in values_of(log)
    assert same
    assert [more.said, ended.said, following.said] == [OK] * 3
    assert seen == {0: 5}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_frozen_coordinator_comes_back_with_an_abort_that_it_was_sent(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    """Meanwhile its successor has committed that transaction, and the next one is open."""
    ident, topic, since = bench.transactional_id, bench.topic("t", [[1, 2, 3]]), time.time_ns()
    lead(cluster, TRANSACTION_TOPIC, ident, 3)
    told = opened(bench, topic, {0: 3})
    known = bench.known()
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
            ended = told.commit()
            wait_decisions(cluster, ident, since, DONE)
            assert told.begin().said == OK
            more = told.send(0, 2)
        refused = error_name(asked.result(FROZEN_LIMIT_S))
    second = told.commit()
    noted = wait_decisions(cluster, ident, since, DONE * 2)
    judged, seen = bench.judge(), visible(bench, topic)
    evidence(
        frozen=pause.bite, abort=refused, ended=ended, second=second, decisions=noted, verdict=judged.verdict
    )
    assert pause.names == ["kafka-3"]
    assert refused != "NONE"
    assert [ended.said, more.said, second.said] == [OK] * 3
    assert noted == decisions(cluster, ident, since) == DONE * 2
    assert seen == {0: 5}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_partition_below_its_minimum_of_replicas_in_a_transaction(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    """All three must have it, and one is gone: what was acknowledged is decided, and read only afterwards."""
    topic = bench.topic("t", [[1, 2, 3]], min_insync_replicas="3")
    ident, hasty_id, since = bench.transactional_id, f"{bench.name}-hasty", time.time_ns()
    for name in (ident, hasty_id):
        lead(cluster, TRANSACTION_TOPIC, name, 1)
    told = opened(bench, topic, {0: 3})
    hasty = opened(bench, topic, {0: 2}, transactional_id=hasty_id, transaction_timeout_ms=4_000)
    with inject(cluster, Kill(), "kafka-3"):
        wait_until(lambda: set(cluster.partition(topic, 0).isr) == {1, 2}, 20, "the ISR to be too small")
        ended = told.commit()
        more = hasty.send(0, 1)
        given_up = hasty.commit()
        during, waiting = visible(bench, topic), decisions(cluster, ident, since)
        held = cluster.end_offsets(topic)[0]
    finished = wait_decisions(cluster, ident, since, DONE)
    wait_until(
        lambda: (end := cluster.end_offsets(topic)[0]).last_stable == end.high_watermark, 20, "its markers"
    )
    judged, seen = bench.judge(), visible(bench, topic)
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
    assert ended.said == OK
    assert waiting == ["PrepareCommit"]
    assert (during, held.last_stable) == ({0: 0}, 0)
    assert more.said == "_MSG_TIMED_OUT"
    assert given_up.said != OK
    assert finished == DONE
    assert seen == {0: 3}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
