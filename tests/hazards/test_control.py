"""Control test with Kafka's Java client: a late EndTxn is refused only with transaction version 2.

A late EndTxn belongs to a transaction that has already ended. If the coordinator accepts this EndTxn, it ends
the producer's next transaction (docs/hazards.md).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.base.errors import ExitCode
from harness.cluster.cluster import Cluster
from harness.walkthroughs.endtxn_control import REFUSED, TITLES, VARIANTS
from tests.hazards.conftest import CHANGED, WalkedThrough, run_walkthrough

pytestmark = [pytest.mark.cluster, pytest.mark.jdk]


@pytest.fixture(scope="module")
def walked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> WalkedThrough:
    """Run the walkthrough once, with one attempt per case; return its outcome and events."""
    return run_walkthrough(
        cluster, tmp_path_factory.mktemp("runs"), "delayed-endtxn-control", walkthrough__tries="1"
    )


@pytest.mark.parametrize("step", [1, 4], ids=["at first", "restored"])
def test_transaction_version_2_refuses_the_late_endtxn(
    walked: WalkedThrough, evidence: Callable[..., None], step: int
) -> None:
    tries = walked.tries(step)
    evidence(tries=tries)
    assert walked.missing(step) == ""
    assert {t["late_answer"] for t in tries} == {REFUSED}
    assert [t["found"] for t in tries] == [[]] * len(tries)


@pytest.mark.parametrize(("step", "level"), [(2, 1), (3, 0)])
def test_an_older_transaction_version_has_the_hazard(
    walked: WalkedThrough, evidence: Callable[..., None], step: int, level: int
) -> None:
    tries = walked.tries(step)
    evidence(level=level, tries=tries)
    assert set(walked.steps[step - 1].evidence["level"]["level"].values()) == {level}
    assert walked.missing(step) == ""
    assert len(tries) == len(VARIANTS)


def test_the_run_ends_as_the_scenario_expects(walked: WalkedThrough) -> None:
    assert len(walked.steps) == len(TITLES)
    assert walked.outcome.expected, CHANGED
    assert walked.outcome.exit_code is ExitCode.ANOMALY


@pytest.mark.soak
def test_twenty_of_twenty_attempts_give_the_same_result(
    cluster: Cluster, tmp_path: object, evidence: Callable[..., None]
) -> None:
    ran = run_walkthrough(cluster, tmp_path, "delayed-endtxn-control", walkthrough__tries="20")  # type: ignore[arg-type]
    evidence(claims=[c.observed for s in ran.steps for c in s.claims])
    assert [ran.missing(step.number) for step in ran.steps] == [""] * len(TITLES)
