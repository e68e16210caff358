"""Coordinators that are killed: before the end, between decision and markers, after it, with offsets."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.faults import Kill, Partition, Pause, inject
from harness.kafka.group_offsets import CommittedOffset, committed_offset
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.walkthroughs.broker_evidence import replica_log
from harness.walkthroughs.transaction_evidence import coordinator_home, markers
from tests.rig import text
from tests.tapped import Evidence
from tests.transactional.bench import Bench
from tests.transactional.scripted_producer import OK
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
def test_the_coordinator_is_killed(cluster: Cluster, bench: Bench, evidence: Evidence, when: str) -> None:
    ident, topic, since = bench.transactional_id, bench.topic("t", [[1, 2, 3], [2, 1, 3]]), time.time_ns()
    home = lead(cluster, TRANSACTION_TOPIC, ident, 3)
    told = opened(bench, topic, {0: 3, 1: 2})
    if when == "after the end":
        ended = told.commit()
        wait_decisions(cluster, ident, since, DONE)
    with inject(cluster, Kill(), f"txn_coordinator({ident})") as kill:
        if when == "before the end":
            ended = told.commit()
        following = told.whole({0: 2, 1: 2})
        noted = wait_decisions(cluster, ident, since, DONE * 2)
        moved = coordinator_home(cluster, TRANSACTION_TOPIC, ident)
    marks = markers(cluster, [(topic, 0), (topic, 1)], since, bench.known().producer_id)
    judged, seen = bench.judge(), visible(bench, topic)
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
    assert (ended.said, following.said) == (OK, OK)
    assert noted == DONE * 2
    # One marker for each transaction in each partition, written by whoever coordinator_home it.
    assert Counter((m.partition, m.what) for m in marks) == {(0, "commit"): 2, (1, "commit"): 2}
    before = [home.leader_epoch] if when == "after the end" else []
    assert epochs(marks) == [*before, moved.leader_epoch]
    assert seen == {0: 5, 1: 4}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


@pytest.mark.parametrize(
    "woken", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["woken", "left alone"]
)
def test_the_coordinator_is_killed_between_its_decision_and_the_markers(
    cluster: Cluster, bench: Bench, evidence: Evidence, woken: bool
) -> None:
    """One partition's leader is frozen: its marker waits, and the client is told of the commit without it."""
    ident, topic = bench.transactional_id, bench.topic("t", [[3, 1, 2], [1, 3, 2]])
    places = [(topic, 0), (topic, 1)]
    lap = Laps()
    # The frozen broker must not be one that the decision waits for.
    with decided_by(cluster, ident, [2, 1]) as home:
        lap("placed")
        since = time.time_ns()
        told = opened(bench, topic, {0: 3, 1: 2})
        pid = bench.known().producer_id
        lap("opened")
        frozen = inject(cluster, Pause(), "kafka-3").start()
        killed = inject(cluster, Kill(), "kafka-2")
        try:
            ended, killed_at = told.commit(), time.time_ns()
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
            moved, seen = coordinator_home(cluster, TRANSACTION_TOPIC, ident), visible(bench, topic)
        finally:
            frozen.heal()
            killed.heal()
        lap("all serve")
        at_kill, unfinished = decisions(cluster, ident, since, killed_at), decisions(cluster, ident, since)
        if woken:
            wake(cluster, bench, topic, ident)
        finished = wait_decisions(cluster, ident, since, DONE)
        lap("finished")
        following = told.whole({0: 1, 1: 1})
        lap("next")
    lap("placed back")
    judged = bench.judge()
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
    assert ended.said == following.said == OK
    assert (at_kill, unmarked) == (["PrepareCommit"], [None])
    assert {m.what for m in marks} == {"commit"}
    # It writes a marker everywhere, also where there is one: a second one ends nothing, and harms nothing.
    assert epochs(marks)[-1] == moved.leader_epoch > home.leader_epoch
    assert (moved.leader, seen) == (1, {0: 3, 1: 2})
    assert finished == DONE
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


@pytest.mark.soak  # the same gap, opened another way
@pytest.mark.needs("partition")
def test_the_coordinator_is_killed_when_it_cannot_send_its_markers(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    """It is cut from opening connections to the others, who still replicate what it decides."""
    ident, topic = bench.transactional_id, bench.topic("t", [[1, 2, 3], [2, 1, 3]])
    places, since = [(topic, 0), (topic, 1)], time.time_ns()
    home = lead(cluster, TRANSACTION_TOPIC, ident, 3)
    told = opened(bench, topic, {0: 3, 1: 2})
    pid = bench.known().producer_id
    cut = inject(cluster, Partition(direction="out"), "kafka-3").start()
    killed = inject(cluster, Kill(), "kafka-3")
    try:
        ended = told.commit()
        at_kill, before = decisions(cluster, ident, since), markers(cluster, places, since, pid)
        killed.start()
        finished = wait_decisions(cluster, ident, since, DONE)
        marks, seen = markers(cluster, places, since, pid), visible(bench, topic)
        moved = coordinator_home(cluster, TRANSACTION_TOPIC, ident)
    finally:
        killed.heal()
        cut.heal()
    following = told.whole({0: 1, 1: 1})
    judged = bench.judge()
    evidence(
        ended=ended,
        at_kill=at_kill,
        finished=finished,
        epochs=[home.leader_epoch, *epochs(marks)],
        seen=seen,
        verdict=judged.verdict,
    )
    assert ended.said == following.said == OK
    assert (at_kill, before) == (["PrepareCommit"], [])
    assert finished == DONE
    assert epochs(marks) == [moved.leader_epoch]
    assert moved.leader_epoch > home.leader_epoch
    assert (moved.leader != 3, seen) == (True, {0: 3, 1: 2})
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


@pytest.mark.parametrize(
    "commits", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["commit", "abort"]
)
def test_the_group_coordinator_is_killed_between_offsets_and_the_end(
    cluster: Cluster, bench: Bench, evidence: Evidence, commits: bool
) -> None:
    source, topic, group = bench.topic("s", 1), bench.topic("t"), f"{bench.name}-g"
    lead(cluster, TRANSACTION_TOPIC, bench.transactional_id, 3)
    lead(cluster, OFFSETS_TOPIC, group, 1)

    def position(*, stable: bool = True) -> CommittedOffset:
        return committed_offset(
            cluster.admin, cluster.group_coordinator(group), group, (source, 0), stable=stable
        )

    told = opened(bench, topic, {1: 3})
    assert told.offsets(group, source, 0, 3).said == OK
    before = position(), position(stable=False)
    with inject(cluster, Kill(), f"group_coordinator({group})") as kill:
        # What is pending is known to the next coordinator too: it stands in its log.
        during = wait_until(position, 20, "the next group coordinator to answer")
        ended = told.commit() if commits else told.abort()
        wait_until(lambda: position().error == "NONE", 20, "the position to be stable")
        after = position()
    following = told.whole({1: 2})
    judged = bench.judge()
    evidence(killed=kill.bite, before=before, during=during, ended=ended, after=after, verdict=judged.verdict)
    assert kill.names == ["kafka-1"]
    assert before == ((-1, "UNSTABLE_OFFSET_COMMIT"), (-1, "NONE"))
    assert during == (-1, "UNSTABLE_OFFSET_COMMIT")
    assert ended.said == following.said == OK
    assert after == (3 if commits else -1, "NONE")
    assert visible(bench, topic) == {0: 0, 1: 5 if commits else 2, 2: 0}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
