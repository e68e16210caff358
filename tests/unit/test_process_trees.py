"""Trees of processes are recognised by their environment, and ended whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.base.process_trees import TREE, end_tree, find_tree, send_to_tree, tree_state
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.cluster.state_directory import State

PAUSE = "import signal; print('up', flush=True); signal.pause()"
# Each entry is the body of a shell script that starts a child in another way.
CHILDREN = [
    pytest.param('"$@" & "$@" & wait', 3, id="shell-with-two-children"),
    pytest.param('env -i "$@" & "$@" & wait', 3, id="cleared-environment"),
    pytest.param('setsid "$@" & "$@" & wait', 3, id="own-session"),
    pytest.param('sh -c \'"$@" & "$@" &\' sh "$@"; exec "$@"', 3, id="orphans-of-a-shell-that-has-ended"),
]


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    yield f"{tmp_path}/1/"
    end_tree(f"{tmp_path}/")


def start(mark: str, script: str, count: int) -> subprocess.Popen[bytes]:
    """Start a tree, and wait until `count` processes of it run."""
    process = subprocess.Popen(
        ["sh", "-c", script, "sh", sys.executable, "-c", PAUSE],
        env=dict(os.environ) | {TREE: mark},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    # A shell counts until it has become the program, so the number alone may be right too early.
    programs = count if "exec " in script else count - 1
    wait_until(
        lambda: (len(find_tree(mark)), sum(map(is_program, find_tree(mark)))) == (count, programs),
        20,
        f"{count} processes",
    )
    return process


def is_program(process: psutil.Process) -> bool:
    """Return whether a process runs Python, and is no shell that is about to start it."""
    try:
        return process.cmdline()[-1:] == [PAUSE] and process.cmdline()[0] == sys.executable
    except psutil.Error:
        return False


@pytest.mark.parametrize(("script", "count"), CHILDREN)
def test_a_tree_is_ended_whole(mark: str, script: str, count: int) -> None:
    with start(mark, script, count):
        assert end_tree(mark) == count
        assert find_tree(mark) == []
        assert tree_state(mark) is ProcessState.GONE


def test_other_trees_and_this_process_are_left_alone(mark: str, tmp_path: Path) -> None:
    other = f"{tmp_path}/11/"
    with start(mark, 'exec "$@"', 1), start(other, 'exec "$@"', 1) as kept:
        assert end_tree(mark) == 1
        assert kept.poll() is None
        assert tree_state(other) is ProcessState.RUNNING
        assert len(find_tree(f"{tmp_path}/")) == 1
        assert end_tree(other) == 1


def test_a_tree_is_frozen_and_resumed(mark: str) -> None:
    with start(mark, '"$@" & wait', 2):
        assert send_to_tree(mark, signal.SIGSTOP) == 2
        wait_until(lambda: tree_state(mark) is ProcessState.STOPPED, 10, "the tree to be frozen")
        assert send_to_tree(mark, signal.SIGCONT) == 2
        wait_until(lambda: tree_state(mark) is ProcessState.RUNNING, 10, "the tree to run")
        end_tree(mark)


def test_a_tree_without_processes_is_gone(mark: str) -> None:
    assert tree_state(mark) is ProcessState.GONE
    assert end_tree(mark) == 0


def test_a_state_directory_ends_the_applications_of_its_runs(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    mark = f"{state.apps}/run/app-1/starts/1/"
    with start(mark, '"$@" & wait', 2):
        state.apps.mkdir(parents=True)
        assert state.end_apps() == 2
        assert find_tree(mark) == []
        assert not state.apps.exists()
    assert state.end_apps() == 0
