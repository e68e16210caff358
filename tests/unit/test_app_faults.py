"""Faults of the application: process trees are killed, asked to stop and frozen, and this is measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.base.errors import HealError, NoBiteError, UsageError
from harness.base.process_trees import TREE, end_tree, find_tree, send_to_tree, tree_state
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.cluster.targets import Target
from harness.faults.app_faults import AppFault, FreezeApp, KillApp, RetireApp, resume_app
from harness.faults.injection import FaultContext

PAUSE = "import signal; signal.pause()"


@pytest.fixture
def context(tmp_path: Path) -> Iterator[FaultContext[int]]:
    """Yield the context of an injection on a tree of two processes."""
    mark = f"{tmp_path}/1/"
    with subprocess.Popen(
        ["sh", "-c", '"$@" & wait', "sh", sys.executable, "-c", PAUSE],
        env=dict(os.environ) | {TREE: mark},
        start_new_session=True,
    ) as process:
        wait_until(lambda: len(find_tree(mark)) == 2, 20, "two processes")
        nothing: Any = None
        target: Any = SimpleNamespace(pid=process.pid, mark=mark)
        yield FaultContext(nothing, ["app-1"], "fault", target)
        end_tree(mark)


def inject(fault: AppFault, context: FaultContext[int]) -> dict[str, Any]:
    context.state = fault.before(context)
    fault.apply(context)
    return fault.bite(context)


@pytest.mark.parametrize("fault", [KillApp(), RetireApp()], ids=lambda fault: fault.name)
def test_an_ended_instance_has_no_process_left(fault: AppFault, context: FaultContext[int]) -> None:
    assert inject(fault, context) | {"pid": 0} == {"pid": 0, "processes": 2, "state": "gone"}
    assert fault.undo_steps(context) == []
    assert fault.health(context) == {}
    with pytest.raises(NoBiteError, match="is gone already"):
        fault.before(context)


def test_an_instance_that_still_runs_is_not_healthy(context: FaultContext[int]) -> None:
    with pytest.raises(HealError, match="have not ended"):
        KillApp().health(context)


def test_a_frozen_instance_is_resumed_and_twice_is_harmless(context: FaultContext[int]) -> None:
    fault, process = FreezeApp(), context.process
    assert process is not None
    assert inject(fault, context)["state"] == "stopped"
    with pytest.raises(NoBiteError, match="is stopped already"):
        fault.before(context)
    with pytest.raises(HealError, match="still frozen"):
        fault.health(context)
    (step,) = fault.undo_steps(context)
    assert step == {"do": "resume_app", "mark": process.mark}
    nothing: Any = None
    for _ in range(2):
        resume_app.action(nothing, process.mark)
        wait_until(lambda: tree_state(process.mark) is ProcessState.RUNNING, 10, "the tree to run")
        assert fault.health(context) == {"state": "running"}


def test_a_tree_of_which_one_process_runs_is_not_frozen(context: FaultContext[int]) -> None:
    process = context.process
    assert process is not None
    send_to_tree(process.mark, signal.SIGSTOP)
    wait_until(lambda: tree_state(process.mark) is ProcessState.STOPPED, 10, "the tree to be frozen")
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: tree_state(process.mark) is ProcessState.RUNNING, 10, "one process to run")


@pytest.mark.parametrize("target", ["one", "client(*)"])
def test_a_fault_of_an_application_needs_an_instance(target: str) -> None:
    with pytest.raises(UsageError, match="does not name an application, which kill_app needs"):
        KillApp.check_target(Target.parse(target))
