"""Names of one run. They contain the run id, so runs on one cluster never read each other's records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from harness.scenario import FaultEntry, Scenario, WalkthroughPart, Workload
from harness.scenario.app_parts import InputPart, OutputPart
from harness.scenario.plan import Plan, PlannedFault

# Parameters of frame faults whose value is a topic or a transactional id.
_SELECTORS = ("topic", "transactional_id")
Rename = Callable[[str], str]
Part = TypeVar("Part", InputPart, OutputPart)


class Names(msgspec.Struct, frozen=True):
    """Names of one run, in the form `<prefix><name in the scenario>.<run id>`.

    On an external cluster, the prefix comes from the cluster file. Otherwise it is empty. `plain` names have
    no run id: those of an application that already runs.
    """

    prefix: str
    run: str
    plain: bool = False

    def scoped(self, name: str) -> str:
        """Return the name that this run uses for a name in the scenario. An empty name stays empty."""
        if not name:
            return ""
        return f"{self.prefix}{name}" if self.plain else f"{self.prefix}{name}.{self.run}"

    def unscoped(self, name: str) -> str:
        """Return the name in the scenario for a name of this run. Return any other name unchanged."""
        if self.plain:
            return name.removeprefix(self.prefix)
        end = f".{self.run}"
        return name.removesuffix(end).removeprefix(self.prefix) if name.endswith(end) else name


def rename_scenario(scenario: Scenario, rename: Rename) -> Scenario:
    """Return the scenario with every topic, group and transactional id renamed, also in its faults."""
    return msgspec.structs.replace(
        scenario,
        workload=[_workload(workload, rename) for workload in scenario.workload],
        input=[_with_table(part, rename) for part in scenario.input],
        output=[_with_table(part, rename) for part in scenario.output],
        app=scenario.app and msgspec.structs.replace(scenario.app, group=rename(scenario.app.group)),
        fault=[_entry(entry, rename) for entry in scenario.fault],
        walkthrough=scenario.walkthrough and _walkthrough(scenario.walkthrough, rename),
    )


def _with_table(part: Part, rename: Rename) -> Part:
    """Return an input or output with its topic renamed; SQL names it as the scenario does."""
    return msgspec.structs.replace(part, topic=rename(part.topic), table=part.table or part.topic)


def rename_plan(plan: Plan, rename: Rename) -> Plan:
    """Return the plan with every topic, group and transactional id in targets and parameters renamed."""

    def renamed(injections: list[PlannedFault]) -> list[PlannedFault]:
        return [msgspec.structs.replace(each, entry=_entry(each.entry, rename)) for each in injections]

    return msgspec.structs.replace(plan, throughout=renamed(plan.throughout), steps=renamed(plan.steps))


def _walkthrough(part: WalkthroughPart, rename: Rename) -> WalkthroughPart:
    return msgspec.structs.replace(
        part, topic=rename(part.topic), source=rename(part.source), group=rename(part.group)
    )


def _workload(workload: Workload, rename: Rename) -> Workload:
    return msgspec.structs.replace(
        workload,
        topic=rename(workload.topic),
        source=rename(workload.source),
        group=rename(workload.group),
        changelog=rename(workload.changelog),
    )


def _entry(entry: FaultEntry, rename: Rename) -> FaultEntry:
    parameters = {
        name: rename(value) if name in _SELECTORS and value else value
        for name, value in entry.parameters.items()
    }
    return msgspec.structs.replace(entry, target=entry.target.scoped(rename), parameters=parameters)


def transactional_id(topic: str, index: int) -> str:
    """Return a client's transactional id: `orders-1.<run>` for client 1 of the topic `orders.<run>`."""
    name, _, run = topic.rpartition(".")
    return f"{name}-{index}.{run}"
