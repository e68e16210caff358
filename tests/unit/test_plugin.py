"""The pytest plugin finds a scenario from wherever pytest was started, and a failing test shows its run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.base.errors import ExitCode, UsageError
from harness.base.events import VerdictEvent
from harness.evidence.checkers.model import Verdict
from harness.evidence.checkers.verdict import Judgement
from harness.run import Outcome
from harness.testing import plugin

DOCS = Path(__file__).parents[2] / "docs"
APP = """
[scenario]
name = "orders"
shows = "an example"

[app]
command = ["app", "{bootstrap}", "{topic:orders}", "{topic:out}", "{group}"]
group = "g"

[[input]]
topic = "orders"
value = "{id}"

[[output]]
topic = "out"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a project with a scenario and a folder of tests; the process is elsewhere."""
    for folder in ("eos", "tests", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "eos" / "orders.toml").write_text(APP)
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def request_in(project: Path) -> Any:
    test = project / "tests" / "test_orders.py"
    return SimpleNamespace(path=test, config=SimpleNamespace(rootpath=project), node=SimpleNamespace())


@pytest.mark.parametrize("name", ["eos/orders.toml", "../eos/orders.toml"])
def test_a_path_is_relative_to_the_root_or_to_the_test(project: Path, name: str) -> None:
    assert plugin.find_file(request_in(project), name).samefile(project / "eos" / "orders.toml")


def test_the_working_directory_comes_first(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "elsewhere" / "eos").mkdir()
    (project / "elsewhere" / "eos" / "orders.toml").write_text(APP)
    assert plugin.find_file(request_in(project), "eos/orders.toml") == Path("eos/orders.toml")
    assert plugin.shown(Path("eos/orders.toml")) == "eos/orders.toml"
    monkeypatch.chdir(project / "tests")
    assert plugin.shown(Path("../eos/orders.toml")) == str(project / "eos" / "orders.toml")


def test_shipped_scenarios_and_missing_files_are_as_on_the_command_line(project: Path) -> None:
    assert plugin.find_file(request_in(project), "jitter").stem == "jitter"
    with pytest.raises(UsageError, match="there is no scenario file eos"):
        plugin.find_file(request_in(project), "eos/invoices.toml")


def test_the_run_of_a_failing_test_is_shown(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections: list[tuple[str, ...]] = []
    made: list[str] = []

    def make_run(_: object, __: object, ___: object, root: Path, listeners: Any, **more: str) -> Any:
        made.append(more["replay_command"])
        event = VerdictEvent(
            verdict="invalid",
            expected=False,
            exit_code=1,
            text="never_processed 3\nINVALID\n",
            directory=str(root / "orders"),
            replay=more["replay_command"],
        )
        return SimpleNamespace(execute=lambda: [listeners[0](event), SimpleNamespace(interrupted=False)][1])

    monkeypatch.setattr(plugin, "make_run", make_run)
    monkeypatch.setattr(plugin, "kafka_arguments", lambda *_: [])
    request = request_in(project)
    request.node.add_report_section = lambda *section: sections.append(section)
    fixture: Callable[..., Any] = plugin.run_scenario.__wrapped__  # type: ignore[attr-defined]
    cluster: Any = None

    fixture(request, cluster, project)("eos/orders.toml", seed=3, plan__duration="8s")

    command = f"eos run {project}/eos/orders.toml --seed 3 --set plan.duration=8s"
    assert made == [command]
    assert sections == [
        (
            "call",
            "run",
            f"never_processed 3\nINVALID\nreport: {project}/runs/orders/report.html\nreplay: {command}",
        )
    ]


def ran(code: int, *, expected: bool) -> plugin.Ran:
    verdict = {0: Verdict.VALID, 3: Verdict.VALID, 1: Verdict.INVALID, 2: Verdict.UNKNOWN}[code]
    judgement = Judgement(verdict=verdict, exit_code=code, operations=1, results=[])
    outcome = Outcome("orders", ExitCode(code), judgement, Path("runs/orders"), False, expected)
    return plugin.Ran(outcome)


@pytest.mark.parametrize(
    ("code", "expected", "passes"),
    [
        (0, True, True),
        (1, True, True),
        (0, False, False),
        (1, False, False),
        (2, False, False),
        (3, True, False),
    ],
    ids=["valid", "as planted", "not as planted", "anomaly", "unknown", "breached limit"],
)
@pytest.mark.parametrize("page", ["how-to/ci.md", "application.md"])
def test_the_documented_test_fails_unless_the_run_is_as_expected(
    page: str, code: int, *, expected: bool, passes: bool
) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    asked: list[tuple[Any, ...]] = []

    def run(*args: Any, **changes: Any) -> plugin.Ran:
        asked.append((args, changes))
        return ran(code, expected=expected)

    others = {"seed": 1} if "seed" in signature(test).parameters else {}
    if passes:
        test(run, **others)
    else:
        with pytest.raises(AssertionError):
            test(run, **others)
    ((args, changes),) = asked
    assert args[0].endswith(".toml")
    assert changes.keys() == {"seed", "plan__duration"}


def test_a_run_has_its_exit_code_and_a_short_text() -> None:
    assert ran(3, expected=True).exit_code == 3
    assert ran(3, expected=True).verdict == "valid"
    assert repr(ran(3, expected=True)) == "<orders: valid, exit code 3, runs/orders>"


def test_pytest_in_a_repository_that_contains_the_clone_collects_only_its_own_tests(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (DOCS / "how-to" / "ci.md").read_text(), re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(block)
    (tmp_path / "test_orders.py").write_text("def test_one(run_scenario): ...\n")
    (tmp_path / "eos-harness").symlink_to(DOCS.parent)
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("test_orders.py::test_one\n")
    assert "1 test collected" in done.stdout
