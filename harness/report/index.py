"""index.html of a folder of runs: every run, newest first, with its verdict and a link to its report.

The page filters its rows without scripts: a link such as `index.html#invalid` makes the browser's `:target`
the anchor of a filter, and a style rule then hides all other rows.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from markupsafe import Markup, escape

from harness.base.errors import UsageError
from harness.evidence.run_directory import RECOVERY, RunDirectory, RunInfo, Summary, write_atomic
from harness.report.html_template import render
from harness.report.page import NAME as REPORT
from harness.report.timeline_data import read_events, verdict_of

NAME: Final = "index.html"
_TREND_RUNS: Final = 40
"""Largest number of runs of a scenario in its trend: the newest ones."""
_TREND_WIDTH, _TREND_HEIGHT = 220, 40
_VERDICTS: Final = ("valid", "invalid", "unknown")
_OVER_A_LIMIT: Final = "limit exceeded"


class _Row(msgspec.Struct, kw_only=True):
    """One run in the index. `kinds` are the names of the filters that show it."""

    started: str
    scenario: str
    seed: str = ""
    verdict: str = "not checked"
    expected: str = ""
    anomalies: str = ""
    records: str = ""
    backend: str = ""
    seconds: str = ""
    recovery_s: float | None = None
    limit_s: float | None = None
    target: str = ""
    """The report of the run, or its directory if it has none."""
    kinds: list[str] = []

    @property
    def recovery(self) -> str:
        """Recovery time as text."""
        return "" if self.recovery_s is None else f"{self.recovery_s:g} s"


class _Trend(NamedTuple):
    """The recovery times of the runs of one scenario, oldest first."""

    scenario: str
    anchor: str
    runs: int
    text: str
    drawing: Markup


class _Filter(NamedTuple):
    """A link that shows only some rows: its anchor, its text, and the number of these rows."""

    anchor: str
    text: str
    rows: int


def write(runs: Path) -> Path:
    """Write the index of a folder of runs and return the file."""
    files = sorted(runs.glob("*/*/run.json"), key=lambda file: file.parent.name, reverse=True)
    rows = [_row(runs, file.parent) for file in files if not file.parent.is_symlink()]
    if not rows:
        raise UsageError(f"{runs} holds no run", "name the folder that `eos run --runs` writes into")
    page = render("index.html", rows=rows, filters=_filters(rows), trends=_trends(rows))
    write_atomic(runs / NAME, page.encode())
    return runs / NAME


def _row(runs: Path, directory: Path) -> _Row:
    row = _Row(started=directory.name, scenario=directory.parent.name)
    try:
        _fill(row, RunDirectory.open(directory))
    except UsageError as error:  # show the run as unreadable, and continue with the other runs
        row.verdict, row.anomalies = "cannot be read", error.message
    place = directory.relative_to(runs)
    target = place / REPORT if (directory / REPORT).exists() else place
    row.target = str(target)
    row.kinds = [row.verdict if row.verdict in _VERDICTS else "no-verdict", _anchor(row.scenario)]
    row.kinds += ["surprise"] if row.expected not in ("", "as expected") else []
    return row


def _fill(row: _Row, run: RunDirectory) -> None:
    """Fill in what the files of a run contain."""
    info = run.read("run.json", RunInfo)
    row.started, row.scenario, row.seed = info.started.replace("T", " "), info.scenario, str(info.seed)
    row.backend = str(info.environment.get("backend", ""))
    if not (run.path / "summary.json").exists():
        return
    summary = run.read("summary.json", Summary)
    ending = verdict_of(read_events(run.path))
    row.verdict = summary.verdict
    row.expected = "" if ending is None else "as expected" if ending.expected else "NOT as expected"
    row.seconds = f"{ending.at:.0f} s" if ending else ""
    row.anomalies = ", ".join(f"{name} {count}" for name, count in summary.anomalies.items())
    row.records = f"{summary.records:,}"
    if recovery := summary.limits.get(RECOVERY):
        row.recovery_s, row.limit_s = recovery.measured, recovery.limit
    if row.expected and any(not limit.held for limit in summary.limits.values()):
        row.expected += f", {_OVER_A_LIMIT}"


def _anchor(scenario: str) -> str:
    """Return the anchor of a scenario's filter. Any file name may be the name of a scenario's folder."""
    return "scenario-" + re.sub(r"[^A-Za-z0-9-]", lambda match: f"_{ord(match[0]):x}", scenario)


def _filters(rows: Sequence[_Row]) -> list[_Filter]:
    kinds = Counter(kind for row in rows for kind in row.kinds)
    texts = {
        "surprise": "not as expected, or over a limit",
        "valid": "valid",
        "invalid": "invalid",
        "unknown": "unknown",
        "no-verdict": "no verdict",
    }
    texts |= {_anchor(name): name for name in sorted({row.scenario for row in rows})}
    return [_Filter(anchor, text, kinds[anchor]) for anchor, text in texts.items() if kinds[anchor]]


def _trends(rows: Sequence[_Row]) -> list[_Trend]:
    """Return the trend of each scenario with at least two measured recovery times."""
    measured: dict[str, list[_Row]] = defaultdict(list)
    for row in reversed(rows):
        if row.recovery_s is not None:
            measured[row.scenario].append(row)
    trends = []
    for scenario, runs in sorted(measured.items()):
        times = [run.recovery_s for run in runs if run.recovery_s is not None][-_TREND_RUNS:]
        if len(times) < 2:
            continue
        middle = sorted(times)[len(times) // 2]
        text = f"{times[-1]:g} s in the newest run, {middle:g} s in the middle one, {max(times):g} s at most"
        limits = sorted({run.limit_s for run in runs if run.limit_s is not None})
        text += f" (limit {' or '.join(f'{limit:g}' for limit in limits)} s)" if limits else ""
        trends.append(_Trend(scenario, _anchor(scenario), len(times), text, _draw(scenario, times)))
    return trends


def _draw(scenario: str, times: Sequence[float]) -> Markup:
    """Draw the recovery times of a scenario as bars, the oldest run at the left."""
    top = max(times) or 1.0
    step = _TREND_WIDTH / max(len(times), 8)
    bars = "".join(
        f'<rect x="{i * step:.1f}" y="{_TREND_HEIGHT * (1 - at / top):.1f}" width="{max(1.0, step - 2):.1f}" '
        f'height="{max(1.0, _TREND_HEIGHT * at / top):.1f}"><title>{at:g} s</title></rect>'
        for i, at in enumerate(times)
    )
    return Markup(  # noqa: S704 - only the name of the scenario is text, and it is escaped
        f'<svg viewBox="0 0 {_TREND_WIDTH} {_TREND_HEIGHT}" width="{_TREND_WIDTH}" height="{_TREND_HEIGHT}" '
        f'role="img" aria-label="recovery times of {escape(scenario)}">{bars}</svg>'
    )
