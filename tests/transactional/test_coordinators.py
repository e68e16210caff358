"""Kills of coordinators: before a commit, between a logged commit and its markers, with offsets pending."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from harness.base.waits import wait_until
from harness.clients.scripted.transactional_producer import OK
from harness.cluster.cluster import Cluster
from harness.faults import Kill, Partition, Pause, inject
from harness.kafka.group_offsets import CommittedOffset, committed_offset
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.walkthroughs.broker_evidence import replica_log
from harness.walkthroughs.transaction_evidence import coordinator_home, markers
from tests.client_case import text
from tests.tapped import Evidence
from tests.transactional.transactional_case import TransactionalCase
from tests.transactional.under_faults import (
    DONE,
    Laps,
    decided_by,
    decisions,
    epochs,
    lead,
    opened,
    visible,
    wait_decisions,
    wake,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timing]


@pytest.mark.parametrize("when", ["before the end", pytest.param("after the end", marks=pytest.mark.soak)])
def test_a_transaction_commits_after_its_coordinator_is_killed(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence, when: str
) -> None:
    ident, topic, since = case.transactional_id, case.topic("t", [[1, 2, 3], [2, 1, 3]]), time.time_ns()
    home = lead(cluster, TRANSACTION_TOPIC, ident, 3)
    producer = opened(case, topic, {0: 3, 1: 2})
    if when == "after the end":
        ended = producer.commit()
        wait_decisions(cluster, ident, since, DONE)
    with inject(cluster, Kill(), f"txn_coordinator({ident})") as kill:
        if when == "before the end":
            ended = producer.commit()
        following = producer.whole({0: 2, 1: 2})
        noted = wait_decisions(cluster, ident, since, DONE * 2)
        moved = coordinator_home(cluster, TRANSACTION_TOPIC, ident)
    marks = markers(cluster, [(topic, 0), (topic, 1)], since, case.describe().producer_id)
    judged, seen = case.judge(), visible(case, topic)
    evidence(
        killed=kill.bite,
        ended=ended,
        following=following,
        decisions=noted,
        epochs=epochs(marks),
        verdict=judged.verdict,
    )
    assert kill.names == ["kafka-3"]
    assert moved.leader != 3
    assert (ended.name, following.name) == (OK, OK)
    assert noted == DONE * 2
    # Each of the two transactions has exactly one marker in each partition. The broker that was coordinator
    # at the end of the transaction wrote it.
    assert Counter((m.partition, m.what) for m in marks) == {(0, "commit"): 2, (1, "commit"): 2}
    before = [home.leader_epoch] if when == "after the end" else []
    assert epochs(marks) == [*before, moved.leader_epoch]
    assert seen == {0: 5, 1: 4}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


@pytest.mark.parametrize(
    "woken", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["woken", "left alone"]
)
def test_a_new_coordinator_writes_the_markers_of_a_decision(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence, woken: bool
) -> None:
    """Let a new coordinator write the marker of a commit that the old coordinator could not deliver.

    The partition's leader is frozen, so the commit is acknowledged although that partition has no marker.
    Then the old coordinator is killed, and the leader thaws.
    """
    ident, topic = case.transactional_id, case.topic("t", [[3, 1, 2], [1, 3, 2]])
    places = [(topic, 0), (topic, 1)]
    lap = Laps()
    # The frozen broker must not be a replica of the transaction log's partition that contains the decision.
    with decided_by(cluster, ident, [2, 1]) as home:
        lap("placed")
        since = time.time_ns()
        producer = opened(case, topic, {0: 3, 1: 2})
        pid = case.describe().producer_id
        lap("opened")
        frozen = inject(cluster, Pause(), "kafka-3").start()
        killed = inject(cluster, Kill(), "kafka-2")
        try:
            ended, killed_at = producer.commit(), time.time_ns()
            killed.start()
            unmarked = [batch.control for batch in replica_log(cluster, 3, (topic, 0))]
            frozen.heal()
            lap("thawed")

            def taken_over() -> list[CoordinatorEntry]:
                found = markers(cluster, places, since, pid)
                new = {m.partition for m in found if m.coordinator_epoch > home.leader_epoch}
                return found if new == {0, 1} else []

            marks = wait_until(taken_over, 40, "the successor's markers in both partitions")
            lap("marked by the successor")
            moved, seen = coordinator_home(cluster, TRANSACTION_TOPIC, ident), visible(case, topic)
        finally:
            frozen.heal()
            killed.heal()
        lap("all serve")
        at_kill, unfinished = decisions(cluster, ident, since, killed_at), decisions(cluster, ident, since)
        if woken:
            wake(cluster, case, topic, ident)
        finished = wait_decisions(cluster, ident, since, DONE)
        lap("finished")
        following = producer.whole({0: 1, 1: 1})
        lap("next")
    lap("placed back")
    judged = case.judge()
    lap("judged")
    evidence(
        ended=ended,
        at_kill=at_kill,
        epoch_before=home.leader_epoch,
        after_s=lap.seen,
        markers=[(m.partition, m.what, m.coordinator_epoch) for m in marks],
        seen=seen,
        unfinished=unfinished,
        finished=finished,
        verdict=judged.verdict,
    )
    assert [ended.name, following.name] == [OK] * 2
    assert (at_kill, unmarked) == (["PrepareCommit"], [None])
    assert {m.what for m in marks} == {"commit"}
    # The new coordinator sends a marker to both partitions, because it cannot know which markers were
    # written. In a partition that already has the marker, the second one has no effect.
    assert epochs(marks)[-1] == moved.leader_epoch > home.leader_epoch
    assert (moved.leader, seen) == (1, {0: 3, 1: 2})
    assert finished == DONE
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


@pytest.mark.soak  # soak only: the test before covers a logged commit without markers
@pytest.mark.needs("partition")
def test_a_new_coordinator_writes_markers_that_could_not_be_sent(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    """Let the coordinator log a commit and then kill it before it can write the markers.

    The coordinator cannot open connections. The other brokers can still fetch from it and replicate its
    decision.
    """
    ident, topic = case.transactional_id, case.topic("t", [[1, 2, 3], [2, 1, 3]])
    places, since = [(topic, 0), (topic, 1)], time.time_ns()
    home = lead(cluster, TRANSACTION_TOPIC, ident, 3)
    producer = opened(case, topic, {0: 3, 1: 2})
    pid = case.describe().producer_id
    cut = inject(cluster, Partition(direction="out"), "kafka-3").start()
    killed = inject(cluster, Kill(), "kafka-3")
    try:
        ended = producer.commit()
        at_kill, before = decisions(cluster, ident, since), markers(cluster, places, since, pid)
        killed.start()
        finished = wait_decisions(cluster, ident, since, DONE)
        marks, seen = markers(cluster, places, since, pid), visible(case, topic)
        moved = coordinator_home(cluster, TRANSACTION_TOPIC, ident)
    finally:
        killed.heal()
        cut.heal()
    following = producer.whole({0: 1, 1: 1})
    judged = case.judge()
    evidence(
        ended=ended,
        at_kill=at_kill,
        finished=finished,
        epochs=[home.leader_epoch, *epochs(marks)],
        seen=seen,
        verdict=judged.verdict,
    )
    assert [ended.name, following.name] == [OK] * 2
    assert (at_kill, before) == (["PrepareCommit"], [])
    assert finished == DONE
    assert epochs(marks) == [moved.leader_epoch]
    assert moved.leader_epoch > home.leader_epoch
    assert (moved.leader != 3, seen) == (True, {0: 3, 1: 2})
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


@pytest.mark.parametrize(
    "commits", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["commit", "abort"]
)
def test_pending_offsets_survive_a_kill_of_the_group_coordinator(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence, commits: bool
) -> None:
    source, topic, group = case.topic("s", 1), case.topic("t"), f"{case.name}-g"
    lead(cluster, TRANSACTION_TOPIC, case.transactional_id, 3)
    lead(cluster, OFFSETS_TOPIC, group, 1)

    def position(*, stable: bool = True) -> CommittedOffset:
        return committed_offset(
            cluster.admin, cluster.group_coordinator(group), group, (source, 0), stable=stable
        )

    producer = opened(case, topic, {1: 3})
    assert producer.offsets(group, source, 0, 3).ok
    before = position(), position(stable=False)
    with inject(cluster, Kill(), f"group_coordinator({group})") as kill:
        # The next coordinator reads the pending offsets from its replica of the offsets topic.
        during = wait_until(position, 20, "the next group coordinator to answer")
        ended = producer.commit() if commits else producer.abort()
        wait_until(lambda: position().error == "NONE", 20, "the position to be stable")
        after = position()
    following = producer.whole({1: 2})
    judged = case.judge()
    evidence(killed=kill.bite, before=before, during=during, ended=ended, after=after, verdict=judged.verdict)
    assert kill.names == ["kafka-1"]
    assert before == ((-1, "UNSTABLE_OFFSET_COMMIT"), (-1, "NONE"))
    assert during == (-1, "UNSTABLE_OFFSET_COMMIT")
    assert [ended.name, following.name] == [OK] * 2
    assert after == (3 if commits else -1, "NONE")
    assert visible(case, topic) == {0: 0, 1: 5 if commits else 2, 2: 0}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
