"""The pytest plugin finds a scenario from wherever pytest was started, and a failing test shows its run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.base.errors import UsageError
from harness.base.events import VerdictEvent
from harness.testing import plugin

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
