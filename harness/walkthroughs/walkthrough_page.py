"""The page of a walkthrough's run: claims beside observations, the evidence of each step, the diagram."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from harness.base.errors import UsageError
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary
from harness.evidence.step_report import FILE, WalkthroughStep

NAME: Final = "walkthrough.md"
_FOR: Final = (
    "For readers who want to see Kafka's protocol at work: the steps of one run, what texts claim about "
    "each, and what was observed."
)


def document(directory: Path) -> str:
    """Return the page of a run, made from the run's directory alone."""
    run = RunDirectory.open(directory)
    info = run.read("run.json", RunInfo)
    if not (directory / FILE).exists():
        raise UsageError(
            f"{directory} is not the run of a walkthrough",
            "scenarios with [walkthrough] make one, such as idempotent-walkthrough and delayed-endtxn",
        )
    steps = run.read(FILE, list[WalkthroughStep])
    lines = [
        f"# {info.scenario}: one real run",
        "",
        _FOR,
        "",
        f"Run `{info.run}` on Kafka {info.environment.get('kafka', '?')} with librdkafka "
        f"{info.environment.get('librdkafka', '?')}, {info.environment.get('backend', '?')} back end. "
        f"Again: `eos run {info.scenario}`; `eos walkthrough runs/{info.scenario}/latest` prints this page.",
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
    if diagram.is_file():
        lines += ["", "## Requests between clients and brokers", "", "```mermaid"]
        lines += [diagram.read_text(errors="replace").rstrip(), "```"]
    return "\n".join(lines) + "\n"


def _verdict(run: RunDirectory) -> list[str]:
    """Return the lines with the verdict and the number of records that the witnesses read.

    Return an empty list if the run has no verdict.
    """
    if not (run.path / "summary.json").exists():
        return []
    summary = run.read("summary.json", Summary)
    witnesses = ", ".join(summary.witnesses)
    return [f"Verdict: **{summary.verdict}**; {summary.records} records read back by {witnesses}.", ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
