"""The document of a flow's run: a table beside the textbook, the steps with their evidence, the diagram."""

from __future__ import annotations

import json
from pathlib import Path

from harness.base.errors import UsageError
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary
from harness.evidence.step_report import FILE, WalkthroughStep

NAME = "flow.md"


def document(directory: Path) -> str:
    """The document of a run, from its directory alone."""
    run = RunDirectory.open(directory)
    info = run.read("run.json", RunInfo)
    if not (directory / FILE).exists():
        raise UsageError(
            f"{directory} is no run of a flow",
            "scenarios with a [flow] make one, such as idempotent-flow and delayed-endtxn",
        )
    steps = run.read(FILE, list[WalkthroughStep])
    lines = [
        f"# {info.scenario}: one real run",
        "",
        f"Run `{info.run}` on Kafka {info.environment.get('kafka', '?')} with librdkafka "
        f"{info.environment.get('librdkafka', '?')}, {info.environment.get('backend', '?')} back end. "
        f"Again: `eos run {info.scenario}`; `eos flow runs/{info.scenario}/latest` prints this page.",
        "",
        *_verdict(run),
        "| step | textbook | observed | |",
        "| --- | --- | --- | --- |",
        *(
            f"| {step.number} | {_cell(c.textbook)} | {_cell(c.observed)} | {c.comparison} |"
            for step in steps
            for c in step.claims
        ),
    ]
    for step in steps:
        lines += ["", f"## {step.number}. {step.title}", "", "```json"]
        lines += [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in step.evidence.items()]
        lines += ["```"]
    diagram = directory / "diagram.mmd"
    if diagram.exists():
        lines += [
            "",
            "## What passed between clients and brokers",
            "",
            "```mermaid",
            diagram.read_text().rstrip(),
            "```",
        ]
    return "\n".join(lines) + "\n"


def _verdict(run: RunDirectory) -> list[str]:
    """The verdict and the counts, where the run has been judged."""
    if not (run.path / "summary.json").exists():
        return []
    summary = run.read("summary.json", Summary)
    counted = f"{summary.records} records read back by {', '.join(summary.witnesses)}"
    return [f"Verdict: **{summary.verdict}**; {counted}.", ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
