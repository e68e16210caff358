"""report.html: one file with the verdict of a run and its evidence. It needs no scripts and no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import msgspec
from markupsafe import Markup

from harness.base.events import Event, NoBite
from harness.base.unreadable import readable
from harness.evidence import manifest
from harness.evidence.checkers.contract_coverage import NOWHERE, coverage, not_checked
from harness.evidence.checkers.model import ANOMALIES, AppContract, Expect
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.history import history_files
from harness.evidence.ledger import fold
from harness.evidence.observation import Observation, load
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary, write_atomic
from harness.report import spark_progress
from harness.report.evidence_view import render_anomalies
from harness.report.html_template import render
from harness.report.ledger_table import ledger_table
from harness.report.text_format import format_value
from harness.report.timeline_data import injections, read_events, series_of, verdict_of
from harness.report.timeline_svg import draw_timeline

NAME: Final = "report.html"
MOST_BYTES: Final = 400_000
"""Maximum size of the page in bytes, so that it can be mailed, attached and opened quickly."""
_DIAGRAM_BYTES: Final = 150_000
_FAULTS_SHOWN: Final = 200
_CELL_LENGTH: Final = 300
_DAMAGE_SHOWN: Final = 20

Rows = list[tuple[str, ...]]


class _Header(msgspec.Struct):
    """The part of a scenario that the report shows."""

    shows: str = ""
    expect: str = ""
    anomalies: list[str] = []


class _Scenario(msgspec.Struct):
    scenario: _Header = msgspec.field(default_factory=_Header)


def write(path: Path) -> Path:
    """Write the report of a run into its directory and return the file."""
    run = RunDirectory.open(path)
    info = run.read("run.json", RunInfo)
    judgement = run.read("verdict.json", Judgement)
    summary = run.read("summary.json", Summary)
    events = read_events(run.path)
    histories = history_files(run.histories)
    with readable(run.histories):
        ledger = fold(histories)
    header = run.read("scenario.json", _Scenario, _Scenario()).scenario
    ending = verdict_of(events)
    faults = _fault_rows(events)
    values = {
        "title": f"{info.scenario}, seed {info.seed}, {info.started.replace('T', ' ')}",
        "verdict": summary.verdict,
        "expectation": _format_expectation(header, summary),
        "replay": ending.replay if ending else f"eos run {info.scenario} --seed {info.seed}",
        "about": _about(info, events),
        "shows": " ".join(header.shows.split()),
        "counts": f"{summary.records} records read back by {', '.join(summary.witnesses) or 'no witness'}; "
        f"{_format_spark_rows(summary)}{summary.operations} operations in {len(histories)} histories",
        "damage": manifest.problems_of(run)[:_DAMAGE_SHOWN],
        "ledger": ledger_table(ledger, _observations(run)),
        "findings": _finding_rows(judgement),
        "anomalies": render_anomalies(run, judgement),
        "contract": contract_section(run.read("expect.json", Expect, Expect()).contract),
        "timeline": draw_timeline(series_of(events, ledger)),
        "faults": faults[:_FAULTS_SHOWN],
        "faults_left_out": len(faults) - _FAULTS_SHOWN,
        "compared": _compared_rows(judgement),
        "tables": [
            ("Logs of the brokers", _log_rows(run.path)),
            ("Spark during the run", spark_progress.rows_of(run.path)),
        ],
        "environment": [(name, format_value(value)) for name, value in info.environment.items() if value],
    }
    bare = render("page.html", diagram=None, **values)
    page = render("page.html", diagram=_diagram(run.path, MOST_BYTES - len(bare.encode())), **values)
    write_atomic(run.path / NAME, page.encode())
    return run.path / NAME


def contract_section(contract: AppContract | None) -> Markup:
    """Return the section about what the contract of an application can find; empty without a contract."""
    if contract is None:
        return Markup()
    head = ("anomaly", *(output.topic for output in contract.outputs))
    unchecked = [*not_checked(contract), *(f"no contract checks {what}" for what in NOWHERE)]
    return render("contract.html", head=head, rows=coverage(contract), unchecked=unchecked)


def _observations(run: RunDirectory) -> list[Observation]:
    """Return the observations of a run that can be read."""
    found = []
    for path in sorted(run.observations.glob("*")):
        if (path / "meta.json").is_file():
            with readable(path):
                found.append(load(path))
    return found


def _about(info: RunInfo, events: list[Event]) -> str:
    """Return the id of the run, its length and the machine on which it ran."""
    length = f"{events[-1].at:.0f} s" if events else "length unknown"
    shown = ("backend", "system")
    known = [format_value(info.environment[name]) for name in shown if info.environment.get(name)]
    return ", ".join([f"run {info.run}", f"started {info.started.replace('T', ' ')}", length, *known])


def _finding_rows(judgement: Judgement) -> Rows:
    """Return every name of an anomaly with its count, zeros included, and its meaning."""
    found = {anomaly.name: anomaly for result in judgement.results for anomaly in result.anomalies}
    permitted = {anomaly.name: anomaly for result in judgement.results for anomaly in result.permitted}
    rows: Rows = []
    for name, meaning in ANOMALIES.items():
        count = found[name].counted if name in found else "0"
        count += f" (permitted: {permitted[name].counted})" if name in permitted else ""
        rows.append((name, count, meaning))
    return rows


def _format_spark_rows(summary: Summary) -> str:
    rows = summary.spark_rows
    return f"Spark: {rows['stream']} rows by the stream, {rows['batch']} by the batch job; " if rows else ""


def _format_expectation(header: _Header, summary: Summary) -> str:
    verdict, anomalies = header.expect, header.anomalies
    if not verdict:
        return ""
    with_anomalies = f" with {', '.join(anomalies)}" if anomalies else ""
    if verdict == summary.verdict and set(anomalies) <= set(summary.anomalies):
        return f", as the scenario expects{with_anomalies}"
    return f", but the scenario expects {verdict}{with_anomalies}"


def _fault_rows(events: list[Event]) -> Rows:
    rows: Rows = []
    for event, healed in injections(events):
        if isinstance(event, NoBite):
            rows.append((f"{event.at:.1f} s", event.fault, "no bite", event.reason, ""))
            continue
        at = f"{event.at:.1f}-{healed.at:.1f} s" if healed else f"{event.at:.1f} s"
        after = f"{healed.took_s:.1f} s" if healed else "never"
        bite = format_value(event.bite)[:_CELL_LENGTH]
        rows.append((at, event.fault, ", ".join(event.names), bite, after))
    return rows


def _compared_rows(judgement: Judgement) -> Rows:
    rows: Rows = [(r.property, str(r.verdict), f"{r.compared} {r.unit}") for r in judgement.results]
    return rows + [
        (
            limit.name,
            "held" if limit.held else "breached",
            f"{limit.measured:g} of {limit.limit:g} {limit.unit}",
        )
        for limit in judgement.limits
    ]


def _log_rows(path: Path) -> Rows:
    """Return the table rows about the broker logs of an external cluster.

    They list the logs that were captured, and those that could not be read.
    """
    captured = path / "logs.json"
    if not captured.exists():
        return []
    with readable(captured):
        logs = json.loads(captured.read_text())
    return [(kind.replace("_", " "), line) for kind in ("shown", "not_shown") for line in logs[kind]]


def _diagram(path: Path, room: int) -> Markup | None:
    """Return the sequence diagram of a run as SVG.

    The result is None if the run has no diagram. It is empty if the diagram is larger than `_DIAGRAM_BYTES`,
    or than `room`, the number of bytes that are left in the page.
    """
    drawing = path / "diagram.svg"
    if not drawing.is_file():
        return None
    if drawing.stat().st_size > min(_DIAGRAM_BYTES, room):
        return Markup()
    text = drawing.read_text(errors="replace")
    if "<svg" not in text:
        return None
    return Markup(text[text.index("<svg") :])  # noqa: S704 - the harness drew it, with every text escaped
