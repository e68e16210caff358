"""The search for a smaller scenario that still fails, and scenarios written back to files."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.base.errors import CapabilityError, ExitCode, HarnessError, UsageError
from harness.base.units import Duration, plain
from harness.evidence.run_directory import RunDirectory
from harness.run import shrink as shrinking
from harness.run.run_names import Names, rename_plan, rename_scenario
from harness.run.shrink import NAME, CandidateRuns, Failed, SearchLimits, failed_run, search, shrink, smaller
from harness.scenario import Scenario, find, load, shipped
from harness.scenario.plan import draw
from harness.scenario.toml_writer import text_of
from tests.unit.test_run_directory import make_run

ROOT = Path(__file__).parents[2]
APPS = [*ROOT.glob("examples/*/*.toml"), *ROOT.glob("tests/toy/*.toml"), *ROOT.glob("tests/effects/*.toml")]
RUNNING = """\
[scenario]
name = "mine"
shows = "an example"

[app]
running = true
group = "billing"

[[input]]
topic = "orders"
value = "{id}"

[[output]]
topic = "invoices"
"""


@pytest.mark.parametrize("path", [*shipped(), *APPS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_written_scenario_loads_as_the_same_scenario(path: Path, tmp_path: Path) -> None:
    scenario = load(path)
    file = tmp_path / "again.toml"
    file.write_text(text_of(scenario))
    assert load(file) == scenario


def kinds(scenario: Scenario) -> list[str]:
    return [workload.kind for workload in scenario.workload]


def faults(scenario: Scenario) -> list[str]:
    return [entry.fault for entry in scenario.fault]


@pytest.mark.parametrize(
    ("breaks", "left"),
    [
        (lambda s: "sever" in faults(s), (["sever"], ["transactional"])),
        (
            lambda s: {"pause", "kill"} <= set(faults(s)) and "pipeline" in kinds(s),
            (["kill", "pause"], ["transactional", "pipeline"]),
        ),
        (lambda s: "idempotent" in kinds(s), ([], ["idempotent"])),
    ],
    ids=["one fault", "two faults and a pipeline with its source", "a client alone"],
)
def test_the_search_keeps_only_the_parts_that_are_needed(
    breaks: Callable[[Scenario], bool], left: tuple[list[str], list[str]]
) -> None:
    whole = invalid(load(find("everything")))
    found = search(whole, breaks, lambda: False)
    assert breaks(found)
    needed_faults, needed_clients = left
    assert sorted(faults(found)) == needed_faults
    if needed_clients != ["transactional"]:
        assert kinds(found) == needed_clients
    assert len(found.workload) == len(needed_clients)
    assert all(workload.clients == 1 for workload in found.workload)
    assert found.plan.duration < whole.plan.duration
    assert not any(breaks(candidate) for candidate in smaller(found))


def test_the_search_ends_when_its_time_is_over() -> None:
    whole = invalid(load(find("everything")))
    tried: list[Scenario] = []

    def breaks(scenario: Scenario) -> bool:
        tried.append(scenario)
        return False

    assert search(whole, breaks, lambda: len(tried) >= 3) == whole
    assert len(tried) == 3


def invalid(scenario: Scenario) -> Scenario:
    """Return the scenario of an invalid run: the injections drawn from seed 5, each at a fixed time.

    The scenario's duration is that of the drawn plan, so every injection fits.
    """
    plan = draw(scenario, 5, 300.0)
    entries = [msgspec.structs.replace(s.entry, at=s.at, lasts=(s.lasts, s.lasts)) for s in plan.steps]
    rules = msgspec.structs.replace(scenario.plan, duration=Duration(plan.duration))
    return msgspec.structs.replace(
        scenario, plan=rules, fault=[*(s.entry for s in plan.throughout), *entries]
    )


def run_of(root: Path, scenario: Scenario, verdict: str, *, earlier_version: bool = False) -> RunDirectory:
    """Make a run directory with the files that `eos shrink` reads."""
    run = make_run(root)
    mark = msgspec.json.decode((run.path / "run.json").read_bytes())["run"]
    names, plan = Names("", mark), draw(scenario, 7)
    if earlier_version:
        scenario, plan = rename_scenario(scenario, names.scoped), rename_plan(plan, names.scoped)
        assert f"orders.{mark}" in {workload.topic for workload in scenario.workload}
    else:
        run.write("names.json", names)
    run.write("scenario.json", msgspec.to_builtins(scenario, enc_hook=plain))
    run.write("plan.json", msgspec.to_builtins(plan, enc_hook=plain))
    run.write(
        "summary.json",
        {
            "format": 1,
            "run": mark,
            "scenario": scenario.name,
            "seed": 7,
            "started": "",
            "verdict": verdict,
            "exit_code": 1,
            "operations": 1,
            "records": 1,
            "witnesses": [],
            "anomalies": {"lost": 2},
            "permitted": {},
            "properties": {},
            "limits": {},
            "reasons": [],
            "notes": [],
        },
    )
    return run


@pytest.mark.parametrize("earlier_version", [False, True])
def test_an_invalid_run_is_read_back_with_its_plan_and_the_names_of_the_scenario(
    tmp_path: Path, earlier_version: bool
) -> None:
    scenario = load(find("everything"))
    run = run_of(tmp_path, scenario, "invalid", earlier_version=earlier_version)
    failed = failed_run(run.path)

    assert failed.anomalies == {"lost"}
    plan = draw(scenario, 7)
    fixed = [entry for entry in failed.scenario.fault if not entry.throughout]
    assert [(e.fault, e.at) for e in fixed] == [(s.entry.fault, s.at) for s in plan.steps]
    assert all(entry.target != "one" for entry in fixed), "what was drawn is named"
    assert failed.scenario.workload == scenario.workload
    file = tmp_path / "again.toml"
    file.write_text(text_of(failed.scenario))
    assert draw(load(file), 1).steps[0].at == plan.steps[0].at


@pytest.mark.parametrize(
    ("name", "verdict", "message"),
    [("everything", "valid", "was valid"), ("idempotent-walkthrough", "invalid", "is a walkthrough")],
)
def test_a_run_that_cannot_be_shrunk_is_refused(
    tmp_path: Path, name: str, verdict: str, message: str
) -> None:
    run = run_of(tmp_path, load(find(name)), verdict)
    with pytest.raises(UsageError, match=message):
        failed_run(run.path)


class Candidate:
    """Stub of a run that finds these anomalies. It ends at once or, with `endless`, when it is stopped."""

    def __init__(self, names: list[str], *, endless: bool = False) -> None:
        self.names, self.endless = names, endless
        self.reason, self.stopped = "", threading.Event()

    def stop(self, reason: str) -> None:
        self.reason = reason
        self.stopped.set()

    def execute(self) -> Any:
        if self.endless:
            assert self.stopped.wait(60)
        judgement = SimpleNamespace(names=lambda: self.names, verdict="invalid" if self.names else "valid")
        code = ExitCode.REFUSED if self.reason else ExitCode.VALID
        return SimpleNamespace(judgement=judgement, exit_code=code, interrupted=bool(self.reason))


@pytest.fixture
def failed(tmp_path: Path) -> Failed:
    return Failed(tmp_path, load(find("everything")), 7, frozenset({"lost"}))


def candidates(monkeypatch: pytest.MonkeyPatch, made: Callable[[], Candidate]) -> list[Candidate]:
    runs: list[Candidate] = []

    def make(*_: object, **__: object) -> Candidate:
        runs.append(made())
        return runs[-1]

    monkeypatch.setattr(shrinking, "make_run", make)
    monkeypatch.setattr(shrinking, "heal", lambda *_: 0)
    return runs


def allowed(_: object) -> None:
    """Accept every required capability, as a cluster does that has all of them."""


def test_a_result_that_never_breaks_again_is_an_error(
    failed: Failed, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates(monkeypatch, lambda: Candidate([]))
    cluster: Any = SimpleNamespace(require=allowed)
    with pytest.raises(HarnessError, match="did not break again in any of 3 runs") as ended:
        shrink(cluster, failed, SearchLimits(0.0, 2, 3), lambda _: None)
    assert ended.value.exit_code is ExitCode.UNKNOWN
    assert "broke in 0 of 3 runs" in (failed.directory / NAME).read_text()


def test_a_result_that_breaks_again_is_a_file(failed: Failed, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates(monkeypatch, lambda: Candidate(["lost"]))
    cluster: Any = SimpleNamespace(require=allowed)
    assert shrink(cluster, failed, SearchLimits(0.0, 2, 3), lambda _: None) == failed.directory / NAME


def test_a_scenario_that_this_back_end_cannot_do_is_refused_before_any_run(
    failed: Failed, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = candidates(monkeypatch, lambda: Candidate(["lost"]))

    def refuse(_: object) -> None:
        raise CapabilityError("no partitions here", "use compose")

    cluster: Any = SimpleNamespace(require=refuse)
    with pytest.raises(CapabilityError):
        shrink(cluster, failed, SearchLimits(60, 2, 3), lambda _: None)
    assert runs == []


def test_the_budget_stops_a_candidate_and_does_not_interrupt_the_search(
    failed: Failed, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = candidates(monkeypatch, lambda: Candidate([], endless=True))
    # The fake clock stays at 0.0 until the first run is stopped, so no comparison with the clock can stop
    # that run. Only the timer that enforces the budget can.
    cluster: Any = None
    limits = SearchLimits(budget=0.2, tries=5, repeats=1)
    searching = CandidateRuns(
        cluster, failed, lambda _: None, limits, clock=lambda: 1.0 if runs and runs[0].reason else 0.0
    )
    assert not searching.breaks(failed.scenario)
    assert [run.reason for run in runs] == ["the budget is used up"]
    assert searching.over()


def test_a_search_is_over_at_the_end_of_its_budget(failed: Failed) -> None:
    now = 100.0
    cluster: Any = None
    limits = SearchLimits(budget=60, tries=1, repeats=1)
    searching = CandidateRuns(cluster, failed, lambda _: None, limits, clock=lambda: now)
    now = 159.9
    assert not searching.over()
    now = 160.0
    assert searching.over()


def test_a_search_respects_its_limit_of_runs(failed: Failed, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = candidates(monkeypatch, lambda: Candidate([]))
    cluster: Any = SimpleNamespace(require=allowed)
    with pytest.raises(HarnessError, match="did not break again"):
        shrink(cluster, failed, SearchLimits(math.inf, tries=2, repeats=1, most_runs=5), lambda _: None)
    assert len(runs) == 5 + 1


def test_each_candidate_is_a_file_that_runs_again(failed: Failed, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []

    def make(*_: object, replay_command: str) -> Candidate:
        commands.append(replay_command)
        return Candidate(["lost"])

    monkeypatch.setattr(shrinking, "make_run", make)
    monkeypatch.setattr(shrinking, "heal", lambda *_: 0)
    cluster: Any = None
    searching = CandidateRuns(cluster, failed, lambda _: None, SearchLimits(60, 1, 1))
    assert searching.breaks(failed.scenario)
    file = failed.directory / "shrink" / "candidate-1.toml"
    assert commands == [f"eos run {file} --seed 8"]
    assert load(file) == failed.scenario


@pytest.mark.parametrize("path", APPS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_invalid_run_of_an_application_is_read_back(tmp_path: Path, path: Path) -> None:
    scenario = load(path)
    failed = failed_run(run_of(tmp_path, scenario, "invalid").path)
    assert failed.scenario.app == scenario.app
    assert failed.scenario.input == [each_with_table(part) for part in scenario.input]
    assert failed.scenario.output == [each_with_table(part) for part in scenario.output]
    file = tmp_path / "again.toml"
    file.write_text(text_of(failed.scenario))
    assert load(file) == failed.scenario


def each_with_table(part: Any) -> Any:
    return msgspec.structs.replace(part, table=part.table or part.topic)


def test_the_search_keeps_instances_that_faults_need() -> None:
    changes = {"app.instances": "4", "fault.0.target": '"app(app-2)"', "plan.duration": "30s"}
    toy = invalid(load(ROOT / "tests" / "toy" / "toy.toml", changes))
    found = search(toy, lambda _: True, lambda: False)
    assert found.app is not None
    assert (found.app.instances, found.fault) == (1, [])
    kept = search(toy, lambda scenario: "kill_app" in faults(scenario), lambda: False)
    assert kept.app is not None
    assert (kept.app.instances, faults(kept)) == (2, ["kill_app"])


def test_an_application_that_already_ran_cannot_be_shrunk(tmp_path: Path) -> None:
    file = tmp_path / "running.toml"
    file.write_text(RUNNING)
    with pytest.raises(UsageError, match="was not started by the harness"):
        failed_run(run_of(tmp_path, load(file), "invalid").path)
