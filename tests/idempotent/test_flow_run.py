"""The flow from end to end: seven steps with their evidence, and no verdict where a step is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.checker.run import check_run
from harness.cluster.cluster import Cluster
from harness.errors import ExitCode
from harness.events import Event, Phase
from harness.flows.document import NAME, document
from harness.narrative import FILE, FlowStep
from harness.plan import draw
from harness.run import make_run
from harness.scenario import find, load
from harness.store import RunDirectory
from tests.idempotent.conftest import Evidence

pytestmark = [pytest.mark.cluster, pytest.mark.spark]


@pytest.mark.timing
def test_the_flow_is_valid_and_each_step_has_its_evidence(
    cluster: Cluster, tmp_path: Path, evidence: Evidence
) -> None:
    told: list[Event] = []
    scenario = load(find("idempotent-flow"))
    outcome = make_run(cluster, scenario, draw(scenario, 1), tmp_path, [told.append]).execute()

    run = RunDirectory.open(outcome.directory)
    steps = run.read(FILE, list[FlowStep])
    evidence(verdict=outcome.judgement.verdict, claims=[c.observed for s in steps for c in s.claims])
    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    assert [step.number for step in steps] == list(range(1, 8))
    assert [step.missing for step in steps] == [[]] * 7
    narrated = [event.name for event in told if isinstance(event, Phase)]
    assert [name for name in narrated if name.startswith("step")] == [f"step {n}" for n in range(1, 8)]
    page = (outcome.directory / NAME).read_text()
    assert page == document(outcome.directory)
    assert "sequenceDiagram" in page
    assert "(retry of" in page

    # Judged again it is the same; without a step that it promised, nothing is proved.
    before = (outcome.directory / "verdict.json").read_bytes()
    assert check_run(outcome.directory)[0] is ExitCode.VALID
    assert (outcome.directory / "verdict.json").read_bytes() == before
    run.write(FILE, steps[:-1])
    assert check_run(outcome.directory)[0] is ExitCode.UNKNOWN
