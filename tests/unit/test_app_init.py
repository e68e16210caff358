"""`eos init`: what two calm runs show is reported and becomes a scenario file that can be loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.base.errors import UsageError
from harness.evidence.app_list import AppList, AppStart
from harness.evidence.token import TokenFinder, token_of
from harness.run.app_frames import Observed, WrittenTopic
from harness.run.app_init import (
    CalmRun,
    Output,
    Wanted,
    calm_scenario,
    findings,
    scenario_text,
    without_input,
)
from harness.run.run_names import Names
from harness.scenario import load
from harness.scenario.plan import draw

ENV = {"B": "{bootstrap}", "G": "{group}", "IN": "{topic:orders}", "OUT": "{topic:invoices}"}
WANTED = Wanted(["python", "app.py"], "orders", '{"order":"{id}"}', ENV)
SESSION = {"c1": 6000}
TIMEOUTS = {"app-1": 10_000}


def calm_run(run: str, outputs: list[tuple[int, str]], *, inputs: int = 3, **observed: object) -> CalmRun:
    """Return a run with inputs 0, 1, ... of lane 0, and outputs given by sequence and text."""
    output, finder = Output(), TokenFinder(run)
    for seq, text in outputs:
        (found,) = finder.find([token_of(run, 1, 0, seq).encode()])
        output.contents[1, 0, found.seq].append(text.encode())
        output.sequence[1, 0].append(found.seq)
        output.places[1, 0].add(0)
    seen: dict[str, object] = {"session_timeouts": SESSION, "transaction_timeouts": TIMEOUTS}
    seen |= {"written": {f"invoices.{run}": WrittenTopic(inside=1)}} | observed
    names = Names("", run)
    return CalmRun(
        Path(), {(1, 0, seq) for seq in range(inputs)}, {"invoices": output}, Observed(**seen), names
    )  # type: ignore[arg-type]


ONCE = [(0, "a"), (1, "b"), (2, "c")]


def proposed(tmp_path: Path, *runs: CalmRun) -> tuple[list[str], Path]:
    scenario = calm_scenario(WANTED, tmp_path)
    file = tmp_path / "orders.toml"
    file.write_text(scenario_text(list(runs), scenario, "."))
    return [found.text for found in findings(list(runs), scenario) if found.warning], file


def test_a_deterministic_application_gets_a_strict_contract(tmp_path: Path) -> None:
    warnings, file = proposed(tmp_path, calm_run("aaaaaaaa", ONCE), calm_run("bbbbbbbb", ONCE))
    scenario = load(file)
    assert warnings == []
    assert (str(scenario.output[0].each), scenario.output[0].order) == ("1", "key")
    assert [entry.fault for entry in scenario.fault] == ["kill_app", "freeze_app", "kill"]
    assert scenario.app is not None
    assert (scenario.app.group, scenario.app.instances, scenario.app.env) == ("app", 2, ENV)


def test_an_application_that_ends_at_once_is_named_with_its_last_line(tmp_path: Path) -> None:
    last = "ModuleNotFoundError: No module named 'orders'"
    start = AppStart(instance="app-1", number=1, started=1, ended="by itself", exit_code=1, last_line=last)
    (tmp_path / "app.json").write_bytes(msgspec.json.encode(AppList(run="a", clock="c", starts=[start])))
    error = without_input(tmp_path)
    assert (
        error.message == f"the application does not run: app-1 ended with exit code 1; its last line: {last}"
    )
    assert f"read {tmp_path}/logs/app-1.log" in error.hint
    assert "got no input" in without_input(tmp_path / "elsewhere").message


def test_the_calm_runs_have_another_name_than_the_scenario(tmp_path: Path) -> None:
    _, file = proposed(tmp_path, calm_run("aaaaaaaa", ONCE), calm_run("bbbbbbbb", ONCE))
    assert (load(file).name, calm_scenario(WANTED, tmp_path).name) == ("orders", "orders-calm")


def test_a_plan_names_the_faults_that_wait_for_a_time_out_of_the_application(tmp_path: Path) -> None:
    _, file = proposed(tmp_path, calm_run("aaaaaaaa", ONCE), calm_run("bbbbbbbb", ONCE))
    scenario = load(file)
    kinds = {seed: [step.entry.fault for step in draw(scenario, seed).steps] for seed in range(20)}
    for seed, faults in kinds.items():
        waiting = draw(scenario, seed).waiting
        assert bool(waiting) == ("freeze_app" in faults)
        assert waiting.startswith(f"{faults.count('freeze_app')} fault") or not waiting
    assert any("freeze_app" in faults for faults in kinds.values())


@pytest.mark.parametrize("value", ['{"order":"{id}"}', """{"order":"{id}","of":"O'Neill"}"""])
def test_the_proposed_file_contains_the_value_as_it_was_given(tmp_path: Path, value: str) -> None:
    wanted = replace(WANTED, value=value, env=ENV | {"a.b": "c"})
    scenario = calm_scenario(wanted, tmp_path)
    file = tmp_path / "orders.toml"
    file.write_text(scenario_text([calm_run("aaaaaaaa", ONCE)], scenario, "."))
    read = load(file)
    assert read.app is not None
    assert (read.input[0].value, read.app.env["a.b"]) == (value, "c")
    assert (f"value = '{value}'" in file.read_text()) is ("'" not in value)


@pytest.mark.parametrize(
    ("second", "observed", "each", "warning"),
    [
        pytest.param(ONCE[:2], {}, "0..1", "outputs of 1 inputs differ between the two runs", id="missing"),
        pytest.param([*ONCE, (0, "a")], {}, "1..2", "outputs of 1 inputs differ", id="twice"),
        pytest.param([*ONCE[:2], (2, "x")], {}, "1", "such as c and x", id="other-content"),
        pytest.param([*ONCE, (9, "z")], {}, "1", "contains 1 inputs of aborted transactions", id="decoy"),
        pytest.param(
            ONCE,
            {"written": {"invoices.bbbbbbbb": WrittenTopic(outside=4)}},
            "1",
            "invoices 4 batches outside of transactions",
            id="outside",
        ),
        pytest.param(
            ONCE,
            {"positions_outside": 3, "positions_inside": 1},
            "1",
            "committed outside of the transactions (3 requests OffsetCommit)",
            id="positions-apart",
        ),
        pytest.param(ONCE, {"written": {}}, "1", "nothing was written", id="nothing"),
        pytest.param(
            ONCE,
            {"isolations": {"orders.bbbbbbbb": {"read_uncommitted"}}},
            "1",
            "orders is read uncommitted",
            id="uncommitted",
        ),
    ],
)
def test_what_may_break_exactly_once_is_a_warning(
    tmp_path: Path, second: list[tuple[int, str]], observed: dict[str, object], each: str, warning: str
) -> None:
    runs = [calm_run("aaaaaaaa", ONCE), calm_run("bbbbbbbb", second, **observed)]
    warnings, file = proposed(tmp_path, *runs)
    assert any(warning in text for text in warnings), warnings
    assert str(load(file).output[0].each) == each


def test_an_order_that_was_not_kept_is_not_proposed(tmp_path: Path) -> None:
    _, file = proposed(tmp_path, calm_run("aaaaaaaa", ONCE), calm_run("bbbbbbbb", ONCE[::-1]))
    assert load(file).output[0].order == "none"


def test_a_long_session_is_not_exceeded_by_a_fault(tmp_path: Path) -> None:
    long = {"session_timeouts": {"c1": 45_000}}
    _, file = proposed(tmp_path, calm_run("aaaaaaaa", ONCE, **long), calm_run("bbbbbbbb", ONCE, **long))
    assert [entry.fault for entry in load(file).fault] == ["kill_app", "kill"]


@pytest.mark.parametrize("timeouts", [pytest.param({}, id="none"), pytest.param({"app-1": 9000}, id="some")])
def test_lost_outputs_are_proposed_to_an_application_with_transactions(
    tmp_path: Path, timeouts: dict[str, int]
) -> None:
    _, file = proposed(tmp_path, *(calm_run(run * 8, ONCE, transaction_timeouts=timeouts) for run in "ab"))
    text = file.read_text()
    assert ("transaction time-out (9 s)" in text) is bool(timeouts)
    file.write_text(
        text.replace("\n#", "\n").replace("\n Nothing", "\n# Nothing").replace("\n time-out", "\n# time-out")
    )
    lost = ["lose_outputs"] if timeouts else []
    assert [entry.fault for entry in load(file).fault] == ["kill_app", "freeze_app", "kill", *lost]


@pytest.mark.parametrize("missing", ["IN", "OUT"])
def test_topics_must_be_in_the_command_or_in_a_variable(tmp_path: Path, missing: str) -> None:
    env = {name: text for name, text in ENV.items() if name != missing}
    with pytest.raises(UsageError, match="for the input and for at least one output"):
        calm_scenario(Wanted(["app"], "orders", "{id}", env), tmp_path)
