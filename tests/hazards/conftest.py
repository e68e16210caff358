"""What these cases share: a run of a flow, whose steps each test looks at, and the evidence."""

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
    "a client or a broker has changed: read the step, then say so in docs/hazards.md "
    "and turn this expectation round"
)


@dataclass
class WalkedThrough:
    """A flow that has run: its outcome, its steps, what was narrated."""

    outcome: Outcome
    told: list[Event]

    @cached_property
    def steps(self) -> list[WalkthroughStep]:
        """What each step has seen."""
        return RunDirectory.open(self.outcome.directory).read(FILE, list[WalkthroughStep])

    @property
    def topic(self) -> str:
        """The topic that it ran on."""
        run = RunDirectory.open(self.outcome.directory)
        names, scenario = run.read("names.json", Names), run.read("scenario.json", dict[str, Any])
        return names.scoped(scenario["flow"]["topic"])

    def tries(self, step: int) -> list[dict[str, Any]]:
        """The tries of a step."""
        found: list[dict[str, Any]] = self.steps[step - 1].evidence["tries"]
        return found

    def missing(self, step: int) -> str:
        """What a step had to see and did not, for a message; empty if nothing."""
        missing = self.steps[step - 1].missing
        return f"{'; '.join(missing)}. {CHANGED}" if missing else ""


def run_flow(cluster: Cluster, folder: Path, scenario: str, **changes: str) -> WalkedThrough:
    """Run a scenario whose steps are a flow; `flow__tries="20"` is `--set flow.tries=20`."""
    told: list[Event] = []
    loaded = load(find(scenario), {key.replace("__", "."): value for key, value in changes.items()})
    return WalkedThrough(make_run(cluster, loaded, draw(loaded, 1), folder, [told.append]).execute(), told)
