"""Names of one run's own: two runs on one cluster never read each other's records."""

from __future__ import annotations

import re

import msgspec

from harness.plan import Plan, Step
from harness.scenario import FaultEntry, FlowPart, Scenario, Workload

# Parameters of a frame fault that name what belongs to one run.
_SELECTORS = ("topic", "transactional_id")


def scoped(scenario: Scenario, run: str) -> Scenario:
    """The scenario with every topic, group and transactional id marked by the run, in its targets too."""
    return msgspec.structs.replace(
        scenario,
        workload=[_workload(workload, run) for workload in scenario.workload],
        fault=[scoped_entry(entry, run) for entry in scenario.fault],
        flow=scenario.flow and _flow(scenario.flow, run),
    )


def _mark(name: str, run: str) -> str:
    return f"{name}.{run}" if name else ""


def _flow(flow: FlowPart, run: str) -> FlowPart:
    return msgspec.structs.replace(
        flow, topic=_mark(flow.topic, run), source=_mark(flow.source, run), group=_mark(flow.group, run)
    )


def _workload(workload: Workload, run: str) -> Workload:
    return msgspec.structs.replace(
        workload, topic=_mark(workload.topic, run), source=_mark(workload.source, run),
        group=_mark(workload.group, run),
    )  # fmt: skip


def scoped_entry(entry: FaultEntry, run: str) -> FaultEntry:
    """An injection whose target and selectors name this run's topic, group or transactional id."""
    target = re.sub(
        r"^(leader_of|txn_coordinator|group_coordinator)\(\s*([^,)\s]+)",
        lambda match: f"{match[1]}({match[2]}.{run}",
        entry.target,
    )
    selected = {
        name: f"{value}.{run}" if name in _SELECTORS and value else value
        for name, value in entry.parameters.items()
    }
    return msgspec.structs.replace(entry, target=target, parameters=selected)


def scoped_plan(plan: Plan, run: str) -> Plan:
    """The plan with the targets of this run."""

    def mark(steps: list[Step]) -> list[Step]:
        return [msgspec.structs.replace(step, entry=scoped_entry(step.entry, run)) for step in steps]

    return msgspec.structs.replace(plan, throughout=mark(plan.throughout), steps=mark(plan.steps))


def transactional_id(topic: str, index: int) -> str:
    """The transactional id of the index-th client of a topic: `orders-1.<run>` for `orders.<run>`."""
    name, _, run = topic.rpartition(".")
    return f"{name}-{index}.{run}"
