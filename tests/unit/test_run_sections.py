"""Sections of a report: counts of anomalies, key figures, faults and recovery in one clock, applications."""

from __future__ import annotations

import html
import re
from pathlib import Path

from harness.base.events import Event, PhaseEvent, ProgressEvent, Started
from harness.evidence.app_list import AppList, AppStart
from harness.evidence.checkers.model import (
    ANOMALIES,
    Anomaly,
    AppContract,
    Example,
    Expect,
    OutputContract,
    Result,
    Verdict,
)
from harness.evidence.checkers.run_figures import Figures, Read, Statement
from harness.evidence.checkers.verdict import Judgement, Limit
from harness.evidence.contract_statement import Statement as Demand
from harness.evidence.run_directory import LimitSummary, Summary
from harness.evidence.step_report import WalkthroughStep
from harness.report import page
from harness.report.fault_spans import FaultSpan
from harness.report.run_sections import (
    app_view,
    compared_rows,
    fault_rows,
    find_counts,
    format_bite,
    recovery_line,
)
from tests.unit.test_report import judged
from tests.unit.test_run_directory import make_run

SECOND = 10**9


def judgement_of(*results: Result) -> Judgement:
    limits = [Limit(name="recovery", measured=70.0, limit=60.0, unit="s")]
    return Judgement(verdict=Verdict.INVALID, exit_code=1, operations=1, results=list(results), limits=limits)


def result(name: str, verdict: Verdict, *anomalies: Anomaly) -> Result:
    return Result(property=name, verdict=verdict, compared=5, unit="records", anomalies=list(anomalies))


def contract(*verbs: str, least: int = 1) -> AppContract:
    output = OutputContract(topic="bills.r1", least=least, most=None)
    demands = [
        Demand(output="bills.r1", verb=verb, text="a = b", query="q", count="c", columns=[]) for verb in verbs
    ]
    return AppContract(inputs=["orders.r1"], outputs=[output], statements=demands)


def test_every_name_has_a_count_or_is_listed_as_not_looked_for() -> None:
    twice = [
        Anomaly(name="duplicate", count=n, unit=unit, examples=[])
        for n, unit in ((3, "records"), (2, "keys"))
    ]
    judgement = judgement_of(
        result("exactly_once", Verdict.INVALID, *twice),
        result("order", Verdict.UNKNOWN),
        result("atomicity", Verdict.VALID),
    )
    counts = {row.name: (row.text, row.kind) for row in find_counts(judgement)}

    assert list(counts) == list(ANOMALIES)
    assert counts["duplicate"] == ("3 records, 2 keys", "found")
    assert counts["lost"] == ("0", "zero")
    assert counts["torn_transaction"] == ("0", "zero")
    assert counts["reordered"] == ("0, not certain", "open")
    assert counts["early_read"] == ("0, not certain", "open"), "one of its two properties is unknown"
    assert counts["stalled"] == ("not looked for", "skipped")


def test_what_the_contract_of_an_application_cannot_find_was_not_looked_for() -> None:
    judgement = judgement_of(result("contract", Verdict.VALID))

    def kinds(terms: AppContract) -> dict[str, str]:
        return {row.name: row.kind for row in find_counts(judgement, terms)}

    few, many = kinds(contract()), kinds(contract("holds", "is"))
    assert (few["wrong_output"], few["aggregate_drift"], few["never_processed"]) == (
        "skipped",
        "skipped",
        "zero",
    )
    assert (many["wrong_output"], many["aggregate_drift"]) == ("zero", "zero")


def test_faults_and_recovery_have_seconds_of_the_run() -> None:
    kill = FaultSpan("kill", ["kafka-1"], 4.5, 5.0, 8.25, 10.0, {"exit_code": {"kafka-1": 137}})
    missed = FaultSpan("stall", ["kafka-3"], 11.0, reason="it is not slower")
    assert fault_rows([kill, missed]) == [
        ("kill kafka-1", "4.5 s", "5.0 s", "8.2 s", "10.0 s", "exit code: kafka-1 137"),
        ("stall kafka-3", "11.0 s", "-", "-", "-", "no bite: it is not slower"),
    ]
    bite = {
        "slower_ms": {"a": 1.5, "b": 2.0},
        "moved_after_s": 2.68,
        "links": ["x", "y"],
        "steps": [{"a": 1}],
    }
    assert format_bite(bite) == "slower: a 1.5 ms, b 2.0 ms; moved after: 2.68 s; links: x y"
    assert format_bite({"kb_per_s": {"proxied-2": 20.4}}) == "rate: proxied-2 20.4 kB/s"

    limits = {"recovery": LimitSummary(measured=1.5, limit=60, unit="s", held=True)}
    summary = Summary(
        **{"run": "r", "scenario": "s", "seed": 1, "started": "", "verdict": "valid", "exit_code": 0},
        **{
            "operations": 1,
            "records": 1,
            "witnesses": [],
            "anomalies": {},
            "permitted": {},
            "properties": {},
        },
        **{"limits": limits, "reasons": [], "notes": []},
    )  # type: ignore[arg-type]
    progress = ProgressEvent(
        **{"phase": "faults", "acknowledged": 1, "rate": 1.0, "committed": 0, "aborted": 0, "unknown": 0},
        **{"in_flight": 0, "active": [], "lso_lag": None},
    )  # type: ignore[arg-type]
    events: list[Event] = [PhaseEvent(at=12.0, name="recover")]
    text = recovery_line([*events, progress], [kill, missed], summary)
    assert "healthy again at 10.0 s" in text
    assert (
        "from 12.0 s, when the phase with faults had ended, to 13.5 s, when every client made progress"
        in text
    )
    assert "1.5 s (limit 60 s)" in text
    assert "to 13.5 s, when the cluster was healthy:" in recovery_line(events, [kill], summary)
    assert ("recovery", "breached", "70 of 60 s", "") in compared_rows(judgement_of())


def test_the_report_of_an_application_shows_its_restarts_and_what_breaks_its_contract(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.path / "logs").mkdir()
    (run.path / "logs" / "app-1.log").write_text("no memory\n")
    run.write("expect.json", Expect(contract=contract("holds", "is")))
    starts = [
        AppStart(
            instance="app-1", number=1, started=3 * SECOND, ended="by itself", at=5 * SECOND, exit_code=1
        )
    ]
    starts[0].last_line = "no <memory>"
    starts += [
        AppStart(instance="app-1", number=2, started=6 * SECOND),
        AppStart(instance="app-2", number=1, started=4 * SECOND),
    ]
    run.write("app.json", AppList(run="r1", clock="c", starts=starts, gave_up={"app-1": "3 starts failed"}))
    figures = Figures(
        outputs={"bills.r1": {"reader": Read(12, 10), "spark": Read(12, 10)}},
        statements=[
            Statement(witness=witness, output="bills.r1", verb=verb, text="a = b", compared=9, broken=broken)
            for witness in ("reader", "spark-batch")
            for verb, broken in (("holds", 0), ("is", 4))
        ],
    )
    lost = Anomaly(
        name="never_processed",
        count=7,
        unit="inputs",
        examples=[Example(what="input 3 has no output in bills.r1")],
    )
    other = Anomaly(
        name="aggregate_drift",
        count=4,
        unit="keys",
        examples=[Example(what="bills.r1: differs (is: a = b): key 2")],
    )
    events: list[Event] = [
        Started(scenario="s", run="r1", seed=1, directory="", environment={}, mono=2 * SECOND)
    ]

    view = app_view(
        run, "r1", judgement_of(result("contract", Verdict.INVALID, lost, other)), figures, events
    )

    assert view is not None
    assert view.outputs.rows == [("bills", "12, of 10 inputs", "12, of 10 inputs")]
    assert view.demands == [
        ("bills", "at least 1 for each input", "5 records", "never_processed 7 inputs"),
        ("bills", "holds: a = b", "reader 9, spark-batch 9", "reader 0, spark-batch 0"),
        ("bills", "is: a = b", "reader 9, spark-batch 9", "reader 4, spark-batch 4"),
    ]
    assert [row[1:5] for row in view.starts] == [
        ("1.0 s", "3.0 s", "by itself", "1"),
        ("4.0 s", "-", "no end recorded", ""),
        ("2.0 s", "-", "no end recorded", ""),
    ]
    assert view.starts[0][0] == '<a href="logs/app-1.log">app-1, start 1</a>'
    assert view.starts[2][0] == "app-2, start 1", "it left no log"
    assert view.notes == ["app-1 was not restarted any more: 3 starts failed", "Restarts: app-1 1, app-2 0."]
    run.write("expect.json", Expect())
    assert app_view(judged(tmp_path / "b"), "r", judgement_of(), figures, events) is None
    text = page.write(run.path).read_text()
    assert "<h2>Application under test</h2>" in text
    assert "no &lt;memory&gt;" in text


def test_the_report_of_a_walkthrough_shows_its_steps(tmp_path: Path) -> None:
    run = judged(tmp_path)
    assert "textbook" not in page.write(run.path).read_text()
    step = WalkthroughStep(number=3, title="A response is <lost>")
    step.prove("the log contains it once", "1 batch", True)
    step.compare("the broker reports a repeat", "it reports nothing", False)
    run.write("walkthrough.json", [step])

    text = html.unescape(page.write(run.path).read_text())

    assert "<h3>3. A response is <lost></h3>" in text
    rows = re.findall(
        r'<tr><td>([^<]*)</td><td data-head="observed">([^<]*)</td><td [^>]*class="(\w+)"', text
    )
    assert rows == [
        ("the log contains it once", "1 batch", "same"),
        ("the broker reports a repeat", "it reports nothing", "different"),
    ]
