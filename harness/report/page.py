"""report.html: one file with the verdict of a run and its evidence. It needs no scripts and no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from markupsafe import Markup

from harness.base.events import VerdictEvent
from harness.base.unreadable import is_present, readable
from harness.evidence import manifest
from harness.evidence.checkers.check_run import compute_figures, evidence_of, judge_run, summarise
from harness.evidence.checkers.contract_coverage import NOWHERE, coverage, not_checked
from harness.evidence.checkers.model import AppContract, Expect, Verdict
from harness.evidence.checkers.run_figures import FILE as FIGURES
from harness.evidence.checkers.run_figures import Figures
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.run_directory import VERDICT_FILES, RunDirectory, RunInfo, Summary, write_atomic
from harness.evidence.step_report import FILE as STEPS
from harness.evidence.step_report import WalkthroughStep
from harness.report import run_sections, spark_progress
from harness.report.evidence_view import anomaly_section
from harness.report.fault_spans import fault_spans, start_of
from harness.report.html_template import inline_markdown, render
from harness.report.ledger_table import ledger_table
from harness.report.metric_curves import MetricCurves, metric_curves
from harness.report.run_sections import Rows
from harness.report.text_format import format_value
from harness.report.timeline_data import TimelineData, read_events, series_of, verdict_of
from harness.report.timeline_svg import draw_timeline

NAME: Final = "report.html"
MOST_BYTES: Final = 400_000
"""Maximum size of the page in bytes, so that it can be mailed, attached and opened quickly."""
_DIAGRAM_BYTES: Final = 150_000
_FAULTS_SHOWN: Final = 200
_DAMAGE_SHOWN: Final = 20


class _Header(msgspec.Struct):
    """The part of a scenario that the report shows."""

    shows: str = ""
    expect: str = ""
    anomalies: list[str] = []


class _Scenario(msgspec.Struct):
    scenario: _Header = msgspec.field(default_factory=_Header)


class _Checked(NamedTuple):
    """The result of the check of a run. `recorded` is false if the run has not stored it."""

    judgement: Judgement
    summary: Summary
    figures: Figures
    recorded: bool


def write(path: Path) -> Path:
    """Write the report of a run into its directory and return the file."""
    run = RunDirectory.open(path)
    info = run.read("run.json", RunInfo)
    judgement, summary, figures, recorded = _checked(run, info)
    events = read_events(run.path)
    header = run.read("scenario.json", _Scenario, _Scenario()).scenario
    ending = verdict_of(events)
    series = series_of(events, figures)
    spans = fault_spans(run, events)
    faults = run_sections.fault_rows(spans)
    metrics = metric_curves(run.path, start_of(events))
    section = anomaly_section(run, judgement, spans, start_of(events))
    contract = run.read("expect.json", Expect, Expect()).contract
    no_steps: list[WalkthroughStep] = []
    values = {
        "title": info.scenario,
        "seed": info.seed,
        "about": run_sections.about_line(info, _length(ending, series)),
        "verdict": summary.verdict,
        "recorded": recorded,
        "expectation": _format_expectation(header, summary),
        "replay": ending.replay if ending else info.replay or f"eos run {info.scenario} --seed {info.seed}",
        "shows": inline_markdown(" ".join(header.shows.split())),
        "breaches": [limit.breach for limit in judgement.limits if limit.breach],
        "damage": manifest.problems_of(run)[:_DAMAGE_SHOWN],
        "tiles": run_sections.tiles(judgement, summary, figures, spans, events),
        "ledger": ledger_table(figures, info.run),
        "figures_problem": f": {figures.problem}" if figures.problem else "",
        "reading": _format_spark_rows(summary)
        + f"{summary.operations:,} operations in {figures.histories} histories.",
        "findings": run_sections.find_counts(judgement, contract),
        "uncertain": [result.property for result in judgement.results if result.verdict is Verdict.UNKNOWN],
        "meanings": run_sections.meaning_rows(),
        "anomalies": section.html,
        "contract": contract_section(contract, info.run),
        "timeline": draw_timeline(series, spans, section.marks, metrics),
        "faults": faults[:_FAULTS_SHOWN],
        "faults_left_out": len(faults) - _FAULTS_SHOWN,
        "recovery": run_sections.recovery_line(events, spans, summary),
        "steps": run.read(STEPS, list[WalkthroughStep], no_steps),
        "app": run_sections.app_view(run, info.run, judgement, figures, events),
        "compared": run_sections.compared_rows(judgement),
        "tables": [
            ("Notes", [(note,) for note in judgement.notes]),
            ("Logs of the brokers", _log_rows(run.path)),
            ("Errors that the brokers counted", _error_rows(metrics)),
            ("Spark during the run", spark_progress.rows_of(run.path)),
        ],
        "environment": [(name, format_value(value)) for name, value in info.environment.items() if value],
    }
    bare = render("page.html", diagram=None, **values)
    page = render("page.html", diagram=_diagram(run.path, MOST_BYTES - len(bare.encode())), **values)
    write_atomic(run.path / NAME, page.encode())
    return run.path / NAME


def _length(ending: VerdictEvent | None, series: TimelineData) -> str:
    """Return the length of a run with a verdict. Of any other run, its last sign of life is known."""
    if ending is not None:
        return f"{ending.at:.0f} s long"
    return f"did not end; last sign of life after {series.seconds:.0f} s"


def contract_section(contract: AppContract | None, run_id: str = "") -> Markup:
    """Return the section about what the contract of an application can find; empty without a contract."""
    if contract is None:
        return Markup()
    head = ("anomaly", *(output.topic.removesuffix(f".{run_id}") for output in contract.outputs))
    unchecked = [*not_checked(contract), *(f"no contract checks {what}" for what in NOWHERE)]
    return render("contract.html", head=head, rows=coverage(contract), unchecked=unchecked)


def _checked(run: RunDirectory, info: RunInfo) -> _Checked:
    """Return the recorded result of the check. If the run has recorded none, check it now."""
    if not any(is_present(run.path / name) for name in VERDICT_FILES):
        evidence, judgement = judge_run(run)
        summary = summarise(info, judgement, evidence.observations)
        return _Checked(judgement, summary, compute_figures(evidence), recorded=False)
    judgement = run.read("verdict.json", Judgement)
    summary = run.read("summary.json", Summary)
    if is_present(run.path / FIGURES):
        figures = run.read(FIGURES, Figures)
    else:  # an earlier version recorded the verdict
        figures = compute_figures(evidence_of(run))
    return _Checked(judgement, summary, figures, recorded=True)


def _format_spark_rows(summary: Summary) -> str:
    rows = summary.spark_rows
    if not rows:
        return ""
    reader = summary.spark_readers.get("spark-batch", "")
    by = f" (with {reader})" if reader else ""
    return f"Spark: {rows['stream']:,} rows by the stream, {rows['batch']:,} by the batch job{by}; "


def _format_expectation(header: _Header, summary: Summary) -> str:
    verdict, anomalies = header.expect, header.anomalies
    if not verdict:
        return ""
    with_anomalies = f" with {', '.join(anomalies)}" if anomalies else ""
    if verdict == summary.verdict and set(anomalies) <= set(summary.anomalies):
        return ", as the scenario expects" + (f" ({with_anomalies.strip()})" if anomalies else "")
    return f", but the scenario expects {verdict}{with_anomalies}"


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


def _error_rows(metrics: MetricCurves) -> Rows:
    """Return the table rows about errors in answers of the brokers, the most frequent first."""
    return [
        (f"{request}: {error}", f"{count:,}") for (request, error), count in metrics.counted.most_common()
    ]


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
