"""The pipeline under load and faults of links, workers and nodes: the verdict is always valid."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from harness.evidence.history import Invoke
from harness.testing.plugin import Ran
from tests.client_case import text
from tests.histories import bites, lines
from tests.tapped import Evidence

pytestmark = pytest.mark.cluster


class Load(NamedTuple):
    """A scenario, changes of its settings, and the faults that must take effect."""

    scenario: str
    bites: set[str]
    changes: dict[str, str]


def load(scenario: str, *bites: str, **changes: str) -> Load:
    # Leave out Spark: it has its own tests, and here it would only compete for the processor.
    return Load(scenario, set(bites), {"plan__steady": "1s", "verify__witnesses": '["reader"]'} | changes)


LONG = {"plan__duration": "60s", "plan__steady": "5s"}
NEWER = {"workload__1__protocol": "consumer"}
MOVED = 'topic = "invoices", partition = 0, on = [2, 3], back = [1, 2, 3], lasts = "1s"'
# A restart of all six nodes takes a minute in containers, so these faults restart only two of them.
TWO_NODES = f"""[
    {{ fault = "restart", target = "kafka-1", at = "0s", lasts = "0s" }},
    {{ fault = "restart", target = "controller-11", at = "1s", lasts = "0s" }},
    {{ fault = "placement", target = "all", at = "2s", {MOVED} }},
]"""
CASES = {
    "latency": load("latency", "jitter", plan__duration="20s"),
    "rebalances": load("rebalance-storm", "retire_client", "crash_client", plan__duration="8s"),
}
SOAK = {
    "resets": load("resets", "sever", plan__duration="8s"),
    "restarts": load("rolling-restart", "restart", "placement", plan__duration="8s", fault=TWO_NODES),
    "long latency": load("latency", "jitter", **LONG),
    "long resets": load("resets", "sever", **LONG),
    "long rebalances": load("rebalance-storm", "retire_client", "crash_client", **LONG),
    "long rebalances, newer protocol": load(
        "rebalance-storm", "retire_client", "crash_client", **LONG, **NEWER
    ),
    "long restarts": load("rolling-restart", "restart", "placement", **LONG),
}


def assigned_after(ran: Ran, wall: int) -> int:
    """Return how often workers were assigned partitions after the wall-clock time `wall`, in ns."""
    then = time.strftime("%H:%M:%S", time.localtime(wall / 1e9))
    logs = [path.read_text() for path in (ran.directory / "logs").glob("pipeline-*.log")]
    return sum(line.split()[0] > then for log in logs for line in log.splitlines() if " assigned [" in line)


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(name, marks=pytest.mark.soak) for name in SOAK)])
def test_a_pipeline_under_load_stays_exactly_once(
    run_scenario: Callable[..., Ran], evidence: Evidence, case: str
) -> None:
    load = (CASES | SOAK)[case]
    ran = run_scenario(load.scenario, **load.changes)

    bitten = bites(ran.directory)
    asked = Counter(line.f for line in lines(ran.directory, Invoke))
    compared = {result.property: result.compared for result in ran.judgement.results}
    moved = assigned_after(ran, bitten[0].wall)
    evidence(
        bites=Counter(bite.fault for bite in bitten),
        shown=[bite.measured for bite in bitten][-1],
        commits=asked["commit"],
        new_producers=asked["reinit"],
        compared=compared,
        assigned_after=moved,
        verdict=ran.verdict,
    )
    assert ran.verdict == "valid", text(ran.judgement)
    assert {bite.fault for bite in bitten} == load.bites
    assert moved or "retire_client" not in load.bites
    assert min(compared["pipeline"], compared["atomicity"], compared["offsets"]) > 0
