"""Reports of runs that are over: the page, the index, the comparison, JUnit, GitHub's annotations."""

from __future__ import annotations

import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from harness.checker.model import ANOMALIES, Anomaly, Example, HistoryRef, Result
from harness.checker.model import Verdict as Found
from harness.checker.run import check_run
from harness.checker.verdict import Judgement
from harness.errors import UsageError
from harness.events import Event, Healed, Injected, NoBite, Phase, Progress, Started, Verdict
from harness.history import history_files
from harness.ledger import fold
from harness.report import evidence, index, page, readalong, results
from harness.report.compare import differences
from harness.report.figure import figure
from harness.report.github import GitHub
from harness.report.junit import JUnit
from harness.report.recorder import Recorder
from harness.report.series import PIECES, Bar, Series, read_events, series_of, thinned
from harness.store import RunDirectory
from tests.unit.test_store import make_run

VOID = {"meta", "br", "link", "path", "rect"}


def events_of(run: RunDirectory, *, expected: bool = False) -> list[Event]:
    answered = int(fold(history_files(run.histories)).groups.answered[0])
    progress = {"phase": "faults", "acknowledged": 9, "rate": 9.0, "committed": 0, "aborted": 0, "unknown": 0}
    return [
        Started(scenario="demo", run="r", seed=7, directory=str(run.path), environment={"kafka": "4.3.1"},
                mono=answered - 2 * 10**9),
        Phase(at=0.1, name="faults"),
        Injected(at=1.0, fault="kill", names=["kafka-1"], bite={"exit_code": 137}, took_s=0.5),
        Progress(at=1.5, in_flight=0, active=[], lso_lag=3, isr=2, **progress),  # type: ignore[arg-type]
        Healed(at=3.0, fault="kill", names=["kafka-1"], health={}, took_s=0.25),
        NoBite(at=3.5, fault="jitter", reason="it is <not> slower"),
        Verdict(at=5.0, verdict="invalid", expected=expected, exit_code=1, text="lost: 1",
                replay="eos run demo", directory=str(run.path)),
    ]  # fmt: skip


def judged(root: Path, shown: int = 9) -> RunDirectory:
    run = make_run(root, shown=shown)
    check_run(run.path)
    with Recorder(run.path) as recorder:
        for event in events_of(run):
            recorder(event)
    return run


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


def test_the_report_is_one_file_with_the_verdict_first_and_the_evidence_in_it(tmp_path: Path) -> None:
    run = judged(tmp_path)
    text = page.write(run.path).read_text()

    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert {link for link in parser.links if link.startswith("#")} == {f"#{one}" for one in parser.anchors}
    files = {link for link in parser.links if not link.startswith("#")}
    assert files == {"history/p-1.jsonl"}, "no link leaves the directory of the run"
    assert all((run.path / unquote(file)).is_file() for file in files)
    assert "<script" not in text
    order = ["INVALID", "eos run demo", "What is wrong", "lost", "p-1.jsonl:", "What happened when", "Faults"]
    assert [text.index(word) for word in order] == sorted(text.index(word) for word in order)
    assert '"f":"send"' in text.replace("&quot;", '"')
    assert "it is &lt;not&gt; slower" in text
    assert "137" in text
    assert len(text) < 400_000


def found(name: str, count: int, unit: str, lines: list[HistoryRef]) -> Result:
    anomaly = Anomaly(name=name, count=count, unit=unit, examples=[Example(what=name, lines=lines)])
    return Result(
        property="p", verdict=Found.INVALID, compared=1, unit=unit, anomalies=[anomaly]
    )  # fmt: skip


def shown(run: RunDirectory, *results: Result) -> str:
    judgement = Judgement(verdict=Found.INVALID, exit_code=1, operations=1, results=list(results))
    return evidence.section(run, judgement)


def test_what_is_gone_comes_before_what_is_late_however_often(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    text = shown(
        run,
        found("stalled", 900, "operations", []),
        found("duplicate", 7, "records", []),
        found("torn_transaction", 3, "transactions", []),
        found("duplicate", 40, "offsets", []),
        found("lost", 1, "records", []),
    )
    heads = re.findall(r'<h3 id="([^"]+)"><code>(\w+)</code>: (\d+)', text)
    assert [(name, int(count)) for _, name, count in heads] == [
        ("lost", 1), ("torn_transaction", 3), ("duplicate", 40), ("duplicate", 7), ("stalled", 900),
    ]  # fmt: skip
    assert re.findall(r'href="#([^"]+)"', text) == [anchor for anchor, _, _ in heads]
    assert len({anchor for anchor, _, _ in heads}) == len(heads)
    assert set(evidence.WORST_FIRST) == set(ANOMALIES)


def test_an_example_leads_to_its_history_lines_and_to_the_frames_of_the_operation(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    lines = [json.loads(line) for line in (run.histories / "p-1.jsonl").read_text().splitlines()]
    asked = next(number for number, line in enumerate(lines, 1) if line["type"] == "invoke")
    begun, ended = (line["mono"] for line in lines if line.get("op") == 0)
    frames = [
        {"type": "open", "mono": 0},
        {"type": "frame", "mono": begun - 1, "client_id": "p-1", "api": "Metadata", "side": "request"},
        {"type": "frame", "mono": begun, "client_id": "p-1", "api": "Produce", "side": "request"},
        {"type": "frame", "mono": begun, "client_id": "p-2", "api": "Fetch", "side": "request"},
        {"type": "frame", "mono": ended, "client_id": "p-1", "api": "Produce", "side": "response"},
    ]
    log = run.path / "frames.jsonl"
    log.write_text("".join(f"{json.dumps(frame)}\n" for frame in frames) + '{"torn')

    text = shown(run, found("lost", 1, "records", [HistoryRef("p-1", asked), HistoryRef("gone", 3)]))

    assert f'<a href="history/p-1.jsonl">history/p-1.jsonl:{asked}</a>' in text
    assert re.findall(r'<a href="frames.jsonl">(.*?)</a>', text) == [
        "frames.jsonl:3 Produce request",
        "frames.jsonl:5 Produce response",
    ]
    assert "history/gone.jsonl:3\n  (the history is not there)" in text, "no link to a file that is not there"


def test_the_report_of_an_hour_is_no_larger_than_a_page_may_be(tmp_path: Path) -> None:
    seconds, started = 3600, 10**12
    run = make_run(tmp_path, shown=9)
    first = json.loads((run.histories / "p-1.jsonl").read_text().splitlines()[0]) | {"client": "p-2"}
    history = [first, {"type": "producer", "producer": 2, "lanes": [["t", 1]], "mono": started, "wall": 1}]
    for second in range(seconds):
        for part in range(3):
            op, at = 3 * second + part, started + second * 10**9
            ids = {"f": "send", "op": op, "wall": 1}
            history.append({"type": "invoke", "producer": 2, "sent": [[0, op, op]], "mono": at, **ids})
            took = (op * 7919) % 10**9
            history.append({"type": "ok", "acked": [[0, op, op, op]], "mono": at + took, **ids})
    (run.histories / "p-2.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in history))
    check_run(run.path)
    (run.path / "diagram.svg").write_text(f"<svg>{'x' * 140_000}</svg>")
    progress = {"phase": "faults", "rate": 9.0, "committed": 0, "aborted": 0, "unknown": 0, "in_flight": 0}
    with Recorder(run.path) as recorder:
        recorder(Started(scenario="demo", run="r", seed=7, directory="", environment={}, mono=started))
        for at in range(seconds):
            recorder(Progress(at=at, acknowledged=at, active=[], lso_lag=at * 7919 % 997,
                              isr=2 + at % 2, **progress))  # type: ignore[arg-type]  # fmt: skip
            if at % 7 == 0:
                names = [f"kafka-{at % 3 + 1}"]
                bite = {"exit_code": 137, "moved_to": "kafka-2", "detail": "x" * 120}
                recorder(Injected(at=at, fault="kill", names=names, bite=bite, took_s=0.5))
                recorder(Healed(at=at + 3, fault="kill", names=names, health={}, took_s=1.0))

    text = page.write(run.path).read_text()

    assert len(text.encode()) < page.MOST_BYTES
    assert "more, in events.jsonl" in text
    curves = [len(re.findall("[LHM]", path)) for path in re.findall(r'class="curve c\d" d="([^"]+)"', text)]
    assert curves
    assert max(curves) <= 2 * PIECES


def test_of_thousands_of_injections_the_figure_says_what_it_leaves_out() -> None:
    bars = [Bar(f"kill kafka-{at % 3}", at, at + 1, at + 2) for at in range(5000)]
    drawn = figure(Series(seconds=5002.0, bars=bars))
    assert len(drawn) < page.MOST_BYTES / 2
    assert "and 4200 more injections" in drawn
    assert "more injections" not in figure(Series(seconds=5002.0, bars=bars[:800]))


def test_a_diagram_that_does_not_fit_is_linked(tmp_path: Path) -> None:
    run = judged(tmp_path)
    (run.path / "diagram.svg").write_text(f"<svg>{'x' * 200_000}</svg>")
    assert '<a href="diagram.svg">' in page.write(run.path).read_text()
    (run.path / "diagram.svg").write_text("<svg>drawn</svg>")
    assert "<svg>drawn</svg>" in page.write(run.path).read_text()


def test_a_thinned_curve_keeps_what_stands_out() -> None:
    line = [(float(at), 1.0) for at in range(36_000)]
    line[20_000], line[30_000] = (20_000.0, 99.0), (30_000.0, 0.0)
    few = thinned(line, 36_000.0)
    assert len(few) <= 2 * PIECES
    assert {(20_000.0, 99.0), (30_000.0, 0.0)} <= set(few)
    assert few == sorted(few)
    assert thinned(line[: 2 * PIECES], 36_000.0) == line[: 2 * PIECES]


def test_how_spark_read_along_is_told(tmp_path: Path) -> None:
    run = judged(tmp_path)
    assert "Spark read along" not in page.write(run.path).read_text()
    said = [
        ("start", 0, {"batch": -1}),
        ("batch", 2, {"rows": 100}),
        ("restart", 3, {"error": "all <brokers> away"}),
        ("batch", 43, {"rows": 50}),
        ("start", 44, {"batch": 1}),
        ("last_pass", 45, {"records": 7}),
    ]
    lines = [json.dumps({"what": what, "wall": at * 10**9, "mono": 0} | more) for what, at, more in said]
    (run.path / "logs").mkdir()
    (run.path / readalong.FILE).write_text("\n".join(lines) + '\n{"what": "ba')

    assert readalong.rows_of(run.path) == [
        ("batches", "2, 150 rows"),
        ("last pass", "7 offsets"),
        ("begun anew", "2 times from its checkpoint"),
        ("because", "all <brokers> away (1 times)"),
        ("because", "the driver was started again (1 times)"),
        ("longest silence", "40.0 s, 3.0 s after its start"),
    ]
    text = page.write(run.path).read_text()
    assert "How Spark read along" in text
    assert "all &lt;brokers&gt; away" in text


def test_the_report_of_a_run_that_was_never_judged_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"verdict\.json"):
        page.write(make_run(tmp_path).path)


def test_the_curves_are_those_of_the_histories(tmp_path: Path) -> None:
    run = judged(tmp_path)
    series = series_of(read_events(run.path), fold(history_files(run.histories)))

    assert max(series.records["committed"], key=lambda point: point[1]) == (2.5, 10.0)
    assert series.latency["half"][0][0] == 2.5
    assert series.lag == [(1.5, 3.0)]
    assert series.isr == [(1.5, 2.0)]
    assert [(bar.begin, bar.bitten, bar.healed) for bar in series.bars] == [(0.5, 1.0, 3.0)]


def test_a_run_without_events_has_a_report_all_the_same(tmp_path: Path) -> None:
    run = judged(tmp_path)
    (run.path / "events.jsonl").unlink()

    assert "not recorded" in page.write(run.path).read_text()


def test_the_index_names_every_run_and_the_comparison_what_differs(tmp_path: Path) -> None:
    first = judged(tmp_path / "a")
    page.write(first.path)
    make_run(tmp_path / "b")
    second = judged(tmp_path / "c", shown=10)

    text = index.write(tmp_path / "a").read_text()
    assert re.search(r"<td>demo<td>7<td>invalid<td>lost<td>\d+<td><a href=.demo/.*/report.html", text)
    assert "not judged" in index.write(tmp_path / "b").read_text()
    with pytest.raises(UsageError, match="holds no run"):
        index.write(tmp_path)
    lines = [line.split() for line in differences(first.path, second.path)]
    assert ["verdict", "invalid", "valid"] in lines
    assert ["anomaly", "lost", "1", "-"] in lines
    assert not any(line[0] == "seed" for line in lines)


@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_a_run_that_cannot_be_read_does_not_keep_the_others_from_the_index(tmp_path: Path, name: str) -> None:
    damaged, other = judged(tmp_path), tmp_path / "demo" / "2026-01-02T030406-8"
    shutil.copytree(damaged.path, other)
    (damaged.path / name).write_text("{")

    rows = [row for row in index.write(tmp_path).read_text().split("<tr>") if "<td>" in row]

    assert len(rows) == 2
    assert sum("cannot be read" in row and name in row for row in rows) == 1
    assert sum("<td>invalid<td>lost" in row for row in rows) == 1


def test_a_run_that_was_stopped_is_in_the_results_with_its_own_exit_code(tmp_path: Path) -> None:
    run = judged(tmp_path)
    assert results.result_of(run.path).exit_code == 1
    stopped = (run.path / "events.jsonl").read_text().replace('"exit_code":1,', '"exit_code":130,')
    (run.path / "events.jsonl").write_text(stopped)
    assert results.result_of(run.path).exit_code == 130


def test_junit_is_whole_after_every_event_and_fails_only_for_what_is_wrong(tmp_path: Path) -> None:
    run = judged(tmp_path)
    junit = JUnit(tmp_path / "junit.xml")
    failures = []
    for event in events_of(run):
        junit(event)
        root = ElementTree.parse(tmp_path / "junit.xml").getroot()  # our own file
        failures.append(sorted(case.get("name", "") for case in root.iter("testcase") if len(case) and
                               case[0].tag in ("failure", "error")))  # fmt: skip

    assert failures[0] == ["verdict"]
    assert failures[2] == ["kill on kafka-1 at 1.0 s", "verdict"]
    assert failures[4] == ["verdict"]
    assert failures[-1] == ["exactly_once", "jitter at 3.5 s", "verdict invalid"]


@pytest.mark.parametrize("expected", [True, False])
def test_actions_are_told_what_is_not_as_expected(tmp_path: Path, *, expected: bool) -> None:
    out, summary = io.StringIO(), tmp_path / "summary.md"
    told = GitHub(out, summary)
    for event in events_of(make_run(tmp_path), expected=expected):
        told(event)

    lines = out.getvalue().splitlines()
    assert lines[0] == "::warning title=demo%2C seed 7::jitter did not bite: it is <not> slower"
    assert len(lines) == (1 if expected else 2)
    assert ("**not** as expected" in summary.read_text()) is not expected


def test_results_gather_verdicts_by_scenario_and_recovery_by_fault(tmp_path: Path) -> None:
    file = tmp_path / results.NAME
    for root, expected in ((tmp_path / "a", False), (tmp_path / "b", True)):
        run = make_run(root, shown=9)
        check_run(run.path)
        with Recorder(run.path) as recorder:
            for event in events_of(run, expected=expected):
                recorder(event)
        results.append(file, results.result_of(run.path))

    found = results.read(file)
    assert [result.expected for result in found] == [False, True]
    assert [(f.fault, f.bit, f.healthy_after_s) for f in found[0].faults] == [
        ("kill", True, 0.25),
        ("jitter", False, None),
    ]
    assert found[0].anomalies
    assert found[0].verdict == "invalid"
    text = results.tell(found)
    rows = {line.split()[0]: line.split() for line in text if line}
    assert rows["demo"][2:5] == ["2", "1", "(1%-99%)"], "two runs, one of them as expected"
    assert rows["kill"][1:] == ["2", "2", "0.2", "0.2", "0.2"]
    assert rows["jitter"][1:] == ["2", "0", "-", "-", "-"]


def test_a_results_file_that_was_cut_off_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / results.NAME
    file.write_text('{"run": "x"\n')
    with pytest.raises(UsageError, match=r"results.jsonl:1: "):
        results.read(file)
    with pytest.raises(UsageError, match="cannot be read"):
        results.read(tmp_path / "none.jsonl")
