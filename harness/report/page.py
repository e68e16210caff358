"""report.html: one file that convinces a sceptic, readable without scripts and without a network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from harness.base.events import Event, NoBite, VerdictEvent
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.history import history_files
from harness.evidence.ledger import fold
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary, write_atomic
from harness.report import evidence_view, spark_progress
from harness.report.text_format import flat
from harness.report.timeline_data import injections, read_events, series_of
from harness.report.timeline_svg import figure

NAME: Final = "report.html"
_TEMPLATE: Final = Path(__file__).with_name("page.html")
MOST_BYTES: Final = 400_000
"""A page that is larger is no longer looked at, sent and kept without a thought."""
_DIAGRAM: Final = "<!-- diagram -->"
_DIAGRAM_BYTES: Final = 150_000
_FAULTS_SHOWN: Final = 200
_CELL_LENGTH: Final = 300


def write(path: Path) -> Path:
    """Write the report of a run into its directory and return the file."""
    run = RunDirectory.open(path)
    info = run.read("run.json", RunInfo)
    judgement = run.read("verdict.json", Judgement)
    summary = run.read("summary.json", Summary)
    events = read_events(run.path)
    histories = history_files(run.histories)
    scenario = run.read("scenario.json", dict[str, Any], {})
    header = scenario.get("scenario", {})
    ending = next((event for event in events if isinstance(event, VerdictEvent)), None)
    text = Template(_TEMPLATE.read_text()).substitute(
        title=escape(f"{info.scenario}, seed {info.seed}, {info.started.replace('T', ' ')}"),
        verdict=escape(summary.verdict),
        VERDICT=escape(summary.verdict.upper()),
        expected=_expected(header, summary),
        replay=escape(ending.replay if ending else f"eos run {info.scenario} --seed {info.seed}"),
        shows=escape(" ".join(str(header.get("shows", "")).split())),
        counted=escape(
            f"{summary.records} records read back by {', '.join(summary.witnesses) or 'nobody'}; "
            f"{summary.operations} operations in {len(histories)} histories"
        ),
        anomalies=evidence_view.section(run, judgement),
        figure=figure(series_of(events, fold(histories))),
        faults=_faults(events),
        compared=_compared(judgement),
        logs=_logs(run.path) + _section("How Spark read along", spark_progress.rows_of(run.path)),
        environment=_table([(name, flat(value)) for name, value in info.environment.items() if value]),
    )
    text = text.replace(_DIAGRAM, _diagram(run.path, MOST_BYTES - len(text.encode())))
    write_atomic(run.path / NAME, text.encode())
    return run.path / NAME


def _expected(header: dict[str, Any], summary: Summary) -> str:
    wanted = str(header.get("expect", ""))
    if not wanted:
        return ""
    named = f" with {', '.join(header['anomalies'])}" if header.get("anomalies") else ""
    met = wanted == summary.verdict and set(header.get("anomalies", [])) <= set(summary.anomalies)
    return escape(
        f", as the scenario expects{named}" if met else f", and the scenario expects {wanted}{named}"
    )


def _faults(events: list[Event]) -> str:
    rows: list[tuple[str, ...]] = []
    for event, healed in injections(events):
        if isinstance(event, NoBite):
            rows.append((f"{event.at:.1f} s", event.fault, "no bite", event.reason, ""))
            continue
        at = f"{event.at:.1f}-{healed.at:.1f} s" if healed else f"{event.at:.1f} s"
        after = f"{healed.took_s:.1f} s" if healed else "never"
        bite = flat(event.bite)[:_CELL_LENGTH]
        rows.append((at, event.fault, ", ".join(event.names), bite, after))
    if not rows:
        return "<p class='note'>none was injected</p>"
    left = len(rows) - _FAULTS_SHOWN
    more = f"<p class='note'>and {left} more, in events.jsonl</p>" if left > 0 else ""
    head = ("when", "fault", "target", "bite, as measured", "healthy after")
    return _table(rows[:_FAULTS_SHOWN], head=head) + more


def _compared(judgement: Judgement) -> str:
    rows = [(r.property, str(r.verdict), f"{r.compared} {r.unit}") for r in judgement.results]
    rows += [
        (
            limit.name,
            "held" if limit.held else "breached",
            f"{limit.measured:g} of {limit.limit:g} {limit.unit}",
        )
        for limit in judgement.limits
    ]
    return _table(rows, head=("property or limit", "verdict", "compared or measured"))


def _logs(path: Path) -> str:
    """Of a cluster that is not ours: what its own logs show of the run, and what was not to be read."""
    told = path / "logs.json"
    if not told.exists():
        return ""
    found = json.loads(told.read_text())
    rows = [("shown", line) for line in found["shown"]] + [("not shown", line) for line in found["not_shown"]]
    return _section("Logs of the brokers", rows)


def _section(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A table under its title; nothing if it has no rows."""
    return f"<section><h2>{title}</h2><div class='scroll'>{_table(rows)}</div></section>" if rows else ""


def _diagram(path: Path, room: int) -> str:
    drawing = path / "diagram.svg"
    if not drawing.exists():
        return ""
    if drawing.stat().st_size > min(_DIAGRAM_BYTES, room):
        link = '<a href="diagram.svg">diagram.svg</a>'
        return f"<section><h2>Sequence</h2><p class='note'>see {link} beside this file</p></section>"
    text = drawing.read_text()
    body = text[text.index("<svg") :]
    return f"<section><h2>Sequence</h2><div class='scroll steps'>{body}</div></section>"


def _table(rows: Iterable[tuple[str, ...]], head: tuple[str, ...] = ()) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{f'<tr>{cells}</tr>' if head else ''}{body}</table>"
