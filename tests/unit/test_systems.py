"""The systems under test: their cases load, and docs/systems.md contains the recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from harness.base.errors import UsageError
from harness.base.events import Injected, NoBite
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary
from harness.scenario import load
from tools import systems
from tools.systems import APPS, EVIDENCE, Case, SystemRun, case_of, page_text, read_cases, recorded, run_of

CASES = {case.name: case for case in read_cases()}
LINE = SystemRun(
    case="streams/at_least_once",
    run="12345678",
    seed=1,
    started="2026-01-01T00:00:00",
    backend="process",
    kafka="4.3.1",
    commit="c0ffee",
    versions=["org.apache.kafka:kafka-streams:4.3.1"],
    settings={"GUARANTEE": "at_least_once"},
    guarantee="exactly once",
    instances=2,
    witnesses=["reader", "spark"],
    verdict="invalid",
    anomalies={"aggregate_drift": 17},
    permitted={},
    reasons=[],
    inputs=1000,
    faults={"kill_app app(*)": 2},
    without_effect=[],
    ready_s=4.5,
    memory_mb=190,
    replay="eos run streams.toml --seed 1",
)


@pytest.mark.parametrize("name", CASES)
def test_the_scenario_of_every_case_loads(name: str) -> None:
    case = CASES[name]
    scenario = load(APPS / case.scenario, case.changes)
    assert scenario.app is not None
    assert scenario.fault
    assert (APPS / case.system / "README.md").read_text().startswith("# ")
    assert f"`{case.title}`" in (APPS / case.system / "README.md").read_text(), (
        "the page of the system names it"
    )


def test_names_of_cases_are_unique() -> None:
    assert len(CASES) == len(read_cases())
    with pytest.raises(UsageError, match="there is no case streams/none"):
        case_of("streams/none")


def test_the_page_is_what_the_recorded_runs_give() -> None:
    assert systems.PAGE.read_text() == page_text(), "run: python -m tools.systems page"


def test_every_recorded_run_belongs_to_a_case_and_has_its_evidence() -> None:
    for line in recorded():
        assert line.case in CASES
        evidence = msgspec.json.decode((EVIDENCE / line.file).read_bytes())
        assert evidence["run"]["run"] == line.run
        assert evidence["verdict"]["verdict"] == line.verdict
    assert {path.name for path in EVIDENCE.glob("*.json")} == {line.file for line in recorded()}


def test_a_run_that_ends_otherwise_is_shown_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = msgspec.structs.replace(LINE, verdict="valid", anomalies={}, seed=2, run="calm0000")
    monkeypatch.setattr(systems, "recorded", lambda: [LINE, calm])

    page = page_text()

    assert "| **invalid**: aggregate_drift 17 |" in page
    assert "| **valid** (expected otherwise: verdict valid instead of invalid, no aggregate_drift) |" in page
    assert "2 x kill_app app(*)" in page
    assert "Ready after 4.5 to 4.5 s. The largest instance had 190 to 190 MB" in page
    assert "- back end without a run: compose" in page
    assert "at_least_once, exactly_once_v2" in page or "exactly_once_v2, at_least_once" in page
    untested = page.partition("faults without an injection in these runs: ")[2].partition("\n")[0]
    assert "`freeze_app`" in untested
    assert "`kill_app`" not in untested


def test_permitted_anomalies_are_demanded_too() -> None:
    case = Case(system="spark", title="t", scenario="s", permitted=["processed_twice"])
    assert case.missing(LINE) == ["verdict invalid instead of valid", "no permitted processed_twice"]
    mild = msgspec.structs.replace(LINE, verdict="valid", permitted={"processed_twice": 3})
    assert case.missing(mild) == []


def finished_run(folder: Path) -> Path:
    """Write the files of a run directory that a record is made of."""
    info = RunInfo(
        run="12345678",
        scenario="streams",
        seed=3,
        started="2026-01-01T00:00:00",
        environment={
            "backend": "process",
            "kafka": "4.3.1",
            "git": "c0ffee",
            "app_packages": ["a:b:1", "c:d:2"],
        },
        replay=f"eos run {systems.ROOT}/a.toml --seed 3 --runs /home/me/runs --state /home/me/state --keep",
    )
    run = RunDirectory.create(folder, info)
    entry: dict[str, Any] = {"fault": "kill", "target": "leader_of(a, 0)", "parameters": {}}
    other = entry | {"target": "one"}
    jitter = {"fault": "jitter", "target": "all", "parameters": {"latency_ms": 20.0}}
    run.write(
        "plan.json",
        {"throughout": [{"entry": jitter}], "steps": [{"entry": entry}, {"entry": other}, {"entry": entry}]},
    )
    env = {"GROUP": "{group}", "GUARANTEE": "at_least_once"}
    run.write(
        "scenario.json",
        {
            "app": {"command": ["{java}"], "env": env, "instances": 2, "directory": "/home/me"},
            "verify": {"witnesses": ["reader"]},
        },
    )
    run.write("verdict.json", {"verdict": "invalid"})
    contract = {"contract": {"verdict": "invalid", "compared": 55, "unit": "inputs"}}
    summary = Summary(
        run=info.run,
        scenario=info.scenario,
        seed=3,
        started=info.started,
        verdict="invalid",
        exit_code=1,
        operations=1,
        records=55,
        witnesses=[],
        anomalies={"aggregate_drift": 2},
        permitted={},
        properties=msgspec.convert(contract, dict[str, Any]),
        limits={},
        reasons=[],
        notes=[],
    )
    run.write("summary.json", summary)
    events = [
        '{"event":"phase","name":"app","detail":"ready after 4.9 s"}',
        msgspec.json.encode(Injected(fault="jitter", names=[], bite={}, took_s=1)).decode(),
        msgspec.json.encode(Injected(fault="kill", names=["kafka-1"], bite={}, took_s=1)).decode(),
        msgspec.json.encode(NoBite(fault="kill", reason="it still runs")).decode(),
        msgspec.json.encode(Injected(fault="kill", names=["kafka-2"], bite={}, took_s=1)).decode(),
        '{"event":"phase","name":"drain","detail":"memory at the start and at the end: '
        'the largest instance of the application 139 and 151 MB, x"}',
    ]
    run.write("events.jsonl", "".join(f"{line}\n" for line in events))
    return run.path


def test_a_line_is_made_from_the_run_directory(tmp_path: Path) -> None:
    line, evidence = run_of(CASES["streams/at_least_once"], finished_run(tmp_path))

    assert line.faults == {"jitter all latency_ms=20.0": 1, "kill leader_of(a, 0)": 2}
    assert line.without_effect == ["kill"]
    assert (line.ready_s, line.memory_mb) == (4.9, 151)
    assert line.witnesses == ["reader"]
    assert (line.settings, line.instances) == ({"GUARANTEE": "at_least_once"}, 2)
    assert (line.versions, line.inputs, line.seed) == (["a:b:1", "c:d:2"], 55, 3)
    assert line.anomalies == {"aggregate_drift": 2}
    assert evidence["plan"]["throughout"]
    assert line.replay == evidence["run"]["replay"] == "eos run a.toml --seed 3"
    assert evidence["scenario"]["app"]["directory"] == "streams"


def test_a_run_is_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "EVIDENCE", tmp_path / "evidence")
    monkeypatch.setattr(systems, "RUNS", tmp_path / "evidence" / "runs.jsonl")
    monkeypatch.setattr(systems, "PAGE", tmp_path / "systems.md")
    directory = finished_run(tmp_path / "runs")

    for _ in range(2):
        ended = CliRunner().invoke(systems.main, ["record", "streams/at_least_once", str(directory)])
        assert ended.exit_code == 0, ended.output
        assert ended.output == "streams/at_least_once seed 3: invalid\n"

    (line,) = systems.recorded()
    assert (tmp_path / "evidence" / line.file).exists()
    assert f"[{line.run}](evidence/systems/{line.file})" in (tmp_path / "systems.md").read_text()


def test_an_unknown_system_is_refused() -> None:
    ended = CliRunner().invoke(systems.main, ["run", "flunk"])
    assert ended.exit_code == 2
    assert "flunk is no system and no case" in ended.output


def test_a_case_names_the_packages_that_are_its_system(tmp_path: Path) -> None:
    case = msgspec.structs.replace(CASES["streams/at_least_once"], packages=["c:d", "a:"])
    line, _ = run_of(case, finished_run(tmp_path))
    assert line.versions == ["c:d:2", "a:b:1"]
