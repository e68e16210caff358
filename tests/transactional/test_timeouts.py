"""Transactions that last too long: the coordinator aborts them, in the time that was agreed."""

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
from tests.rig import text
from tests.tapped import Evidence, Frames
from tests.transactional.bench import Bench, markers, refusals

pytestmark = pytest.mark.cluster

SWEEP = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
TIMEOUTS_MS = (2_000, 3_000, 4_000)
LATE_S = 1.0
"""For a coordinator that is late with its look, on a busy machine."""


def test_the_coordinator_aborts_what_is_open_for_too_long(
    cluster: Cluster, bench: Bench, frames: Frames, evidence: Evidence
) -> None:
    sweep_s = int(setting(cluster.admin, 1, SWEEP)) / 1000
    topic = bench.topic("t")
    told = {ms: bench.told(topic, f"{bench.name}-{ms}", transaction_timeout_ms=ms) for ms in TIMEOUTS_MS}
    assert [producer.init().said for producer in told.values()] == ["ok"] * len(told)
    before, since = {}, time.time_ns()
    for ms, producer in reversed(told.items()):  # the shortest last: it must be open when it is looked at
        producer.begin()
        for lane in (0, 1):
            assert producer.send(lane, 2).said == "ok", ms
        before[ms] = bench.known(f"{bench.name}-{ms}")
    held = cluster.end_offsets(topic)

    took = {}
    for ms in TIMEOUTS_MS:
        after = wait_until(partial(aborted, bench, ms), 30, f"the abort after {ms} ms")
        took[ms] = round(decided(cluster, f"{bench.name}-{ms}", since) - before[ms].started_ms / 1000, 3)
        assert after == (before[ms].producer_id, before[ms].epoch + 1)
    logs = [log for _, log in bench.logs(topic)]
    late = {ms: producer.commit() for ms, producer in told.items()}
    freed = cluster.end_offsets(topic)
    nothing = bench.read(topic)
    successor = bench.told(topic, f"{bench.name}-{TIMEOUTS_MS[0]}")
    assert successor.init().said == "ok"
    assert successor.whole({0: 2, 1: 2, 2: 2}).said == "ok"
    bench.ended()
    judged = bench.judge()
    said = {ms: refusals(frames(), producer.name) for ms, producer in told.items()}
    evidence(sweep_s=sweep_s, took_s=took, late=late, broker_said=said, verdict=judged.verdict)

    assert {p: (e.last_stable < e.high_watermark) for p, e in held.items()} == {0: True, 1: True, 2: False}
    assert all(e.last_stable == e.high_watermark for e in freed.values())
    assert [markers(log) for log in logs] == [[0, 0, 0], [0, 0, 0], []]
    assert all("fatal" in answer.flags for answer in late.values())
    for ms, seconds in took.items():
        assert ms / 1000 <= seconds <= ms / 1000 + sweep_s + LATE_S
    assert nothing == {0: [], 1: [], 2: []}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def decided(cluster: Cluster, transactional_id: str, since: int) -> float:
    """When its coordinator noted that it aborts, in seconds of its own clock."""
    return next(s.wall for s in states(cluster, transactional_id, since) if s.what == "PrepareAbort") / 1e9


def aborted(bench: Bench, ms: int) -> tuple[int, int] | None:
    known = bench.known(f"{bench.name}-{ms}")
    return (known.producer_id, known.epoch) if known.state == "CompleteAbort" else None


def test_no_transaction_may_be_longer_than_the_broker_allows(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    topic = bench.topic("t")
    most = int(setting(cluster.admin, 1, "transaction.max.timeout.ms"))
    at_most = bench.told(topic, f"{bench.name}-most", transaction_timeout_ms=most).init()
    above = bench.told(topic, f"{bench.name}-above", transaction_timeout_ms=most + 1).init()
    raw = by_hand.initialise(cluster.admin, f"{bench.name}-raw", most + 1)
    evidence(most_ms=most, at_most=at_most, above=above, by_hand=error_name(raw.code))
    assert at_most.said == "ok"
    assert (above.said, "fatal" in above.flags) == ("INVALID_TRANSACTION_TIMEOUT", True)
    assert error_name(raw.code) == "INVALID_TRANSACTION_TIMEOUT"
