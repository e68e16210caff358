"""report.html: one file that convinces a sceptic, readable without scripts and without a network."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from harness.checker.model import Anomaly, Example
from harness.checker.verdict import Judgement
from harness.events import Event, NoBite
from harness.events import Verdict as VerdictEvent
from harness.history import HistoryFile, history_files
from harness.ledger import fold
from harness.report.figure import figure
from harness.report.series import injections, read_events, series_of
from harness.report.words import flat
from harness.store import RunDirectory, RunInfo, Summary, write_atomic

NAME: Final = "report.html"
_TEMPLATE: Final = Path(__file__).with_name("page.html")
_LINES_SHOWN: Final = 4  # history lines of one example
_LINE_LENGTH: Final = 400
_DIAGRAM_BYTES: Final = 150_000


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
        anomalies=_anomalies(run, judgement),
        figure=figure(series_of(events, fold(histories))),
        faults=_faults(events),
        compared=_compared(judgement),
        diagram=_logs(run.path) + _diagram(run.path),
        environment=_table([(name, flat(value)) for name, value in info.environment.items() if value]),
    )
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


def _anomalies(run: RunDirectory, judgement: Judgement) -> str:
    """Every anomaly with its examples, the worst first; each with the history lines that prove it."""
    found = sorted(
        (anomaly for result in judgement.results for anomaly in result.anomalies),
        key=lambda anomaly: -anomaly.count,
    )
    reasons = [reason for result in judgement.results for reason in result.reasons]
    parts = [f"<p>{escape(reason)}</p>" for reason in reasons]
    parts += [_anomaly(run, anomaly) for anomaly in found]
    return f"<section><h2>What is wrong, or not known</h2>{''.join(parts)}</section>" if parts else ""


def _anomaly(run: RunDirectory, anomaly: Anomaly) -> str:
    head = f"<h3><code>{escape(anomaly.name)}</code>: {anomaly.count} {escape(anomaly.unit)}</h3>"
    shown = "".join(_example(run, example) for example in anomaly.examples)
    return f"{head}<p class='note'>the worst examples:</p>{shown}"


def _example(run: RunDirectory, example: Example) -> str:
    offsets = [f"{o.topic}-{o.partition} offsets {o.first}-{o.last}" for o in example.offsets]
    where = escape(", ".join(offsets)) + (f" (seen by {escape(example.witness)})" if example.witness else "")
    proof = "\n".join(
        f"history/{line.client}.jsonl:{line.line}\n  {_line(run, line.client, line.line)}"
        for line in example.lines[:_LINES_SHOWN]
    )
    return (
        f"<details open><summary>{escape(example.what)}</summary><p class='note'>{where}</p>"
        f"<pre>{escape(proof)}</pre></details>"
    )


def _line(run: RunDirectory, client: str, number: int) -> str:
    history = HistoryFile(run.histories / f"{client}.jsonl")
    if not history.path.exists():
        return "(the history is not there)"
    for block in history.blocks():
        lines = block.data.splitlines()
        if block.first_line <= number < block.first_line + len(lines):
            return lines[number - block.first_line].decode(errors="replace")[:_LINE_LENGTH]
    return "(no such line)"


def _faults(events: list[Event]) -> str:
    rows: list[tuple[str, ...]] = []
    for event, healed in injections(events):
        if isinstance(event, NoBite):
            rows.append((f"{event.at:.1f} s", event.fault, "no bite", event.reason, ""))
            continue
        at = f"{event.at:.1f}-{healed.at:.1f} s" if healed else f"{event.at:.1f} s"
        after = f"{healed.took_s:.1f} s" if healed else "never"
        rows.append((at, event.fault, ", ".join(event.names), flat(event.bite), after))
    if not rows:
        return "<p class='note'>none was injected</p>"
    return _table(rows, head=("when", "fault", "target", "bite, as measured", "healthy after"))


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
    return f"<section><h2>Logs of the brokers</h2><div class='scroll'>{_table(rows)}</div></section>"


def _diagram(path: Path) -> str:
    drawing = path / "diagram.svg"
    if not drawing.exists():
        return ""
    if drawing.stat().st_size > _DIAGRAM_BYTES:
        return "<section><h2>Sequence</h2><p class='note'>see diagram.svg beside this file</p></section>"
    text = drawing.read_text()
    body = text[text.index("<svg") :]
    return f"<section><h2>Sequence</h2><div class='scroll steps'>{body}</div></section>"


def _table(rows: Iterable[tuple[str, ...]], head: tuple[str, ...] = ()) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{f'<tr>{cells}</tr>' if head else ''}{body}</table>"
