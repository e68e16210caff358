"""Reports of finished runs: page, index, comparison, results, JUnit, GitHub annotations."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
import time
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import msgspec
import pytest

from harness.base.errors import UsageError
from harness.base.events import (
    Event,
    Healed,
    Injected,
    NoBite,
    PhaseEvent,
    ProgressEvent,
    Started,
    Timed,
    VerdictEvent,
)
from harness.evidence.checkers.check_run import check_run, compute_figures, evidence_of
from harness.evidence.checkers.model import ANOMALIES
from harness.evidence.checkers.run_figures import Figures
from harness.evidence.history import HistoryWriter, history_files
from harness.evidence.ledger import fold
from harness.evidence.run_directory import RunDirectory
from harness.report import index, page, results
from harness.report.compare import compare_facts, format_facts
from harness.report.fault_spans import fault_spans
from harness.report.github import GitHub
from harness.report.junit import JUnit
from harness.report.outputs import Recorder
from harness.report.timeline_data import read_events, series_of
from harness.report.timeline_svg import draw_timeline
from tests.unit.test_run_directory import make_run

VOID = {"meta", "br", "link", "path", "rect"}


def events_of(run: RunDirectory, *, expected: bool = False) -> list[Event]:
    answered = int(fold(history_files(run.histories)).groups.answered[0])
    progress = {"phase": "faults", "acknowledged": 9, "rate": 9.0, "committed": 0, "aborted": 0, "unknown": 0}
    return [
        Started(
            scenario="demo",
            run="r",
            seed=7,
            directory=str(run.path),
            environment={"kafka": "4.3.1"},
            mono=answered - 2 * 10**9,
        ),
        PhaseEvent(at=0.1, name="faults"),
        Injected(at=1.0, fault="kill", names=["kafka-1"], bite={"exit_code": 137}, took_s=0.5),
        ProgressEvent(at=1.5, in_flight=0, active=[], lso_lag=3, isr=2, spark_behind=7, **progress),  # type: ignore[arg-type]
        Healed(at=3.0, fault="kill", names=["kafka-1"], health={}, took_s=0.25),
        NoBite(at=3.5, fault="jitter", reason="it is <not> slower"),
        VerdictEvent(
            at=5.0,
            verdict="invalid",
            expected=expected,
            exit_code=1,
            text="lost: 1",
            replay="eos run demo",
            directory=str(run.path),
        ),
    ]


def judged(root: Path, shown: int = 9) -> RunDirectory:
    run = make_run(root, shown=shown)
    check_run(run.path)
    record(run, events_of(run))
    return run


def record(run: RunDirectory, events: Iterable[Event]) -> None:
    """Write events into the directory of a run."""
    recorder = Recorder()
    recorder.start(run.path)
    for event in events:
        recorder.handle(event)
    recorder.shutdown()


class Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.anchors: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        self.anchors += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_report_is_one_file_with_the_verdict_first_and_the_evidence_below(tmp_path: Path) -> None:
    run = judged(tmp_path)
    text = page.write(run.path).read_text()

    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert {link[1:] for link in parser.links if link.startswith("#")} <= set(parser.anchors)
    assert len(set(parser.anchors)) == len(parser.anchors)
    files = {link for link in parser.links if not link.startswith("#")}
    assert files == {"history/p-1.jsonl"}, "no link leaves the directory of the run"
    assert all((run.path / unquote(file)).is_file() for file in files)
    assert "<script" not in text
    order = ["INVALID", "eos run demo", "Ledger", "Every anomaly", "p-1.jsonl:", "over time", "Faults"]
    assert [text.index(word) for word in order] == sorted(text.index(word) for word in order)
    assert '"f":"send"' in html.unescape(text)
    assert all(text.count(name) >= 2 for name in ANOMALIES), "also those that were not found"
    assert "<span>lost</span><span>1 records</span>" in text
    assert "<span>duplicate</span><span>0</span>" in text
    assert re.search(r"Not looked for in this run: [^<]*aggregate_drift", text)
    assert "<th>acknowledged or committed</th>" in text
    assert "<th>read by reader</th>" in text
    assert "it is &lt;not&gt; slower" in text
    assert "137" in text
    assert len(text) < 400_000


def test_the_report_of_an_unfinished_run_shows_what_a_check_finds(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.path / "manifest.json").unlink()
    text = page.write(run.path).read_text()

    assert "The run recorded no verdict" in text
    assert "UNKNOWN" in text
    assert "it has no manifest.json" in text
    assert not (run.path / "verdict.json").exists(), "only the check records a verdict"
    run.write("figures.json", Figures())
    assert "The run recorded no verdict" in page.write(run.path).read_text()


def test_the_report_of_a_damaged_run_lists_the_damage_and_no_counts(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with (run.histories / "p-1.jsonl").open("a") as history:
        history.write("{}")
    check_run(run.path, write=True)
    text = page.write(run.path).read_text()

    assert "history/p-1.jsonl" in text
    assert "no history could be counted" in text


def test_the_curves_match_the_histories(tmp_path: Path) -> None:
    run = judged(tmp_path)
    figures = run.read("figures.json", Figures)
    events = read_events(run.path)
    series = series_of(events, figures)

    assert figures == compute_figures(evidence_of(run)), "the report reads what the check has computed"
    (at, most) = max(series.records["committed"], key=lambda point: point[1])
    assert abs(at - 2) <= 0.5
    assert most == 10.0
    assert {name for name, line in series.sends.items() if line[0][1] > 0} == {"p50", "p95", "max"}
    assert series.commits == {}
    assert series.unstable == [(1.5, 3.0)]
    assert series.isr == [(1.5, 2.0)]
    assert series.spark == [(1.5, 7.0)]
    assert "offsets that Spark has not read" in draw_timeline(series)
    (kill, jitter) = fault_spans(run, events)
    assert (kill.begin, kill.bitten, kill.heal_began, kill.healed) == (0.5, 1.0, 2.75, 3.0)
    assert (jitter.bitten, jitter.reason) == (None, "it is <not> slower")


def test_a_run_of_an_earlier_version_has_no_figures_and_the_same_report(tmp_path: Path) -> None:
    run = judged(tmp_path)
    text = page.write(run.path).read_text()
    (run.path / "figures.json").unlink()

    assert page.write(run.path).read_text() == text


def test_the_faults_of_a_walkthrough_come_from_its_journal(tmp_path: Path) -> None:
    run = judged(tmp_path)
    start = next(event.mono for event in read_events(run.path) if isinstance(event, Started))
    with HistoryWriter(run.histories / "faults.jsonl", run="r", client="faults", role="faults") as journal:
        ident = journal.fault_intent("kill", "kafka-2", ["kafka-2"], params={}, undo={"steps": []})
        journal.fault_bite(ident, {"exit_code": 137})
    record_only = [event for event in events_of(run) if not isinstance(event, Injected | NoBite | Healed)]
    (run.path / "events.jsonl").unlink()
    record(run, record_only)

    (span,) = fault_spans(run, read_events(run.path))

    assert span.name == "kill kafka-2"
    assert span.bite == {"exit_code": 137}
    assert span.bitten is not None
    assert span.begin <= span.bitten
    assert abs(span.begin - (time.monotonic_ns() - start) / 1e9) < 60
    assert span.healed is None
    assert "no fault was injected" not in page.write(run.path).read_text()


def test_a_run_without_events_has_a_report(tmp_path: Path) -> None:
    run = judged(tmp_path)
    (run.path / "events.jsonl").unlink()

    assert "no rates were recorded" in page.write(run.path).read_text()


def test_the_index_lists_every_run_and_the_comparison_lists_the_differences(tmp_path: Path) -> None:
    first = judged(tmp_path / "a")
    page.write(first.path)
    make_run(tmp_path / "b")
    second = judged(tmp_path / "c", shown=10)

    text = index.write(tmp_path / "a").read_text()
    (row,) = rows_of(text)
    assert row.pop("") == "2026-01-02 03:04:05"
    assert row.pop("records").isdigit()
    assert row == {
        "scenario": "demo",
        "seed": "7",
        "verdict": "invalid",
        "expected": "NOT as expected",
        "anomalies": "lost 1",
        "recovery": "",
        "back end": "",
        "length": "5 s",
    }
    assert re.search(r'<tr class="invalid scenario-demo surprise"><td><a href="demo/.*/report.html">', text)
    assert "<script" not in text
    (first.path / "events.jsonl").unlink()
    record(first, events_of(first, expected=True))
    text = index.write(tmp_path / "a").read_text()
    assert rows_of(text)[0]["expected"] == "as expected"
    assert 'class="invalid scenario-demo"' in text
    assert "not checked" in index.write(tmp_path / "b").read_text()
    with pytest.raises(UsageError, match="holds no run"):
        index.write(tmp_path)
    lines = [line.split() for line in format_facts(compare_facts(first.path, second.path))]
    assert ["verdict", "invalid", "valid"] in lines
    assert ["anomaly", "lost", "1", "-"] in lines
    assert not any(line[0] == "seed" for line in lines)


def test_a_comparison_names_the_keys_of_the_scenario_that_differ(tmp_path: Path) -> None:
    first = judged(tmp_path)
    second = RunDirectory(tmp_path / "demo" / "other")
    shutil.copytree(first.path, second.path)
    for run, rate, long in ((first, 5, "x" * 200), (second, 7, "x" * 199 + "y")):
        workload = {"kind": "transactional", "rate": rate, "settings": {"linger.ms": rate}, "key": long}
        content = {"scenario": {"shows": str(rate)}, "workload": [workload], "plan": {"steady": ["1s", "2s"]}}
        (run.path / "scenario.json").write_bytes(msgspec.json.encode(content))

    lines = [line.split() for line in format_facts(compare_facts(first.path, second.path))]

    assert [line[0] for line in lines[:-1]] == [
        "workload.0.rate",
        "workload.0.settings.linger.ms",
        "workload.0.key",
    ]
    assert lines[0][1:] == ["5", "7"]


@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_the_index_lists_a_run_that_cannot_be_read_beside_the_others(tmp_path: Path, name: str) -> None:
    damaged, other = judged(tmp_path), tmp_path / "demo" / "2026-01-02T030406-8"
    shutil.copytree(damaged.path, other)
    (damaged.path / name).write_text("{")

    rows = [row for row in index.write(tmp_path).read_text().split("<tr") if "<td" in row]

    assert len(rows) == 2
    assert sum("cannot be read" in row and name in row for row in rows) == 1
    assert sum('class="verdict">invalid' in row and "lost 1" in row for row in rows) == 1


def rows_of(text: str) -> list[dict[str, str]]:
    """Return the cells of each run in an index by the names of their columns."""
    cells = r'<td(?: data-head="([^"]*)")?[^>]*>(?:<a [^>]*>)?([^<]*)'
    return [dict(re.findall(cells, row)) for row in text.split("<tr")[2:]]


def test_the_index_has_a_filter_for_each_kind_of_run_and_a_trend_of_recovery_times(tmp_path: Path) -> None:
    run = judged(tmp_path)
    for number, took in enumerate((4.0, 2.5, 1.5)):
        copy = tmp_path / "demo" / f"2026-01-03T03040{number}-7"
        shutil.copytree(run.path, copy)
        limits = [{"name": "recovery", "measured": took, "limit": 60, "unit": "s"}]
        summary = json.loads((copy / "summary.json").read_text())
        summary["limits"] = {"recovery": {"measured": took, "limit": 60, "unit": "s", "held": True}}
        summary["verdict"] = ["valid", "unknown", "valid"][number]
        (copy / "summary.json").write_text(json.dumps(summary))
        (copy / "limits.json").write_text(json.dumps(limits))
    shutil.copytree(run.path, tmp_path / "a b<" / "2026-01-04T030400-7")

    text = index.write(tmp_path).read_text()

    filters = re.findall(r'<a href="#([^"]*)">([^<]*)</a>', text[: text.index("<table")])
    assert filters[0] == ("", "all 5")
    assert {text for _, text in filters[1:]} == {
        "not as expected, or over a limit 5",
        "valid 2",
        "invalid 2",
        "unknown 1",
        "demo 5",
    }
    for anchor, text_of_filter in filters[1:]:
        assert f'<span id="{anchor}"></span>' in text
        assert f"#{anchor}:target ~ .scroll tr:not(:first-child):not(.{anchor})" in text
        shown = [row for row in re.findall(r'<tr class="([^"]*)"', text) if anchor in row.split()]
        assert len(shown) == int(text_of_filter.rsplit(" ", 1)[1])
    assert "1.5 s in the newest run, 2.5 s in the middle one, 4 s at most (limit 60 s)" in text
    assert re.findall(r"<title>([\d.]+ s)</title>", text) == ["4 s", "2.5 s", "1.5 s"]


def test_the_index_marks_a_run_as_expected_that_exceeded_a_limit(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    check_run(run.path)
    record(run, events_of(run, expected=True))
    for number, limit in enumerate((60.0, 1.0)):
        copy = tmp_path / "demo" / f"2026-01-03T03040{number}-7"
        shutil.copytree(run.path, copy)
        summary = json.loads((copy / "summary.json").read_text())
        summary["limits"] = {"recovery": {"measured": 2, "limit": limit, "unit": "s", "held": limit > 2}}
        (copy / "summary.json").write_text(json.dumps(summary))

    text = index.write(tmp_path).read_text()

    assert [row["expected"] for row in rows_of(text)][:2] == ["as expected, limit exceeded", "as expected"]
    assert ["surprise" in row for row in re.findall(r'<tr class="([^"]*)"', text)][:2] == [True, False]
    assert "(limit 1 or 60 s)" in text


def test_an_interrupted_run_has_its_own_exit_code_in_the_results(tmp_path: Path) -> None:
    run = judged(tmp_path)
    assert results.result_of(run.path).exit_code == 1
    stopped = (run.path / "events.jsonl").read_text().replace('"exit_code":1,', '"exit_code":130,')
    (run.path / "events.jsonl").write_text(stopped)
    assert results.result_of(run.path).exit_code == 130


def test_the_junit_file_is_complete_after_every_event_and_fails_for_anomalies_only(tmp_path: Path) -> None:
    run = judged(tmp_path)
    junit = JUnit(tmp_path / "junit.xml")
    failures = []
    for event in events_of(run):
        junit(event)
        root = ElementTree.parse(tmp_path / "junit.xml").getroot()  # trusted: this test wrote the file
        failures.append(
            sorted(
                case.get("name", "")
                for case in root.iter("testcase")
                if len(case) and case[0].tag in ("failure", "error")
            )
        )

    assert failures[0] == ["verdict"]
    assert failures[2] == ["kill on kafka-1 at 1.0 s", "verdict"]
    assert failures[4] == ["verdict"]
    assert failures[-1] == ["exactly_once", "jitter at 3.5 s", "verdict invalid"]


def test_a_junit_file_of_expected_verdicts_fails_only_for_a_surprise(tmp_path: Path) -> None:
    run = judged(tmp_path, shown=8)
    for expected, failures in ((True, "0"), (False, "2")):
        file = tmp_path / f"{expected}.xml"
        junit = JUnit(file, as_expected=True)
        for event in events_of(run, expected=expected):
            junit(event)
        suite = ElementTree.parse(file).getroot()[0]
        assert suite.get("failures") == failures
        outputs = [case.findtext("system-out") or "" for case in suite.iter("testcase")]
        assert any("lost: " in output for output in outputs), "the finding stays visible"


@pytest.mark.parametrize("expected", [True, False])
def test_github_annotates_what_is_not_as_expected(tmp_path: Path, *, expected: bool) -> None:
    out, summary = io.StringIO(), tmp_path / "summary.md"
    listener = GitHub(out, summary)
    for event in events_of(make_run(tmp_path), expected=expected):
        listener(event)

    lines = out.getvalue().splitlines()
    assert lines[0] == "::warning title=demo%2C seed 7::jitter did not bite: it is <not> slower"
    assert len(lines) == (1 if expected else 2)
    assert ("**not** as expected" in summary.read_text()) is not expected


def test_results_are_grouped_by_scenario_and_by_fault(tmp_path: Path) -> None:
    file = tmp_path / results.NAME
    for root, expected in ((tmp_path / "a", False), (tmp_path / "b", True)):
        run = make_run(root, shown=9)
        check_run(run.path)
        record(run, events_of(run, expected=expected))
        results.append(file, results.result_of(run.path))

    lines = results.read(file)
    assert [result.expected for result in lines] == [False, True]
    assert [(f.fault, f.bit, f.healthy_after_s) for f in lines[0].faults] == [
        ("kill", True, 0.25),
        ("jitter", False, None),
    ]
    assert lines[0].seconds == {"faults": 4.9}
    assert lines[0].anomalies
    assert lines[0].verdict == "invalid"
    text = results.format_results(lines)
    rows = {line.split()[0]: line.split() for line in text if line}
    assert rows["demo"][2:5] == ["2", "1", "(1%-99%)"], "two runs, one of them as expected"
    assert rows["demo"][-3] == "-", "runs that were not valid leave more possible"
    valid = [msgspec.structs.replace(line, verdict="valid", exit_code=0) for line in lines]
    rows = {line.split()[0]: line.split() for line in results.format_results(valid) if line}
    assert rows["demo"][-3] == "78%"
    valid[0].exit_code = 3
    shown = results.format_results(valid)[1:]
    assert any("valid, 1 over a limit " in line for line in shown)
    assert any("78%" in line for line in shown)
    rows = {line.split()[0]: line.split() for line in text if line}
    assert rows["kill"][1:] == ["2", "2", "0.2", "0.2", "0.2"]
    assert rows["jitter"][1:] == ["2", "0", "-", "-", "-"]


def test_results_show_the_seconds_of_each_step(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    events: list[Event] = [
        PhaseEvent(at=1.0, name="settle"),
        PhaseEvent(at=2.0, name="spark", detail="a message, not a phase"),
        PhaseEvent(at=4.0, name="step 1"),
        PhaseEvent(at=5.0, name="step 2"),
        PhaseEvent(at=7.0, name="verify"),
        PhaseEvent(at=8.0, name="verify", detail="reading"),
        Timed(at=8.5, step="reader", took_s=1.5),
        Timed(at=9.0, step="raw-log", took_s=0.5),
    ]
    ending = next(event for event in events_of(run) if isinstance(event, VerdictEvent))
    result = results.seconds_of([*events, msgspec.structs.replace(ending, at=11.0)])
    assert result == {"settle": 3.0, "step": 3.0, "verify": 4.0, "verify/reader": 1.5, "verify/raw-log": 0.5}

    check_run(run.path)
    record(run, events_of(run, expected=True))
    line = results.result_of(run.path)
    text = results.format_results(
        [msgspec.structs.replace(line, seconds=seconds) for seconds in (result, {})]
    )
    rows = {row.split()[0]: row.split() for row in text if row}
    assert rows["verify"][1:] == ["1", "4.0", "4.0", "4.0", "40.0%"]
    assert rows["verify/raw-log"][1:] == ["1", "0.5", "0.5", "0.5", "5.0%"], "a part of its phase"


def test_an_incomplete_results_line_is_left_out_with_a_warning(tmp_path: Path) -> None:
    run = judged(tmp_path)
    record(run, events_of(run))
    file = tmp_path / results.NAME
    results.append(file, results.result_of(run.path))
    whole = file.read_bytes()
    file.write_bytes(b'{"run": "x"\n\n' + whole + b'{"run": "\xff"}\n' + whole[:-20])
    warnings: list[str] = []
    assert len(results.read(file, warnings.append)) == 1
    assert [warning.split(" is left out")[0] for warning in warnings] == [f"{file}:{n}" for n in (1, 4, 5)]
    with pytest.raises(UsageError, match="cannot be read"):
        results.read(tmp_path / "none.jsonl")
