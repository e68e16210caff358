"""A walkthrough from end to end: each step has its evidence, and a missing step makes the verdict unknown."""

from __future__ import annotations

from pathlib import Path

from harness.base.errors import ExitCode
from harness.base.events import Event, PhaseEvent
from harness.cluster.cluster import Cluster
from harness.evidence import manifest
from harness.evidence.checkers.check_run import check_run
from harness.evidence.run_directory import RunDirectory
from harness.evidence.step_report import FILE, WalkthroughStep
from harness.run import make_run
from harness.scenario import find, load
from harness.scenario.plan import draw
from harness.walkthroughs.walkthrough_page import NAME, document
from tests.finished_runs import damage_in_every_way
from tests.tapped import Evidence


def carry_out(cluster: Cluster, name: str, count: int, folder: Path, evidence: Evidence) -> Path:
    """Run a walkthrough of `count` steps; check its verdict, each step's evidence, and the generated page."""
    events: list[Event] = []
    scenario = load(find(name))
    outcome = make_run(cluster, scenario, draw(scenario, 1), folder, [events.append]).execute()

    run = RunDirectory.open(outcome.directory)
    steps = run.read(FILE, list[WalkthroughStep])
    evidence(verdict=outcome.judgement.verdict, claims=[c.observed for s in steps for c in s.claims])
    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    assert [step.number for step in steps] == list(range(1, count + 1))
    assert [step.missing for step in steps] == [[]] * count
    phases = [event.name for event in events if isinstance(event, PhaseEvent)]
    assert [name for name in phases if name.startswith("step")] == [f"step {n}" for n in range(1, count + 1)]
    page = (outcome.directory / NAME).read_text()
    assert page == document(outcome.directory)
    assert "sequenceDiagram" in page

    # A second check gives the same verdict. It is unknown if a file is damaged or a step is missing.
    before = (outcome.directory / "verdict.json").read_bytes()
    assert check_run(outcome.directory, write=True)[0] is ExitCode.VALID
    assert (outcome.directory / "verdict.json").read_bytes() == before
    listed = manifest.read(run)
    assert {"frames.jsonl", "logsteps.jsonl", FILE} <= set(listed.files)
    damage_in_every_way(outcome.directory, folder / "other")
    run.write(FILE, steps[:-1])
    manifest.write(run, listed.run, listed.promised)
    assert check_run(outcome.directory)[0] is ExitCode.UNKNOWN
    return outcome.directory
