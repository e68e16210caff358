"""The skipped marker with other clients, and with transaction version 2: nobody is spared."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from harness.base.errors import ExitCode
from harness.clients.scripted import java_client
from harness.cluster.cluster import Cluster
from harness.faults import FeatureLevel, Injection
from harness.walkthroughs.skipped_clients import TITLES
from tests.hazards.conftest import CHANGED, WalkedThrough, run_flow

pytestmark = pytest.mark.cluster

SCENARIO = "skipped-marker-clients"
TV2_END = 5
"""The first version of EndTxn that belongs to transaction version 2."""


@pytest.fixture(scope="module")
def flow(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> WalkedThrough:
    """One run of the flow, with Java where there is a compiler for it."""
    libraries = ["kafka-python", *([] if java_client.jdk_problem() else [java_client.NAME])]
    folder = tmp_path_factory.mktemp("runs")
    return run_flow(cluster, folder, SCENARIO, flow__libraries=json.dumps(libraries))


@pytest.mark.parametrize("step", range(1, len(TITLES) + 1), ids=TITLES)
@pytest.mark.parametrize("library", ["kafka-python", pytest.param("java", marks=pytest.mark.jdk)])
def test_each_client_is_as_exposed(
    flow: WalkedThrough, evidence: Callable[..., None], library: str, step: int
) -> None:
    told = [c for c in flow.steps[step - 1].claims if c.observed.startswith(f"{library}: ")]
    evidence(claims=[c.observed for c in told])
    assert told, f"the step has seen nothing of {library}"
    missing = [f"{c.textbook}: {c.observed}" for c in told if c.comparison == "missing"]
    assert not missing, f"{'; '.join(missing)}. {CHANGED}"


@pytest.mark.jdk
def test_the_java_client_spoke_transaction_version_2(
    flow: WalkedThrough, evidence: Callable[..., None]
) -> None:
    shown = flow.steps[0].evidence
    evidence(levels=shown["levels"], versions=shown["versions"])
    assert set(shown["levels"].values()) == {2}
    assert min(shown["versions"][java_client.NAME]) >= TV2_END


def test_the_run_ends_as_it_was_announced(flow: WalkedThrough, evidence: Callable[..., None]) -> None:
    judgement = flow.outcome.judgement
    evidence(verdict=judgement.verdict, anomalies=sorted(set(judgement.names())))
    assert set(judgement.names()) == {"lost", "torn_transaction"}
    assert flow.outcome.expected
    assert flow.outcome.exit_code is ExitCode.ANOMALY


@pytest.mark.soak
@pytest.mark.jdk
@pytest.mark.parametrize("level", [2, 1, 0])
def test_ten_of_ten(cluster: Cluster, tmp_path: Path, evidence: Callable[..., None], level: int) -> None:
    lowered = FeatureLevel(level=level)
    with Injection(cluster, lowered, "all") if level != lowered.back else nullcontext():
        ran = run_flow(cluster, tmp_path, SCENARIO, flow__tries="5")
    evidence(level=level, claims=[c.observed for s in ran.steps for c in s.claims])
    assert [ran.missing(step.number) for step in ran.steps] == [""] * len(TITLES)
