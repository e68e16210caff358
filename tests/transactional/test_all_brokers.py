"""A kill of all brokers: a logged commit is completed, and an abandoned transaction is aborted."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.base.waits import wait_until
from harness.clients.scripted.transactional_producer import OK
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS
from harness.evidence.checkers.model import Evidence as Judged
from harness.evidence.checkers.model import Expect
from harness.evidence.checkers.verdict import judge
from harness.evidence.history import HistoryFile, HistoryWriter, history_files
from harness.evidence.ledger import fold
from harness.faults import Kill, inject
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.walkthroughs.transaction_evidence import markers
from tests.client_case import RUN, text
from tests.outages import restart_broker
from tests.tapped import Evidence
from tests.transactional.transactional_case import TransactionalCase
from tests.transactional.under_faults import (
    DONE,
    Laps,
    decided_by,
    decisions,
    lead,
    opened,
    visible,
    wait_decisions,
    wake,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timing]

ORDERS = list(itertools.permutations(BROKER_IDS))
TIMEOUT_MS = 6_000
LIMIT_S = 120.0
"""Time limit in seconds for a commit while all brokers are down.

On a busy machine, three brokers that started one after the other took over a minute.
"""
STALL_MS = 5_000


@pytest.mark.parametrize(
    "order",
    [ORDERS[-1], *(pytest.param(o, marks=pytest.mark.soak) for o in ORDERS[:-1])],
    ids=lambda order: "".join(map(str, order)),
)
def test_transactions_survive_a_kill_of_all_brokers(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence, order: Sequence[int]
) -> None:
    """Kill all brokers while three transactions are unfinished.

    The coordinator has logged the commit of the first transaction, but one of its markers is missing. The
    producer of the second transaction sends nothing more. The producer of the third one requests its commit
    while the brokers are down.
    """
    topic, since = case.topic("t", [[1, 2, 3], [2, 3, 1]]), time.time_ns()
    names = {kind: f"{case.name}-{kind}" for kind in ("decided", "left", "waiting")}
    faults = case.folder / "history" / "faults.jsonl"
    with (
        HistoryWriter(faults, run=RUN, client="faults", role="faults") as journal,
        decided_by(cluster, names["decided"], [3, 2]),
        ThreadPoolExecutor(1) as pool,
    ):
        for kind in ("left", "waiting"):
            lead(cluster, TRANSACTION_TOPIC, names[kind], 2)
        decided = opened(case, topic, {0: 3, 1: 2}, transactional_id=names["decided"])
        opened(case, topic, {0: 4}, transactional_id=names["left"], transaction_timeout_ms=TIMEOUT_MS)
        waits = opened(
            case, topic, {1: 5}, transactional_id=names["waiting"], transaction_timeout_ms=int(LIMIT_S * 1000)
        )
        pid = case.describe(names["decided"]).producer_id
        # The commit must lack a marker, so kill broker 1, the leader of partition 0. The metadata still name
        # broker 1 as leader when the coordinator wants to send the marker.
        kills = [inject(cluster, Kill(), "kafka-1", journal=journal).start()]
        try:
            ended, killed_at = decided.commit(), time.time_ns()
            kills += [inject(cluster, Kill(), f"kafka-{b}", journal=journal).start() for b in (3, 2)]
            lap = Laps()
            waiting = pool.submit(waits.commit, LIMIT_S)
            led = {}
            for broker in order:
                led[broker] = restart_broker(cluster, broker, topic)
                lap(f"broker {broker}")
        finally:
            for kill in kills:
                kill.heal()
        lap("all serve")
        waited = waiting.result(LIMIT_S)
        lap("the commit that waited")
        wake(cluster, case, topic, names["decided"])
        finished = wait_decisions(cluster, names["decided"], since, DONE)
        at_kill = decisions(cluster, names["decided"], since, killed_at)
        aborted = wait_decisions(cluster, names["left"], since, ["PrepareAbort", "CompleteAbort"])
        following = decided.whole({0: 1, 1: 1})
        wait_until(lambda: stable(cluster, topic), 20, "the last stable offsets to reach the ends")
        marks = markers(cluster, [(topic, 0), (topic, 1)], since, pid)
        lap("markers")
    judged, seen = case.judge(topic), visible(case, topic)
    commits = [mark.what for mark in marks if mark.partition == 0].count("commit")
    evidence(
        order=order,
        at_kill=at_kill,
        leaders_after_each=led,
        after_s=lap.seen,
        ended=ended,
        waited=waited,
        finished=finished,
        aborted=aborted,
        seen=seen,
        commits=commits,
        verdict=judged.verdict,
    )
    assert (ended.name, at_kill) == (OK, ["PrepareCommit"])
    assert (finished, aborted) == (DONE, ["PrepareAbort", "CompleteAbort"])
    assert [m.what for m in marks if m.partition == 0][:1] == ["commit"]
    assert (waited.name, following.name) == (OK, OK)
    assert seen == {0: 5, 1: 8}  # one record in partition 0 comes from `wake`
    # Partition 0 may have no leader when the coordinator sends the missing marker. Then the coordinator skips
    # the marker (docs/hazards.md), and the commit of the following transaction ends both. The verdict must
    # report this, and nothing else.
    assert commits in (1, 2)
    expected = ("valid", []) if commits == 2 else ("invalid", ["wrong_transaction"])
    assert (judged.verdict, judged.names()) == expected, text(judged)

    # The third transaction's commit waited because brokers were down. The history of the faults shows this,
    # so the checker must not report the commit as stalled. Without that history, and with a limit of half the
    # wait, the checker must report it.
    files = list(history_files(case.folder / "history"))
    assert liveness(files, STALL_MS) == []
    blind = [file for file in files if file.path != faults]
    assert "stalled" in liveness(blind, int(waited.seconds * 500))


def liveness(files: list[HistoryFile], stall_ms: int) -> list[str]:
    expect = Expect(properties=["liveness"], stall_ms=stall_ms)
    return judge(Judged(fold(files), [], expect)).names()


def stable(cluster: Cluster, topic: str) -> bool:
    return all(end.last_stable == end.high_watermark for end in cluster.end_offsets(topic).values())
