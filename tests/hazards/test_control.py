"""The control: Kafka's own Java client with transaction version 2 is safe, and exposed without."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.base.errors import ExitCode
from harness.cluster.cluster import Cluster
from harness.walkthroughs.endtxn_control import REFUSED, TITLES, VARIANTS
from tests.hazards.conftest import WalkedThrough, run_flow

pytestmark = [pytest.mark.cluster, pytest.mark.jdk]


@pytest.fixture(scope="module")
def flow(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> WalkedThrough:
    """One run of the flow, one try of each kind."""
    return run_flow(cluster, tmp_path_factory.mktemp("runs"), "delayed-endtxn-control", flow__tries="1")


@pytest.mark.parametrize("step", [1, 4], ids=["at first", "restored"])
def test_transaction_version_2_refuses_the_late_end(
    flow: WalkedThrough, evidence: Callable[..., None], step: int
) -> None:
    tries = flow.tries(step)
    evidence(tries=tries)
    assert flow.missing(step) == ""
    assert {t["late_answer"] for t in tries} == {REFUSED}
    assert [t["found"] for t in tries] == [[]] * len(tries)


@pytest.mark.parametrize(("step", "level"), [(2, 1), (3, 0)])
def test_the_hazard_is_back_on_an_older_version(
    flow: WalkedThrough, evidence: Callable[..., None], step: int, level: int
) -> None:
    tries = flow.tries(step)
    evidence(level=level, tries=tries)
    assert set(flow.steps[step - 1].evidence["level"]["level"].values()) == {level}
    assert flow.missing(step) == ""
    assert len(tries) == len(VARIANTS)


def test_the_run_ends_as_it_was_announced(flow: WalkedThrough) -> None:
    assert len(flow.steps) == len(TITLES)
    assert flow.outcome.expected
    assert flow.outcome.exit_code is ExitCode.ANOMALY


@pytest.mark.soak
def test_twenty_of_twenty(cluster: Cluster, tmp_path: object, evidence: Callable[..., None]) -> None:
    ran = run_flow(cluster, tmp_path, "delayed-endtxn-control", flow__tries="20")  # type: ignore[arg-type]
    evidence(claims=[c.observed for s in ran.steps for c in s.claims])
    assert [ran.missing(step.number) for step in ran.steps] == [""] * len(TITLES)
