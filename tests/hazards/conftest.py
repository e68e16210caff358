"""Helpers that run a walkthrough, so that the tests of hazards can inspect its steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.base.events import Event
from harness.cluster.cluster import Cluster
from harness.evidence.run_directory import RunDirectory
from harness.evidence.step_report import FILE, WalkthroughStep
from harness.run import Outcome, make_run
from harness.run.run_names import Names
from harness.scenario import find, load
from harness.scenario.plan import draw

CHANGED = (
    "a client or a broker has changed: read the step, then update docs/hazards.md and reverse this assertion"
)


@dataclass
class WalkedThrough:
    """A walkthrough that has finished: its outcome and its events."""

    outcome: Outcome
    events: list[Event]

    @cached_property
    def steps(self) -> list[WalkthroughStep]:
        """The steps with their claims and evidence."""
        return RunDirectory.open(self.outcome.directory).read(FILE, list[WalkthroughStep])

    @property
    def topic(self) -> str:
        """The name of the topic that this run of the walkthrough created."""
        run = RunDirectory.open(self.outcome.directory)
        names, scenario = run.read("names.json", Names), run.read("scenario.json", dict[str, Any])
        return names.scoped(scenario["walkthrough"]["topic"])

    def tries(self, step: int) -> list[dict[str, Any]]:
        """Return one dictionary with the results of each attempt of a step. The first step is 1."""
        attempts: list[dict[str, Any]] = self.steps[step - 1].evidence["tries"]
        return attempts

    def missing(self, step: int) -> str:
        """Return a message that lists the missing evidence of a step, or "" if none is missing."""
        missing = self.steps[step - 1].missing
        return f"{'; '.join(missing)}. {CHANGED}" if missing else ""


def run_walkthrough(cluster: Cluster, folder: Path, scenario: str, **changes: str) -> WalkedThrough:
    """Run a walkthrough's scenario. The argument `walkthrough__tries="20"` sets `walkthrough.tries` to 20."""
    events: list[Event] = []
    loaded = load(find(scenario), {key.replace("__", "."): value for key, value in changes.items()})
    run = make_run(cluster, loaded, draw(loaded, 1), folder, [events.append])
    return WalkedThrough(run.execute(), events)
