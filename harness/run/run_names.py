"""Names of one run's own: two runs on one cluster never read each other's records."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from harness.scenario import FaultEntry, Scenario, WalkthroughPart, Workload
from harness.scenario.plan import Plan, PlannedFault

# Parameters of a frame fault that name what belongs to one run.
_SELECTORS = ("topic", "transactional_id")


class Names(NamedTuple):
    """What is put before and behind every name of a run: the prefix of the cluster, and the run."""

    prefix: str
    run: str

    def __call__(self, name: str) -> str:
        """The name in this run."""
        return f"{self.prefix}{name}.{self.run}" if name else ""


def scoped(scenario: Scenario, names: Names) -> Scenario:
    """The scenario with every topic, group and transactional id marked by the run, in its targets too."""
    return msgspec.structs.replace(
        scenario,
        workload=[_workload(workload, names) for workload in scenario.workload],
        fault=[scoped_entry(entry, names) for entry in scenario.fault],
        walkthrough=scenario.walkthrough and _walkthrough(scenario.walkthrough, names),
    )


def _walkthrough(part: WalkthroughPart, names: Names) -> WalkthroughPart:
    return msgspec.structs.replace(
        part, topic=names(part.topic), source=names(part.source), group=names(part.group)
    )


def _workload(workload: Workload, names: Names) -> Workload:
    return msgspec.structs.replace(
        workload,
        topic=names(workload.topic),
        source=names(workload.source),
        group=names(workload.group),
        changelog=names(workload.changelog),
    )


def scoped_entry(entry: FaultEntry, names: Names) -> FaultEntry:
    """An injection whose target and selectors name this run's topic, group or transactional id."""
    target = re.sub(
        r"^(leader_of|txn_coordinator|group_coordinator)\(\s*([^,)\s]+)",
        lambda match: f"{match[1]}({names(match[2])}",
        entry.target,
    )
    selected = {
        name: names(value) if name in _SELECTORS and value else value
        for name, value in entry.parameters.items()
    }
    return msgspec.structs.replace(entry, target=target, parameters=selected)


def scoped_plan(plan: Plan, names: Names) -> Plan:
    """The plan with the targets of this run."""

    def mark(steps: list[PlannedFault]) -> list[PlannedFault]:
        return [msgspec.structs.replace(step, entry=scoped_entry(step.entry, names)) for step in steps]

    return msgspec.structs.replace(plan, throughout=mark(plan.throughout), steps=mark(plan.steps))


def transactional_id(topic: str, index: int) -> str:
    """The transactional id of the index-th client of a topic: `orders-1.<run>` for `orders.<run>`."""
    name, _, run = topic.rpartition(".")
    return f"{name}-{index}.{run}"
