"""The commands that list, show, write and plan scenarios."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.base.errors import UsageError
from harness.cli.main import cli
from harness.cli.scenario_commands import PlanOptions
from harness.scenario import find, load, shipped
from harness.scenario.headline import headline_of, read_headline
from harness.scenario.new_scenario import text_of
from harness.scenario.plan import draw


def output(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_list_has_a_line_for_each_scenario_and_the_same_facts_as_json() -> None:
    head, *lines = output("list").splitlines()
    facts = json.loads(output("list", "--json"))
    assert head.split() == ["scenario", "kind", "expected", "seconds", "shows"]
    assert [line.split()[0] for line in lines] == [fact["name"] for fact in facts]
    assert [fact["name"] for fact in facts] == [path.stem for path in shipped()]
    by_name = {fact["name"]: fact for fact in facts}
    assert by_name["demo"]["seconds"] == 49
    assert by_name["demo"]["kind"] == "faults"
    assert by_name["without-idempotence"]["kind"] == "negative control"
    assert by_name["idempotent-walkthrough"]["seconds"] is None


def test_a_headline_is_that_of_the_loaded_scenario() -> None:
    for path in shipped():
        assert read_headline(path) == headline_of(load(path)), path


def test_a_shown_scenario_is_its_file() -> None:
    assert output("show", "jitter") == find("jitter").read_text()


def test_a_new_scenario_can_be_planned(tmp_path: Path) -> None:
    file = tmp_path / "my-first.toml"
    output("new", str(file))
    scenario = load(file)
    assert scenario.name == "my-first"
    plan = draw(scenario, 7)
    assert {step.entry.fault for step in plan.injections} == {"jitter", "kill", "sever"}
    planned = json.loads(output("plan", str(file), "--seed", "7", "--json"))
    assert planned["seed"] == 7
    assert [step["fault"] for step in planned["faults"]] == [step.entry.fault for step in plan.injections]


@pytest.mark.parametrize("duration", ["0s", "999ms"])
def test_a_plan_without_time_is_refused(duration: str) -> None:
    with pytest.raises(UsageError, match="is too short"):
        CliRunner().invoke(cli, ["plan", "jitter", "--duration", duration], catch_exceptions=False)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("mine", "cannot be a scenario file"),
        ("a b.toml", "cannot be a scenario file"),
        (".toml", "cannot be a scenario file"),
        ("x" * 65 + ".toml", "cannot be a scenario file"),
        ("none/mine.toml", "there is no folder"),
        ("there.toml", "exists"),
    ],
)
def test_a_wrong_name_of_a_new_scenario_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "there.toml").write_text("mine")
    with pytest.raises(UsageError, match=problem):
        CliRunner().invoke(cli, ["new", str(tmp_path / name)], catch_exceptions=False, standalone_mode=False)
    assert (tmp_path / "there.toml").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_plan_names_the_faults_that_must_wait_for_others(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[scenario]\nname = "mine"\nshows = "x"\n[plan]\nduration = "20s"\n'
        '[[workload]]\nkind = "idempotent"\ntopic = "t"\n'
        '[[fault]]\nfault = "sever"\ntarget = "one"\nat = "2s"\nlasts = "5s"\n'
        '[[fault]]\nfault = "down"\ntarget = "one"\nat = "6s"\nlasts = "1s"\n'
    )
    assert "late: down at 6 s, because faults without `throughout`" in output(
        "plan", str(file), "--seed", "7"
    )
    file.write_text(file.read_text().replace('at = "6s"', 'at = "7s"'))
    assert "late:" not in output("plan", str(file), "--seed", "7")


def test_a_plan_names_the_faults_that_it_does_not_contain_and_the_command_that_runs_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[scenario]\nname = "mine"\nshows = "x"\n[plan]\nduration = "2s"\n'
        '[[workload]]\nkind = "idempotent"\ntopic = "t"\n'
        '[[fault]]\nfault = "sever"\ntarget = "one"\nlasts = "5s"\n'
        '[[fault]]\nfault = "down"\ntarget = "one"\nlasts = "5s"\n'
    )
    text = output("plan", str(file), "--seed", "7", "--set", "workload.0.rate=5")
    (planned,) = {step.entry.fault for step in draw(load(file), 7).injections}
    (absent,) = {"sever", "down"} - {planned}
    assert f"not in this plan: {absent} on one. Faults without a time are drawn" in text
    assert f"to run it: eos run {file} --seed 7 --set workload.0.rate=5\n" in text
    file.write_text(file.read_text().replace('target = "one"', 'target = "one"\nat = "1s"'))
    assert "not in this plan" not in output("plan", str(file), "--seed", "7")


def test_a_fault_after_the_end_of_the_plan_is_an_error_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text_of("mine").replace('at = "5s"', 'at = "40s"'))
    line = file.read_text().splitlines().index('at = "40s"') + 1
    with pytest.raises(
        UsageError, match=rf"mine\.toml:{line}: fault\[1\]\.at: kill at 40 s lies after"
    ) as error:
        PlanOptions(seed=1).load(str(file))
    assert error.value.hint.startswith("use --duration 43s")
    with pytest.raises(UsageError, match=r"^--set fault\.1\.at: kill at 60 s lies after"):
        PlanOptions(seed=1, changes=("fault.1.at=60s",), duration=50).load(str(file))
    assert PlanOptions(seed=1, duration=50).load(str(file))[1].duration == 50
