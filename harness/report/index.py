"""index.html of a folder of runs: every run, newest first, with its verdict and a link to its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from harness.base.errors import UsageError
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary, write_atomic
from harness.report.html_template import render
from harness.report.page import NAME as REPORT
from harness.report.timeline_data import read_events, verdict_of

NAME: Final = "index.html"


def write(runs: Path) -> Path:
    """Write the index of a folder of runs and return the file."""
    files = sorted(runs.glob("*/*/run.json"), key=lambda file: file.parent.name, reverse=True)
    rows = [_row(runs, file.parent) for file in files if not file.parent.is_symlink()]
    if not rows:
        raise UsageError(f"{runs} holds no run", "name the folder that `eos run --runs` writes into")
    write_atomic(runs / NAME, render("index.html", rows=rows).encode())
    return runs / NAME


def _row(runs: Path, directory: Path) -> dict[str, Any]:
    surprise = False
    try:
        cells, surprise = _cells(RunDirectory.open(directory))
    except UsageError as error:  # show the run as unreadable, and continue with the other runs
        cells = [directory.name, directory.parent.name, "", "cannot be read", "", error.message, "", "", ""]
    place = directory.relative_to(runs)
    target = place / REPORT if (directory / REPORT).exists() else place
    return {"cells": cells, "surprise": surprise, "target": str(target), "name": target.name}


def _cells(run: RunDirectory) -> tuple[list[str], bool]:
    """Return the cells of a run, and whether the run ended otherwise than its scenario expects."""
    info = run.read("run.json", RunInfo)
    cells = [info.started.replace("T", " "), info.scenario, str(info.seed)]
    backend = str(info.environment.get("backend", ""))
    if not (run.path / "summary.json").exists():
        return [*cells, "not checked", "", "", "", backend, ""], False
    summary = run.read("summary.json", Summary)
    events = read_events(run.path)
    ending = verdict_of(events)
    expected = "" if ending is None else "as expected" if ending.expected else "NOT as expected"
    seconds = f"{ending.at:.0f}" if ending else ""
    found = ", ".join(f"{name} {count}" for name, count in summary.anomalies.items())
    cells += [summary.verdict, expected, found, str(summary.records), backend, seconds]
    return cells, ending is not None and not ending.expected
