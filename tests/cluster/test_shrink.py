"""The search for a smaller scenario on a real cluster: the smaller scenario fails with the same anomaly."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from harness.base.units import Duration, Span
from harness.cluster.cluster import Cluster
from harness.cluster.targets import Target
from harness.report import results
from harness.run.shrink import SearchLimits, failed_run, shrink, size_of
from harness.scenario import FaultEntry, Scenario, Workload, find, load
from harness.testing.plugin import Ran

pytestmark = pytest.mark.cluster
TOY = Path(__file__).parents[1] / "toy" / "toy.toml"


def with_ballast(scenario: Scenario) -> Scenario:
    """Return the scenario with one more workload and one more fault, neither of which causes its failure."""
    ballast = FaultEntry(fault="sever", target=Target.parse("one"), at=Duration(2), lasts=Span(1, 1))
    return msgspec.structs.replace(
        scenario,
        workload=[*scenario.workload, Workload(kind="transactional", rate=100)],
        fault=[*scenario.fault, ballast],
        plan=msgspec.structs.replace(scenario.plan, steady=Duration(1), duration=Duration(6)),
        # Leave out Spark: it has its own tests, and each run of the search would start it again.
        verify=msgspec.structs.replace(scenario.verify, witnesses=["reader"]),
    )


@pytest.mark.parametrize("most_runs", [2, pytest.param(None, marks=pytest.mark.soak)])
def test_parts_that_do_not_contribute_to_the_failure_are_removed(
    cluster: Cluster, run_scenario: Callable[..., Ran], most_runs: int | None
) -> None:
    """With a limit of two runs, the search removes only a fault and shortens the run.

    Without a limit, it also removes clients.
    """
    whole = with_ballast(load(find("without-idempotence")))
    ran = run_scenario(whole)
    assert ran.judgement.names() == ["duplicate"], ran.judgement
    lines: list[str] = []
    limits = SearchLimits(budget=math.inf, tries=1, repeats=1, most_runs=most_runs)

    file = shrink(cluster, failed_run(ran.directory), limits, lines.append)

    smallest = load(file)
    assert [entry.fault for entry in smallest.fault] == ["lose_response"], lines
    assert "idempotent" in [workload.kind for workload in smallest.workload], lines
    assert smallest.scenario.anomalies == ["duplicate"]
    assert "it broke in 1 of 1 runs" in smallest.scenario.shows
    assert any(size_of(smallest) in line and "invalid duplicate" in line for line in lines)
    runs = results.read(ran.directory / "shrink" / results.NAME)
    reports = list((ran.directory / "shrink").glob("without-idempotence/*-*/report.html"))
    assert len(runs) == len(reports) >= 3, "each run of the search has the files of any run"
    assert smallest.plan.steady + smallest.plan.duration < whole.plan.steady + whole.plan.duration
    if most_runs is None:
        assert len(smallest.workload) == 1, lines


@pytest.mark.soak
def test_a_run_of_an_application_is_shrunk(cluster: Cluster, run_scenario: Callable[..., Ran]) -> None:
    changes = {"app.env.MISTAKE": "filter-too-wide", "verify.witnesses": '["reader"]', "plan.duration": "6s"}
    ran = run_scenario(load(TOY, changes))
    assert ran.judgement.names() == ["never_processed"], ran.judgement
    limits = SearchLimits(budget=math.inf, tries=1, repeats=1, most_runs=2)

    smallest = load(shrink(cluster, failed_run(ran.directory), limits, print))

    assert smallest.app is not None
    assert (smallest.app.instances, smallest.fault) == (1, [])
    assert smallest.scenario.anomalies == ["never_processed"]
