"""runs/index.html: every run of a folder, the newest first, with its verdict and a link to its report."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Final

from harness.base.errors import UsageError
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary, write_atomic
from harness.report.page import NAME as REPORT

NAME: Final = "index.html"
_HEAD: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Runs</title>
<style>
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem }
div { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884 }
</style>
<h1>Runs</h1>
"""


def write(runs: Path) -> Path:
    """Write the index of a folder of runs and return the file."""
    found = sorted(runs.glob("*/*/run.json"), key=lambda file: file.parent.name, reverse=True)
    rows = [_row(runs, file.parent) for file in found if not file.parent.is_symlink()]
    if not rows:
        raise UsageError(f"{runs} holds no run", "name the folder that `eos run --runs` writes into")
    head = "<tr><th>started<th>scenario<th>seed<th>verdict<th>anomalies<th>records<th>report</tr>"
    text = f"{_HEAD}<div><table>{head}{''.join(rows)}</table></div></html>\n"
    write_atomic(runs / NAME, text.encode())
    return runs / NAME


def _row(runs: Path, directory: Path) -> str:
    try:
        cells = _cells(RunDirectory.open(directory))
    except UsageError as error:  # the other runs are worth an index all the same
        cells = [directory.name, directory.parent.name, "", "cannot be read", error.message, ""]
    place = directory.relative_to(runs)
    target = place / REPORT if (directory / REPORT).exists() else place
    link = f'<a href="{escape(str(target))}">{escape(target.name)}</a>'
    return "<tr>" + "".join(f"<td>{escape(cell)}" for cell in cells) + f"<td>{link}</tr>"


def _cells(run: RunDirectory) -> list[str]:
    info = run.read("run.json", RunInfo)
    cells = [info.started.replace("T", " "), info.scenario, str(info.seed)]
    if not (run.path / "summary.json").exists():
        return [*cells, "not judged", "", ""]
    summary = run.read("summary.json", Summary)
    return [*cells, summary.verdict, ", ".join(summary.anomalies), str(summary.records)]
