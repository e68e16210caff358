"""Controllers that are lost in a transaction: data goes on, and what needs a decision of theirs waits."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.base.waits import wait_until
from harness.cluster.broker_settings import SESSION_TIMEOUT_MS
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST, node_name
from harness.faults import Kill, Pause, inject
from harness.kafka.admin import Admin
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from tests.rig import text
from tests.tapped import Evidence
from tests.transactional.bench import Bench
from tests.transactional.scripted_producer import OK
from tests.transactional.under_faults import lead, opened, visible

pytestmark = [pytest.mark.cluster, pytest.mark.timing]

WATCHED_S = 2 * SESSION_TIMEOUT_MS / 1000
"""Twice as long as the brokers need to miss one of them, when there is a controller."""
LIMIT_S = 60.0


def refused_topic(cluster: Cluster, name: str) -> str:
    """Ask for a topic, and return what came instead of it."""
    one = Admin({2: (HOST, cluster.ports.direct(2))})  # the others would say the same, each after its time
    try:
        one.create_topic(name, [[1, 2, 3]])
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return "it was made"


def test_the_active_controller_is_killed_in_a_transaction(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    topic = bench.topic("t")
    told = opened(bench, topic, {0: 3, 1: 2})
    active, started = cluster.active_controller(), time.monotonic()
    with inject(cluster, Kill(), node_name(active)) as kill:
        ended, fresh = told.commit(), opened(bench, topic, {2: 1}, transactional_id=f"{bench.name}-new")
        new = fresh.commit()
        took = round(time.monotonic() - started, 2)
        next_one = wait_until(
            lambda: found if (found := cluster.active_controller()) != active else 0, 20, "another controller"
        )
        after = bench.topic("after")
        following = told.whole({0: 1})
    judged, seen = bench.judge(topic), visible(bench, topic)
    evidence(
        killed=kill.bite,
        ended=ended,
        new=new,
        both_took_s=took,
        active=[active, next_one],
        made=after,
        verdict=judged.verdict,
    )
    assert [ended.said, new.said, following.said] == [OK] * 3
    assert seen == {0: 4, 1: 2, 2: 1}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_without_a_quorum_transactions_go_on_and_a_killed_leader_is_not_replaced(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    topic = bench.topic("t", [[1, 2, 3], [2, 3, 1]])
    new_id = f"{bench.name}-new"
    for ident in (bench.transactional_id, new_id):
        lead(cluster, TRANSACTION_TOPIC, ident, 3)
    # Its second transaction lasts until a leader is missed, for twice that time, and until there is another.
    told = opened(bench, topic, {0: 3, 1: 2}, transaction_timeout_ms=round(LIMIT_S * 1000))
    killed, looks = inject(cluster, Kill(), "kafka-1"), []

    def looked(until: float) -> bool:
        looks.append(cluster.admin.partition(topic, 0).leader)
        return time.monotonic() >= until

    with ThreadPoolExecutor(1) as pool:
        try:
            with inject(cluster, Pause(), "controllers(majority)") as pause:
                refused = refused_topic(cluster, f"{bench.name}-refused")
                ended, fresh = told.commit(), opened(bench, topic, {1: 1}, transactional_id=new_id)
                new, again = fresh.commit(), told.begin()
                assert told.send(0, 2).said == OK
                killed.start()
                told.hand_over(0, 1)
                waiting = pool.submit(told.commit, LIMIT_S)
                watched_until = time.monotonic() + WATCHED_S
                wait_until(lambda: looked(watched_until), LIMIT_S, "it to be missed", every=0.5)
                answered = waiting.done()
            resumed = time.monotonic()
            leader = wait_until(
                lambda: found if (found := cluster.leader_of(topic, 0)) != 1 else 0, 30, "another leader"
            )
            took = round(time.monotonic() - resumed, 2)
        finally:
            killed.heal()
        second = waiting.result(LIMIT_S)
    made = bench.topic("after")
    # What was refused may have been made all the same, once there were controllers again.
    late = f"{bench.name}-refused" in {p.topic for p in cluster.admin.metadata(None).partitions}
    bench.topics += [f"{bench.name}-refused"] if late else []
    following = told.whole({0: 1, 1: 1})
    judged, seen = bench.judge(topic), visible(bench, topic)
    evidence(
        paused=pause.names,
        refused=refused,
        ended=ended,
        new=new,
        leaders_told=sorted(set(looks)),
        looks=len(looks),
        new_leader=leader,
        after_s=took,
        second=second,
        made=made,
        came_late=late,
        verdict=judged.verdict,
    )
    assert "it was made" not in refused
    assert [ended.said, new.said, again.said] == [OK] * 3
    assert set(looks) == {1}
    assert not answered
    assert [second.said, following.said] == [OK] * 2
    assert seen == {0: 7, 1: 4}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
