"""Pages of a run: the worst anomaly comes first, evidence is linked, and a page stays small."""

from __future__ import annotations

import json
import re
from pathlib import Path

from harness.base.events import Event, Healed, Injected, ProgressEvent, Started
from harness.evidence.checkers.check_run import check_run, summarise
from harness.evidence.checkers.model import ANOMALIES, SEVERITY, Anomaly, Example, HistoryRef, Result
from harness.evidence.checkers.model import Verdict as Found
from harness.evidence.checkers.verdict import CHECKED_BY, CHECKERS, Judgement
from harness.evidence.observation import Findings, Meta, Observation
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary
from harness.report import page, spark_progress
from harness.report.evidence_view import CONTRACT, anomaly_section
from harness.report.explanations import explanation_of
from harness.report.fault_spans import FaultSpan
from harness.report.timeline_data import PIECES, TimelineData, thinned
from harness.report.timeline_svg import draw_timeline
from tests.unit.test_report import judged, record
from tests.unit.test_run_directory import make_run


def result(name: str, count: int, unit: str, lines: list[HistoryRef]) -> Result:
    anomaly = Anomaly(name=name, count=count, unit=unit, examples=[Example(what=name, lines=lines)])
    return Result(property="p", verdict=Found.INVALID, compared=1, unit=unit, anomalies=[anomaly])


def shown(run: RunDirectory, *results: Result) -> str:
    judgement = Judgement(verdict=Found.INVALID, exit_code=1, operations=1, results=list(results))
    return anomaly_section(run, judgement).html


def test_missing_data_comes_before_late_data_whatever_the_counts(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    text = shown(
        run,
        result("stalled", 900, "operations", []),
        result("duplicate", 7, "records", []),
        result("torn_transaction", 3, "transactions", []),
        result("duplicate", 40, "offsets", []),
        result("lost", 1, "records", []),
    )
    heads = re.findall(r'<h3 id="([^"]+)"><code>(\w+)</code>: (\d+)', text)
    assert [(name, int(count)) for _, name, count in heads] == [
        ("lost", 1),
        ("torn_transaction", 3),
        ("duplicate", 40),
        ("duplicate", 7),
        ("stalled", 900),
    ]
    assert re.findall(r'href="#([^"]+)"', text) == [anchor for anchor, _, _ in heads]
    assert len({anchor for anchor, _, _ in heads}) == len(heads)
    assert set(SEVERITY) == set(ANOMALIES)


def test_an_example_links_its_history_lines_and_the_frames_of_the_operation(tmp_path: Path) -> None:
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

    text = shown(run, result("lost", 1, "records", [HistoryRef("p-1", asked), HistoryRef("gone", 3)]))

    assert f'<a href="history/p-1.jsonl">history/p-1.jsonl:{asked}</a>' in text
    assert re.findall(r'<a href="frames.jsonl">(.*?)</a>', text) == [
        "frames.jsonl:3 Produce request",
        "frames.jsonl:5 Produce response",
    ]
    assert "history/gone.jsonl:3\n  (the history file does not exist)" in text, "no link to a missing file"


def test_an_example_is_joined_with_the_faults_of_its_time_and_marked_in_the_timeline(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    lines = [json.loads(line) for line in (run.histories / "p-1.jsonl").read_text().splitlines()]
    asked = next(number for number, line in enumerate(lines, 1) if line["type"] == "invoke")
    begun = lines[asked - 1]["mono"]
    judgement = Judgement(
        verdict=Found.INVALID,
        exit_code=1,
        operations=1,
        results=[result("lost", 1, "records", [HistoryRef("p-1", asked)])],
    )

    def described(*faults: FaultSpan) -> str:
        return anomaly_section(run, judgement, faults, begun - 5 * 10**9).html

    during = FaultSpan("kill", ["kafka-1"], 4.5, 4.9, 7.0, 8.0)
    later = FaultSpan("jitter", ["all"], 6.0, 6.1, 7.0, 8.0)
    before = FaultSpan("sever", ["kafka-2"], 1.0, 1.1, 2.0, 3.0)
    missed = FaultSpan("stall", ["kafka-3"], 5.0, reason="not slower")

    text = described(during, later, before, missed)
    assert re.search(r"5\.0\d\d(-5\.\d+)? s of the run, during kill kafka-1 \(4\.5-8\.0 s\)<", text)
    assert re.search(r"s of the run, 2\.0 s after sever kafka-2 was healed<", described(later, before))
    assert "before any fault" in described(later, missed)
    assert re.search(r"history/p-1\.jsonl:\d+</a>  send, op \d+ \(\w+\), 5\.0\d\d s to 5\.\d+ s: ok", text)
    assert "a witness read its partition to the end" in text, "the explanation of docs/anomalies.md"
    (mark,) = anomaly_section(run, judgement, (), begun - 5 * 10**9).marks
    assert (mark.at, mark.name) == (5.0, "lost")
    drawn = draw_timeline(TimelineData(seconds=9.0), [during], [mark])
    assert f'<a href="#{mark.anchor}">' in drawn
    assert f'id="{mark.anchor}"' in text
    assert drawn.count('class="band') == 1


def test_every_anomaly_has_an_explanation_and_a_property_that_looks_for_it() -> None:
    assert set(CHECKED_BY) == set(ANOMALIES)
    assert set().union(*CHECKED_BY.values()) <= set(CHECKERS)
    assert all(explanation_of(name) for name in ANOMALIES)
    assert explanation_of("torn_transaction", of_app=True) == explanation_of("torn_transaction")


def test_every_anomaly_of_an_application_has_the_explanation_that_is_about_applications() -> None:
    of_apps = [name for name, properties in CHECKED_BY.items() if CONTRACT in properties]
    assert {"never_processed", "aggregate_drift", "stalled", "reordered"} <= set(of_apps)
    for name in of_apps:
        text = explanation_of(name, of_app=True)
        assert "pipeline" not in text, name
        assert text != explanation_of(name) or "application" in text, name


def test_the_report_of_an_hour_stays_below_the_size_limit(tmp_path: Path) -> None:
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
    check_run(run.path, write=True)
    (run.path / "diagram.svg").write_text(f"<svg>{'x' * 140_000}</svg>")
    progress = {"phase": "faults", "rate": 9.0, "committed": 0, "aborted": 0, "unknown": 0, "in_flight": 0}
    events: list[Event] = [
        Started(scenario="demo", run="r", seed=7, directory="", environment={}, mono=started)
    ]
    for at in range(seconds):
        events.append(
            ProgressEvent(
                at=at, acknowledged=at, active=[], lso_lag=at * 7919 % 997, isr=2 + at % 2, **progress
            )
        )  # type: ignore[arg-type]
        if at % 7 == 0:
            names = [f"kafka-{at % 3 + 1}"]
            bite = {"exit_code": 137, "moved_to": "kafka-2", "detail": "x" * 120}
            events.append(Injected(at=at, fault="kill", names=names, bite=bite, took_s=0.5))
            events.append(Healed(at=at + 3, fault="kill", names=names, health={}, took_s=1.0))
    record(run, events)

    text = page.write(run.path).read_text()

    assert len(text.encode()) < page.MOST_BYTES
    assert "more, in events.jsonl" in text
    curves = [len(re.findall("[LHM]", path)) for path in re.findall(r'class="curve c\d" d="([^"]+)"', text)]
    assert curves
    assert max(curves) <= 2 * PIECES


def test_the_timeline_counts_the_injections_that_it_leaves_out() -> None:
    faults = [FaultSpan("kill", [f"kafka-{at % 3}"], at, at + 1, at + 2, at + 3) for at in range(5000)]
    drawn = draw_timeline(TimelineData(seconds=5002.0), faults)
    assert len(drawn) < page.MOST_BYTES / 2
    assert "and 4400 more injections" in drawn
    assert "more injections" not in draw_timeline(TimelineData(seconds=5002.0), faults[:600])


def test_a_diagram_that_does_not_fit_is_linked(tmp_path: Path) -> None:
    run = judged(tmp_path)
    (run.path / "diagram.svg").write_text(f"<svg>{'x' * 200_000}</svg>")
    assert '<a href="diagram.svg">' in page.write(run.path).read_text()
    (run.path / "diagram.svg").write_text("<svg>drawn</svg>")
    assert "<svg>drawn</svg>" in page.write(run.path).read_text()


def test_a_thinned_curve_keeps_its_extremes() -> None:
    line = [(float(at), 1.0) for at in range(36_000)]
    line[20_000], line[30_000] = (20_000.0, 99.0), (30_000.0, 0.0)
    few = thinned(line, 36_000.0)
    assert len(few) <= 2 * PIECES
    assert {(20_000.0, 99.0), (30_000.0, 0.0)} <= set(few)
    assert few == sorted(few)
    assert thinned(line[: 2 * PIECES], 36_000.0) == line[: 2 * PIECES]


def test_the_summary_and_the_report_show_the_rows_of_the_stream_and_of_the_batch_job(tmp_path: Path) -> None:
    run = judged(tmp_path)
    assert run.read("summary.json", Summary).spark_rows == {}
    judgement = run.read("verdict.json", Judgement)
    views = []
    for witness, records in (("spark", 300), ("spark-batch", 299)):
        meta = Meta(witness=witness, kind="spark", records=records, complete=True, foreign=Findings(count=1))
        views.append(Observation(meta))
        run.write("summary.json", summarise(run.read("run.json", RunInfo), judgement, views))
    assert run.read("summary.json", Summary).spark_rows == {"stream": 301, "batch": 300}
    assert "301 rows by the stream, 300 by the batch job" in page.write(run.path).read_text()


def test_the_report_shows_batches_restarts_and_silences_of_spark(tmp_path: Path) -> None:
    run = judged(tmp_path)
    assert "Spark during the run" not in page.write(run.path).read_text()
    events = [
        ("start", 0, {"batch": -1}),
        ("batch", 2, {"rows": 100}),
        ("restart", 3, {"error": "all <brokers> away"}),
        ("batch", 43, {"rows": 50}),
        ("start", 44, {"batch": 1}),
    ]
    lines = [json.dumps({"what": what, "wall": at * 10**9, "mono": 0} | more) for what, at, more in events]
    (run.path / "logs").mkdir()
    (run.path / spark_progress.FILE).write_text("\n".join(lines) + '\n{"what": "ba')

    assert spark_progress.rows_of(run.path)[0] == (
        "read by the stream",
        "150 rows; it did NOT reach the frozen ends",
    )
    with (run.path / spark_progress.FILE).open("a") as log:
        ended = {"wall": 45 * 10**9, "mono": 0}
        log.write("\n" + json.dumps({"what": "reached", "batch": 2, "rows": 157, **ended}))
        log.write("\n" + json.dumps({"what": "second_opinion", "rows": 156, "seconds": 1.5, **ended}))
    assert spark_progress.rows_of(run.path) == [
        ("read by the stream", "157 rows in 3 batches, to frozen ends"),
        ("second opinion by the batch job", "156 rows in 1.5 s"),
        ("restarted from its checkpoint", "2 times"),
        ("reason", "all <brokers> away (1 times)"),
        ("reason", "the driver was restarted (1 times)"),
        ("longest silence", "40.0 s, from 3.0 s after its start"),
    ]
    text = page.write(run.path).read_text()
    assert "Spark during the run" in text
    assert "all &lt;brokers&gt; away" in text
