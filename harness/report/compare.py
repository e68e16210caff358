"""`eos compare`: print one line per fact that differs between two runs, and the number of equal facts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness.evidence.run_directory import RunDirectory, RunInfo, Summary
from harness.report.text_format import format_table, format_value


class _Plan(msgspec.Struct):
    steps: list[Any] = []
    throughout: list[Any] = []


class ComparedFact(NamedTuple):
    """A fact about two runs, such as the verdict; "-" if a run has no such fact."""

    name: str
    first: str
    second: str


def compare_facts(first: Path, second: Path) -> list[ComparedFact]:
    """Return every fact about two runs."""
    facts = [_facts(RunDirectory.open(path)) for path in (first, second)]
    return [ComparedFact(name, *(of_run.get(name, "-") for of_run in facts)) for name in facts[0] | facts[1]]


def format_facts(facts: Sequence[ComparedFact]) -> list[str]:
    """Return one line per fact that differs between two runs, and a line with the number of equal facts."""
    differing = [fact for fact in facts if fact.first != fact.second]
    return [*format_table(differing), f"{len(facts) - len(differing)} of {len(facts)} facts are the same"]


def _facts(run: RunDirectory) -> dict[str, str]:
    info = run.read("run.json", RunInfo)
    summary = run.read("summary.json", Summary)
    plan = run.read("plan.json", _Plan, _Plan())
    facts = {"run": info.run, "scenario": info.scenario, "seed": str(info.seed), "verdict": summary.verdict}
    facts |= {f"anomaly {name}": str(count) for name, count in summary.anomalies.items()}
    facts |= {f"compared for {n}": f"{p.compared} {p.unit}" for n, p in summary.properties.items()}
    facts |= {f"limit {n}": f"{limit.measured:g} {limit.unit}" for n, limit in summary.limits.items()}
    facts |= {"records": str(summary.records), "operations": str(summary.operations)}
    facts["faults planned"] = str(len(plan.steps) + len(plan.throughout))
    return facts | {name: format_value(value) for name, value in info.environment.items() if value}
