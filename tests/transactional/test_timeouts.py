"""Transactions that exceed their time-out: the coordinator aborts them in time."""

from __future__ import annotations

import time
from functools import partial

import pytest

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.kafka import transactions as by_hand
from harness.kafka.brokers import setting
from harness.kafka.errors import error_name
from harness.walkthroughs.transaction_evidence import states
from tests.client_case import text
from tests.tapped import Evidence, Frames
from tests.transactional.transactional_case import TransactionalCase, markers, refusals

pytestmark = pytest.mark.cluster

SWEEP = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
TIMEOUTS_MS = (2_000, 3_000, 4_000)
LATE_S = 1.0
"""Tolerance in seconds: on a busy machine, the coordinator may look for expired transactions late."""


def test_the_coordinator_aborts_a_transaction_after_its_timeout(
    cluster: Cluster, case: TransactionalCase, frames: Frames, evidence: Evidence
) -> None:
    sweep_s = int(setting(cluster.admin, 1, SWEEP)) / 1000
    topic = case.topic("t")
    producers = {
        ms: case.producer(topic, f"{case.name}-{ms}", transaction_timeout_ms=ms) for ms in TIMEOUTS_MS
    }
    assert [producer.init().name for producer in producers.values()] == ["ok"] * len(producers)
    before, since = {}, time.time_ns()
    # Begin the transaction with the shortest time-out last, so that it is still open at the checks below.
    for ms, producer in reversed(producers.items()):
        producer.begin()
        for lane in (0, 1):
            assert producer.send(lane, 2).ok, ms
        before[ms] = case.describe(f"{case.name}-{ms}")
    held = cluster.end_offsets(topic)

    took = {}
    for ms in TIMEOUTS_MS:
        after = wait_until(partial(aborted, case, ms), 30, f"the abort after {ms} ms")
        took[ms] = round(decided(cluster, f"{case.name}-{ms}", since) - before[ms].started_ms / 1000, 3)
        assert after == (before[ms].producer_id, before[ms].epoch + 1)
    logs = [log for _, log in case.logs(topic)]
    late = {ms: producer.commit() for ms, producer in producers.items()}
    freed = cluster.end_offsets(topic)
    nothing = case.read(topic)
    successor = case.producer(topic, f"{case.name}-{TIMEOUTS_MS[0]}")
    assert successor.init().ok
    assert successor.whole({0: 2, 1: 2, 2: 2}).ok
    case.wait_ended()
    judged = case.judge()
    refused = {ms: refusals(frames(), producer.name) for ms, producer in producers.items()}
    evidence(sweep_s=sweep_s, took_s=took, late=late, broker_errors=refused, verdict=judged.verdict)

    assert {p: (e.last_stable < e.high_watermark) for p, e in held.items()} == {0: True, 1: True, 2: False}
    assert all(e.last_stable == e.high_watermark for e in freed.values())
    assert [markers(log) for log in logs] == [[0, 0, 0], [0, 0, 0], []]
    assert all("fatal" in answer.flags for answer in late.values())
    for ms, seconds in took.items():
        assert ms / 1000 <= seconds <= ms / 1000 + sweep_s + LATE_S
    assert nothing == {0: [], 1: [], 2: []}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def decided(cluster: Cluster, transactional_id: str, since: int) -> float:
    """Return the time of PrepareAbort in the transaction log, in seconds of the coordinator's clock."""
    return next(s.wall for s in states(cluster, transactional_id, since) if s.what == "PrepareAbort") / 1e9


def aborted(case: TransactionalCase, ms: int) -> tuple[int, int] | None:
    known = case.describe(f"{case.name}-{ms}")
    return (known.producer_id, known.epoch) if known.state == "CompleteAbort" else None


def test_a_timeout_above_the_brokers_maximum_is_refused(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    topic = case.topic("t")
    most = int(setting(cluster.admin, 1, "transaction.max.timeout.ms"))
    at_most = case.producer(topic, f"{case.name}-most", transaction_timeout_ms=most).init()
    above = case.producer(topic, f"{case.name}-above", transaction_timeout_ms=most + 1).init()
    raw = by_hand.initialise(cluster.admin, f"{case.name}-raw", most + 1)
    evidence(most_ms=most, at_most=at_most, above=above, by_hand=error_name(raw.code))
    assert at_most.ok
    assert (above.name, "fatal" in above.flags) == ("INVALID_TRANSACTION_TIMEOUT", True)
    assert error_name(raw.code) == "INVALID_TRANSACTION_TIMEOUT"
