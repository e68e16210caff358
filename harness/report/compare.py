"""`eos compare`: what two runs differ in, a line each; what is the same is counted and not shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.evidence.run_directory import RunDirectory, RunInfo, Summary
from harness.report.text_format import columns, flat


def differences(first: Path, second: Path) -> list[str]:
    """The lines of a comparison."""
    runs = [RunDirectory.open(path) for path in (first, second)]
    facts = [_facts(run) for run in runs]
    names = list(dict.fromkeys(name for one in facts for name in one))
    rows = [(name, *(one.get(name, "-") for one in facts)) for name in names]
    differing = [row for row in rows if row[1] != row[2]]
    return [*columns(differing), f"{len(rows) - len(differing)} of {len(rows)} facts are the same"]


def _facts(run: RunDirectory) -> dict[str, str]:
    info = run.read("run.json", RunInfo)
    summary = run.read("summary.json", Summary)
    plan = run.read("plan.json", dict[str, Any], {})
    facts = {"run": info.run, "scenario": info.scenario, "seed": str(info.seed), "verdict": summary.verdict}
    facts |= {f"anomaly {name}": str(count) for name, count in summary.anomalies.items()}
    facts |= {f"compared for {n}": f"{p.compared} {p.unit}" for n, p in summary.properties.items()}
    facts |= {f"limit {n}": f"{one.measured:g} {one.unit}" for n, one in summary.limits.items()}
    facts |= {"records": str(summary.records), "operations": str(summary.operations)}
    facts["faults planned"] = str(len(plan.get("steps", [])) + len(plan.get("throughout", [])))
    return facts | {name: flat(value) for name, value in info.environment.items() if value}
