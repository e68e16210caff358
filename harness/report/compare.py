"""`eos compare`: print one line per fact that differs between two runs, and the number of equal facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from harness.base.texts import shorten
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary
from harness.report.text_format import format_table, format_value

_SHOWN: Final = 100
"""Most characters of a value in a line."""


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
    rows = [(fact.name, shorten(fact.first, _SHOWN), shorten(fact.second, _SHOWN)) for fact in differing]
    return [*format_table(rows), f"{len(facts) - len(differing)} of {len(facts)} facts are the same"]


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
    scenario: dict[str, Any] = run.read("scenario.json", dict, {})
    for table, content in scenario.items():
        if table != "scenario":
            facts |= {name: str(value) for name, value in _keys(table, content)}
    return facts | {name: format_value(value) for name, value in info.environment.items() if value}


def _keys(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the keys of a part of a scenario, written as for `--set`, with their values."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _keys(f"{name}.{key}", part)
    elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
        for index, part in enumerate(value):
            yield from _keys(f"{name}.{index}", part)
    else:
        yield name, value
