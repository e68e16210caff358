"""The campaign of planted bugs: drawing of runs, comparison of verdicts, tables, and resuming."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from harness.base.errors import ExitCode, UsageError
from harness.clients.bug_log import FILE, BugLog
from harness.clients.planted_bugs import BUGS
from harness.cluster.backend import capabilities_of
from harness.evidence.run_directory import Summary
from harness.scenario import shipped
from tools import campaign
from tools.campaign import (
    CONTROLS,
    SCENARIOS,
    Campaign,
    Drawn,
    Line,
    Outcome,
    classify,
    controls_on,
    draw,
    format_line,
    missing_runs,
    places_of,
    read_lines,
    result_of,
    scenario_of,
    tables,
)

HEALTHY = Drawn(number=0, seed=5, scenario="jitter", backend="process")
CONTROL = Drawn(number=0, seed=5, scenario="without-idempotence", backend="process")
SUMMARY = Summary(
    run="abcd1234",
    scenario="jitter",
    seed=1,
    started="2026-01-01T00:00:00",
    verdict="valid",
    exit_code=0,
    operations=1,
    records=1,
    witnesses=[],
    anomalies={},
    permitted={},
    properties={},
    limits={},
    reasons=[],
    notes=[],
)
CONTRADICTION = "producer 1: lane 0: sequence 7 was sent by two operations"


def with_bug(name: str) -> Drawn:
    return Drawn(number=1, seed=6, scenario="jitter", backend="compose", bug=name, workload=0)


def outcome(
    run: Drawn, verdict: str, *names: str, fired: int = 0, harmful: int = 0, why: str = ""
) -> Outcome:
    return classify(run, verdict, names, [why] if why else [], fired=fired, harmful=harmful)


def test_a_longer_campaign_begins_with_the_same_runs() -> None:
    long = draw(3, 60, ["process", "compose"])
    assert draw(3, 20, ["process", "compose"]) == long[:20]
    assert draw(4, 60, ["process", "compose"]) != long


def test_half_of_the_runs_have_a_bug_and_each_back_end_has_half_of_both() -> None:
    drawn = draw(1, 96, ["process", "compose"])
    shares = Counter((run.backend, bool(run.bug)) for run in drawn)
    assert set(shares.values()) == {24}
    assert Counter(run.bug for run in drawn if run.bug) == dict.fromkeys(BUGS, 4)
    assert {run.backend for run in draw(1, 9, ["compose"])} == {"compose"}


def test_a_bug_is_planted_only_in_clients_that_can_have_it() -> None:
    for run in draw(2, 200, ["process"]):
        if run.bug:
            assert scenario_of(run.scenario).workload[run.workload].kind in BUGS[run.bug].kinds
            assert run.scenario in SCENARIOS
        else:
            assert run.workload == -1


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_has_a_workload(bug: str) -> None:
    kinds = {scenario_of(name).workload[index].kind for name, index in places_of(bug)}
    assert kinds == set(BUGS[bug].kinds)


def test_a_back_end_carries_out_the_faults_of_its_scenarios() -> None:
    assert controls_on("compose") == list(CONTROLS)
    assert controls_on("process") == ["read-uncommitted", "without-idempotence"]
    for run in draw(5, 300, ["process"]):
        faults = {entry.capability for entry in scenario_of(run.scenario).fault}
        assert faults <= capabilities_of("process")


def test_the_scenarios_of_a_campaign_are_shipped_and_expect_what_their_list_promises() -> None:
    assert {*SCENARIOS, *CONTROLS} <= {path.stem for path in shipped()}
    assert {scenario_of(name).scenario.expect for name in SCENARIOS} == {"valid"}
    assert {scenario_of(name).scenario.expect for name in CONTROLS} == {"invalid"}


def test_a_run_without_a_bug_must_get_the_verdict_of_its_scenario() -> None:
    assert outcome(HEALTHY, "valid") is Outcome.RIGHT
    assert outcome(HEALTHY, "invalid", "lost") is Outcome.FALSE_ANOMALY
    assert outcome(HEALTHY, "unknown", why="x") is Outcome.UNKNOWN
    assert outcome(CONTROL, "invalid", "duplicate") is Outcome.RIGHT
    assert outcome(CONTROL, "invalid", "lost") is Outcome.MISSED
    assert outcome(CONTROL, "valid") is Outcome.MISSED
    assert outcome(CONTROL, "unknown") is Outcome.UNKNOWN


def test_a_bug_that_did_harm_must_be_found() -> None:
    run = with_bug("forgotten-send")
    assert outcome(run, "invalid", "lost", fired=2, harmful=1) is Outcome.RIGHT
    assert outcome(run, "invalid", "lost", "torn_transaction", fired=2, harmful=1) is Outcome.RIGHT
    assert outcome(run, "valid", fired=2, harmful=1) is Outcome.MISSED
    assert outcome(run, "invalid", "torn_transaction", fired=2, harmful=1) is Outcome.MISSED
    assert outcome(run, "unknown", fired=2, harmful=1) is Outcome.UNKNOWN


def test_an_anomaly_that_the_bug_cannot_cause_is_false() -> None:
    run = with_bug("double-send")
    assert outcome(run, "invalid", "duplicate", "stalled", fired=2, harmful=2) is Outcome.FALSE_ANOMALY
    assert outcome(run, "invalid", "stalled", fired=1) is Outcome.FALSE_ANOMALY


def test_a_bug_whose_harm_is_uncertain_may_be_found() -> None:
    run = with_bug("double-send")
    assert outcome(run, "valid", fired=1) is Outcome.RIGHT
    assert outcome(run, "invalid", "duplicate", fired=1) is Outcome.RIGHT
    assert outcome(run, "unknown", fired=1) is Outcome.UNKNOWN


def test_a_bug_that_never_fired_makes_no_difference() -> None:
    run = with_bug("double-send")
    assert outcome(run, "valid") is Outcome.RIGHT
    assert outcome(run, "invalid", "duplicate") is Outcome.FALSE_ANOMALY


def test_a_history_that_contradicts_itself_must_be_a_reason_of_the_verdict() -> None:
    run = with_bug("wrong-sequence")
    assert outcome(run, "invalid", "lost", fired=1, harmful=1, why=CONTRADICTION) is Outcome.RIGHT
    assert outcome(run, "invalid", "lost", fired=1, harmful=1) is Outcome.MISSED
    assert outcome(run, "invalid", "stalled", fired=1, harmful=1, why=CONTRADICTION) is Outcome.FALSE_ANOMALY
    assert outcome(run, "unknown", fired=1, harmful=1, why=CONTRADICTION) is Outcome.RIGHT
    assert outcome(run, "unknown", fired=1, harmful=1, why="no witness") is Outcome.UNKNOWN
    assert outcome(run, "valid", fired=1, harmful=1) is Outcome.MISSED
    assert (
        outcome(with_bug("double-send"), "unknown", fired=1, harmful=1, why=CONTRADICTION) is Outcome.UNKNOWN
    )


def line(run: Drawn, end: Outcome, **fields: Any) -> Line:
    return Line(run=run, outcome=end, **fields)


def test_the_tables_count_each_run_once() -> None:
    bug = with_bug("double-send")
    lines = [
        line(bug, Outcome.RIGHT, fired=2, harmful=2),
        line(bug, Outcome.RIGHT, fired=2),
        line(bug, Outcome.RIGHT),
        line(bug, Outcome.MISSED, fired=1, harmful=1),
        line(bug, Outcome.UNKNOWN, fired=1, harmful=1),
        line(HEALTHY, Outcome.RIGHT),
        line(HEALTHY, Outcome.FALSE_ANOMALY),
        line(CONTROL, Outcome.NO_VERDICT),
    ]
    rows = {
        cells[0]: cells[1:] for row in tables(lines) if (cells := [c.strip() for c in row.split("|")[1:-1]])
    }

    assert rows["`double-send`"] == ["5", "1", "1", "1", "1", "0", "1", "0"]
    assert rows["all"] == rows["`double-send`"]
    assert rows["`forgotten-send`"] == ["0"] * 8
    assert rows["scenarios that expect valid"] == ["2", "1", "0", "1", "0", "0"]
    assert rows["negative controls"] == ["1", "0", "0", "0", "0", "1"]
    assert rows["planted bug"][1:4] == ["found", "harm uncertain", "not fired"]


def test_a_line_names_the_run_the_bug_and_the_verdict() -> None:
    text = format_line(
        line(
            with_bug("double-send"),
            Outcome.RIGHT,
            fired=3,
            harmful=2,
            verdict="invalid",
            anomalies={"duplicate": 2},
            seconds=41.6,
        )
    )
    assert text == (
        "   1 seed      6 jitter               compose  double-send in workload 0, harmful "
        "(fired 3, harmful 2): invalid (duplicate 2), as expected, 42 s"
    )


def finished_run(folder: Path, **changes: Any) -> Path:
    directory = folder / "jitter" / "t-1"
    (directory / "logs").mkdir(parents=True)
    (directory / "run.json").write_text("{}")
    summary = msgspec.structs.replace(SUMMARY, **changes)
    (directory / "summary.json").write_bytes(msgspec.json.encode(summary))
    return directory


def test_the_result_of_a_run_has_its_verdict_and_what_the_clients_recorded(tmp_path: Path) -> None:
    directory = finished_run(tmp_path, verdict="invalid", anomalies={"duplicate": 3}, reasons=["r"])
    (tmp_path / "jitter" / "latest").symlink_to("t-1")
    for client in ("a", "b"):
        log = BugLog(directory / "logs" / f"{client}.{FILE}")
        log.fired()
        log.harmful()

    result = result_of(with_bug("double-send"), tmp_path)

    assert (result.fired, result.harmful, result.verdict) == (2, 2, "invalid")
    assert (result.anomalies, result.reasons) == ({"duplicate": 3}, ["r"])
    assert (result.outcome, result.effect, result.directory) == (Outcome.RIGHT, "harmful", str(directory))


def test_a_run_without_a_summary_has_no_verdict(tmp_path: Path) -> None:
    assert result_of(HEALTHY, tmp_path).outcome is Outcome.NO_VERDICT
    (finished_run(tmp_path) / "summary.json").unlink()
    assert result_of(HEALTHY, tmp_path).outcome is Outcome.NO_VERDICT


class ScriptedCommands:
    """Stand-in for the `eos` command: it returns exit codes from a list, and a run leaves its directory."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.calls: list[list[str]] = []

    def __call__(self, arguments: list[str], _: int) -> int:
        self.calls.append(arguments)
        code = self.codes.pop(0) if self.codes else 0
        if arguments[0] == "run" and code < ExitCode.USAGE:
            folder = Path(arguments[arguments.index("--runs") + 1])
            finished_run(folder, verdict="valid", anomalies={}, reasons=[])
        return code

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> ScriptedCommands:
    scripted = ScriptedCommands()
    monkeypatch.setattr(campaign, "run_eos", scripted)
    return scripted


def make_campaign(folder: Path) -> Campaign:
    (folder / "out").mkdir()
    return Campaign(folder / "out", folder / "state", 7.0, folder / "lock")


def test_runs_on_one_back_end_share_a_cluster(tmp_path: Path, commands: ScriptedCommands) -> None:
    runs = make_campaign(tmp_path)
    runs.carry_out(HEALTHY)
    runs.carry_out(HEALTHY)
    runs.carry_out(with_bug("double-send"))
    runs.close()

    assert commands.names == ["up", "run", "run", "down", "up", "run", "down"]
    run = " ".join(commands.calls[5])
    assert "--set workload.0.planted_bug=double-send" in run
    assert "--duration 7s" in run
    assert campaign.needed_s("lost-answers") == 13, "its last fault is at 12 s"
    assert f"--state {tmp_path / 'state' / 'compose'}" in run
    assert len(read_lines(runs.results)) == 3
    assert not list((tmp_path / "out" / "runs").iterdir())


def test_a_cluster_is_replaced_after_many_runs(
    tmp_path: Path, commands: ScriptedCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "RUNS_PER_CLUSTER", 2)
    runs = make_campaign(tmp_path)
    for _ in range(3):
        runs.carry_out(CONTROL)
    assert commands.names == ["up", "run", "run", "down", "up", "run"]
    assert "--duration" not in commands.calls[1]


def test_a_cluster_that_is_refused_is_replaced_once_before_the_run(
    tmp_path: Path, commands: ScriptedCommands
) -> None:
    commands.codes = [0, 0, ExitCode.REFUSED, 0, 0, ExitCode.VALID]
    runs = make_campaign(tmp_path)
    runs.carry_out(HEALTHY)
    assert runs.carry_out(HEALTHY).outcome is Outcome.RIGHT
    assert commands.names == ["up", "run", "run", "down", "up", "run"]


def test_a_run_that_fails_is_not_repeated_and_its_directory_stays(
    tmp_path: Path, commands: ScriptedCommands
) -> None:
    commands.codes = [0, ExitCode.BUG]
    result = make_campaign(tmp_path).carry_out(HEALTHY)
    assert (result.outcome, result.exit_code) == (Outcome.NO_VERDICT, ExitCode.BUG)
    assert commands.names == ["up", "run", "down"]
    assert (Path(result.directory) / "output.log").exists()


def test_resuming_carries_out_the_missing_runs() -> None:
    drawn = draw(1, 8, ["process", "compose"])
    lines = [line(drawn[number], Outcome.RIGHT) for number in (0, 3)]
    assert [run.number for run in missing_runs(drawn, lines)] == [1, 2, 4, 5, 6, 7]
    with pytest.raises(UsageError, match="run 3 of the results"):
        missing_runs(draw(2, 8, ["process", "compose"]), lines[1:])


def test_an_incomplete_last_line_is_left_out_and_another_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "campaign.jsonl"
    valid = line(HEALTHY, Outcome.RIGHT, verdict="valid")
    whole = msgspec.json.encode(valid) + b"\n"
    path.write_bytes(whole + whole[:20])
    assert read_lines(path) == [valid]
    path.write_bytes(b"{}\n" + whole)
    with pytest.raises(UsageError, match=":1:"):
        read_lines(path)


def test_the_outcome_of_earlier_results_follows_the_present_rules(tmp_path: Path) -> None:
    path = tmp_path / "campaign.jsonl"
    lines = [
        line(HEALTHY, Outcome.RIGHT, verdict="invalid", anomalies={"lost": 1}),
        line(HEALTHY, Outcome.RIGHT),
    ]
    path.write_bytes(b"".join(msgspec.json.encode(old) + b"\n" for old in lines))
    assert [new.outcome for new in read_lines(path)] == [Outcome.FALSE_ANOMALY, Outcome.NO_VERDICT]


def test_results_are_overwritten_by_no_command(tmp_path: Path, commands: ScriptedCommands) -> None:
    args = ["--runs", "2", "--seed", "9", "--backend", "process", "--out", str(tmp_path / "out")]
    args += ["--state", str(tmp_path / "state")]
    first = CliRunner().invoke(campaign.main, args)
    assert "| negative controls" in first.output
    assert commands.names == ["up", "run", "run", "down"]

    assert CliRunner().invoke(campaign.main, args).exit_code == 2
    again = CliRunner().invoke(campaign.main, [*args, "--resume"])
    assert again.exit_code == first.exit_code
    assert commands.names == ["up", "run", "run", "down"]
