"""Loss of controllers during a transaction: transactions continue; leader elections and new topics wait."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.base.waits import wait_until
from harness.clients.scripted.transactional_producer import OK
from harness.cluster.broker_settings import SESSION_TIMEOUT_MS
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST, node_name
from harness.faults import Kill, Pause, inject
from harness.kafka.admin import Admin
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from tests.client_case import text
from tests.tapped import Evidence
from tests.transactional.transactional_case import TransactionalCase
from tests.transactional.under_faults import lead, opened, visible

pytestmark = [pytest.mark.cluster, pytest.mark.timing]

WATCHED_S = 2 * SESSION_TIMEOUT_MS / 1000
"""Duration of the observation in seconds: twice the time after which the controllers fence a dead broker."""
LIMIT_S = 60.0


def refused_topic(cluster: Cluster, name: str) -> str:
    """Try to create a topic; return the error."""
    # Ask one broker only: the others would time out in the same way.
    one = Admin({2: (HOST, cluster.ports.direct(2))})
    try:
        one.create_topic(name, [[1, 2, 3]])
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return "it was created"


def test_a_transaction_commits_after_the_active_controller_is_killed(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    topic = case.topic("t")
    producer = opened(case, topic, {0: 3, 1: 2})
    active, started = cluster.active_controller(), time.monotonic()
    with inject(cluster, Kill(), node_name(active)) as kill:
        ended, fresh = producer.commit(), opened(case, topic, {2: 1}, transactional_id=f"{case.name}-new")
        new = fresh.commit()
        took = round(time.monotonic() - started, 2)
        next_one = wait_until(
            lambda: found if (found := cluster.active_controller()) != active else 0, 20, "another controller"
        )
        after = case.topic("after")
        following = producer.whole({0: 1})
    judged, seen = case.judge(topic), visible(case, topic)
    evidence(
        killed=kill.bite,
        ended=ended,
        new=new,
        both_took_s=took,
        active=[active, next_one],
        made=after,
        verdict=judged.verdict,
    )
    assert [ended.name, new.name, following.name] == [OK] * 3
    assert seen == {0: 4, 1: 2, 2: 1}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_without_a_quorum_transactions_continue_and_a_killed_leader_is_not_replaced(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    topic = case.topic("t", [[1, 2, 3], [2, 3, 1]])
    new_id = f"{case.name}-new"
    for ident in (case.transactional_id, new_id):
        lead(cluster, TRANSACTION_TOPIC, ident, 3)
    # The second transaction must stay open during the whole observation and until a new leader is elected.
    producer = opened(case, topic, {0: 3, 1: 2}, transaction_timeout_ms=round(LIMIT_S * 1000))
    killed, looks = inject(cluster, Kill(), "kafka-1"), []

    def looked(until: float) -> bool:
        looks.append(cluster.admin.partition(topic, 0).leader)
        return time.monotonic() >= until

    with ThreadPoolExecutor(1) as pool:
        try:
            with inject(cluster, Pause(), "controllers(majority)") as pause:
                refused = refused_topic(cluster, f"{case.name}-refused")
                ended, fresh = producer.commit(), opened(case, topic, {1: 1}, transactional_id=new_id)
                new, again = fresh.commit(), producer.begin()
                assert producer.send(0, 2).ok
                killed.start()
                producer.hand_over(0, 1)
                waiting = pool.submit(producer.commit, LIMIT_S)
                watched_until = time.monotonic() + WATCHED_S
                wait_until(lambda: looked(watched_until), LIMIT_S, "the end of the observation", every=0.5)
                answered = waiting.done()
            resumed = time.monotonic()
            leader = wait_until(
                lambda: found if (found := cluster.leader_of(topic, 0)) != 1 else 0, 30, "another leader"
            )
            took = round(time.monotonic() - resumed, 2)
        finally:
            killed.heal()
        second = waiting.result(LIMIT_S)
    made = case.topic("after")
    # The request to create the topic timed out, but the controllers may have carried it out after they
    # resumed.
    late = f"{case.name}-refused" in {p.topic for p in cluster.admin.metadata(None).partitions}
    case.topics += [f"{case.name}-refused"] if late else []
    following = producer.whole({0: 1, 1: 1})
    judged, seen = case.judge(topic), visible(case, topic)
    evidence(
        paused=pause.names,
        refused=refused,
        ended=ended,
        new=new,
        leaders_reported=sorted(set(looks)),
        looks=len(looks),
        new_leader=leader,
        after_s=took,
        second=second,
        made=made,
        created_late=late,
        verdict=judged.verdict,
    )
    assert "it was created" not in refused
    assert [ended.name, new.name, again.name] == [OK] * 3
    assert set(looks) == {1}
    assert not answered
    assert [second.name, following.name] == [OK] * 2
    assert seen == {0: 7, 1: 4}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
