"""A stateful pipeline that writes its counts and sums by key to a changelog topic in its transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.model import Expect, Pipeline
from harness.evidence.history import Ok
from harness.faults import CrashClient, inject
from harness.testing.plugin import Ran
from tests.client_case import examples_of, operations, text
from tests.histories import bites, lines
from tests.tapped import Evidence
from tests.transactional.transactional_case import TransactionalCase

pytestmark = pytest.mark.cluster


ONE_KILL = '[{ fault = "kill", target = "leader_of(totals, 0)", at = "1s", lasts = "1s" }]'
SHORT = {
    "plan__duration": "6s",
    "plan__steady": "1s",
    "workload__1__abort_share": "0.3",
    "fault": ONE_KILL,
    "verify__witnesses": '["reader"]',
}


@pytest.mark.parametrize(
    "changes", [SHORT, pytest.param({}, marks=pytest.mark.soak)], ids=["one kill", "a minute"]
)
def test_totals_match_the_inputs_after_the_changelogs_leader_is_killed(
    run_scenario: Callable[..., Ran], evidence: Evidence, changes: dict[str, str]
) -> None:
    ran = run_scenario("running-totals", **changes)

    bitten = Counter(bite.fault for bite in bites(ran.directory))
    rebuilt = sum(line.f == "restore" for line in lines(ran.directory, Ok))
    compared = {result.property: result.compared for result in ran.judgement.results}
    evidence(bites=bitten, rebuilt=rebuilt, compared=compared, verdict=ran.verdict)
    assert ran.verdict == "valid", text(ran.judgement)
    assert bitten["kill"] > 0
    # Workers restore the state of each of the three partitions once at the start. They restore it again only
    # after an abort or a takeover.
    assert rebuilt > 3
    assert compared["aggregates"] > 0


def test_positions_outside_the_transaction_count_inputs_twice(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    """Kill a worker after it has committed the totals of its inputs and before it commits their offsets.

    Its successor reads these inputs again and adds them to the totals a second time.
    """
    source, sink, group = case.topic("source"), case.topic("sink"), f"{case.name}-g"
    log = case.topic("totals", cleanup_policy="compact")
    writer = case.transactional(source, abort_share=0.0)
    case.wait_committed(writer, more_than=10)
    assert writer.stop() == 0
    stateful = {"changelog": log, "changelog_partitions": 3, "positions": "apart", "abort_share": 0.0}
    first = case.pipeline(source, sink, records=(10**6, 10**6), work=60.0, **stateful)
    wait_until(lambda: any(isinstance(o, Ok) for o in operations(first, "commit")), 60, "a commit")
    with inject(cluster, CrashClient(), "client(first)", process=first) as crash:
        between = operations(first, "commit_offsets")
    second = case.pipeline(source, sink, **stateful)
    case.wait_caught_up(source, group)
    assert second.stop() == 0

    judged = case.judge(expect=Expect(pipeline=Pipeline(group=group, inputs=[source], changelog=log)))
    drift = examples_of(judged, "aggregate_drift")
    evidence(crash=crash.bite, between=between, names=judged.names(), drift=drift[:1])
    assert between == []
    assert {"aggregate_drift", "processed_twice"} <= set(judged.names()), text(judged)
    assert all("inputs too many" in what for what in drift)
