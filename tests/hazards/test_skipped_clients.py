"""The skipped marker also affects other client libraries and clients with transaction version 2.

If a partition has no leader when a transaction ends, the coordinator does not write the marker for this
partition (docs/hazards.md).
"""

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
from harness.provision.java import jdk_problem
from harness.walkthroughs.skipped_marker import EVERY_LIBRARY
from tests.hazards.conftest import CHANGED, WalkedThrough, run_walkthrough

pytestmark = pytest.mark.cluster

SCENARIO = "skipped-marker-clients"
TITLES = EVERY_LIBRARY.titles
TV2_END = 5
"""Lowest version of the EndTxn request with which a client uses transaction version 2."""


@pytest.fixture(scope="module")
def walked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> WalkedThrough:
    """Run the walkthrough once; include the Java client if this machine has a Java compiler."""
    libraries = ["kafka-python", *([] if jdk_problem() else [java_client.NAME])]
    folder = tmp_path_factory.mktemp("runs")
    return run_walkthrough(cluster, folder, SCENARIO, walkthrough__libraries=json.dumps(libraries))


@pytest.mark.parametrize("step", range(1, len(TITLES) + 1), ids=TITLES)
@pytest.mark.parametrize("library", ["kafka-python", pytest.param("java", marks=pytest.mark.jdk)])
def test_each_client_is_exposed_in_each_step(
    walked: WalkedThrough, evidence: Callable[..., None], library: str, step: int
) -> None:
    claims = [c for c in walked.steps[step - 1].claims if c.observed.startswith(f"{library}: ")]
    evidence(claims=[c.observed for c in claims])
    assert claims, f"the step has no claim about {library}"
    missing = [f"{c.textbook}: {c.observed}" for c in claims if c.comparison == "missing"]
    assert not missing, f"{'; '.join(missing)}. {CHANGED}"


@pytest.mark.jdk
def test_the_java_client_used_transaction_version_2(
    walked: WalkedThrough, evidence: Callable[..., None]
) -> None:
    shown = walked.steps[0].evidence
    evidence(levels=shown["levels"], versions=shown["versions"])
    assert set(shown["levels"].values()) == {2}
    assert min(shown["versions"][java_client.NAME]) >= TV2_END


def test_the_run_ends_as_the_scenario_expects(walked: WalkedThrough, evidence: Callable[..., None]) -> None:
    judgement = walked.outcome.judgement
    evidence(verdict=judgement.verdict, anomalies=sorted(set(judgement.names())))
    assert set(judgement.names()) == {"lost", "torn_transaction"}
    assert walked.outcome.expected, CHANGED
    assert walked.outcome.exit_code is ExitCode.ANOMALY


@pytest.mark.soak
@pytest.mark.jdk
@pytest.mark.parametrize("level", [2, 1, 0])
def test_ten_of_ten_commits_lose_their_marker(
    cluster: Cluster, tmp_path: Path, evidence: Callable[..., None], level: int
) -> None:
    lowered = FeatureLevel(level=level)
    with Injection(cluster, lowered, "all") if level != lowered.back else nullcontext():
        ran = run_walkthrough(cluster, tmp_path, SCENARIO, walkthrough__tries="5")
    evidence(level=level, claims=[c.observed for s in ran.steps for c in s.claims])
    assert [ran.missing(step.number) for step in ran.steps] == [""] * len(TITLES)
