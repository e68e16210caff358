"""An invalid run is made smaller on the real cluster, and what is left still breaks."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest

from harness.base.units import Duration, Span
from harness.cluster.cluster import Cluster
from harness.cluster.targets import Target
from harness.run.shrink import SearchLimits, failed_run, shrink, size_of
from harness.scenario import FaultEntry, Scenario, Workload, find, load
from harness.testing.plugin import Ran

pytestmark = pytest.mark.cluster


def with_ballast(scenario: Scenario) -> Scenario:
    """The same with a workload and a fault that have no part in what goes wrong."""
    ballast = FaultEntry(fault="sever", target=Target.parse("one"), at=Duration(2), lasts=Span(1, 1))
    return msgspec.structs.replace(
        scenario,
        workload=[*scenario.workload, Workload(kind="transactional", rate=100)],
        fault=[*scenario.fault, ballast],
        plan=msgspec.structs.replace(scenario.plan, steady=Duration(1), duration=Duration(4)),
        # Spark has its own tests; here it would be started for each try.
        verify=msgspec.structs.replace(scenario.verify, witnesses=["reader"]),
    )


@pytest.mark.parametrize("times", [1.5, pytest.param(10, marks=pytest.mark.soak)])
def test_what_has_no_part_in_the_failure_is_cut_off(
    cluster: Cluster, run_scenario: Callable[..., Ran], times: float
) -> None:
    """In so many times as long as the run itself took: on any machine that is two tries, or all of them."""
    whole = with_ballast(load(find("without-idempotence")))
    started = time.monotonic()
    ran = run_scenario(whole)
    budget = times * (time.monotonic() - started)
    assert ran.judgement.names() == ["duplicate"], ran.judgement
    said: list[str] = []

    file = shrink(
        cluster, failed_run(ran.directory), SearchLimits(budget=budget, tries=1, repeats=1), said.append
    )

    found = load(file)
    assert [entry.fault for entry in found.fault] == ["lose_response"], said
    assert "idempotent" in [workload.kind for workload in found.workload], said
    assert found.scenario.anomalies == ["duplicate"]
    assert "it broke in 1 of 1 runs" in found.scenario.shows
    assert any(size_of(found) in line and "invalid duplicate" in line for line in said)
    if times > 2:
        assert len(found.workload) == 1, said
        assert found.plan.steady + found.plan.duration < whole.plan.steady + whole.plan.duration
