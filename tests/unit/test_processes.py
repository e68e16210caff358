"""Processes are identified by id and command line; ports are attributed to the process that listens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.base import processes
from harness.base.ports import describe_port_owner, free_ports
from harness.base.processes import ProcessState
from harness.base.waits import wait_until

WAITS_FOR_INPUT = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"{tmp_path}/"


@pytest.fixture
def process(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that the harness did not start, although the mark is in its command line.

    The mark is a text by which the harness recognises the processes of a cluster.
    """
    command = [sys.executable, "-c", WAITS_FOR_INPUT, mark]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


@pytest.fixture
def supervised(tmp_path: Path, mark: str) -> Iterator[int]:
    command = [sys.executable, "-c", "import signal; signal.pause()", mark]
    yield processes.start_supervised(command, tmp_path / "node")
    processes.end_all(mark)


def test_a_process_is_recognised_by_id_and_mark(process: subprocess.Popen[bytes], mark: str) -> None:
    assert processes.state_of(process.pid, mark) is ProcessState.RUNNING
    assert processes.state_of(process.pid, f"{mark}other") is ProcessState.GONE
    assert processes.state_of(os.getpid(), mark) is ProcessState.GONE


def test_a_signal_reaches_only_a_process_with_the_mark(process: subprocess.Popen[bytes], mark: str) -> None:
    assert not processes.send(process.pid, f"{mark}other", signal.SIGKILL)
    assert process.poll() is None
    assert processes.send(process.pid, mark, signal.SIGSTOP)
    wait_until(lambda: processes.state_of(process.pid, mark) is ProcessState.STOPPED, 10, "it to stop")
    assert processes.send(process.pid, mark, signal.SIGCONT)
    wait_until(lambda: processes.state_of(process.pid, mark) is ProcessState.RUNNING, 10, "it to run")


def test_a_process_that_ended_is_gone_before_its_parent_waits(
    process: subprocess.Popen[bytes], mark: str
) -> None:
    assert processes.send(process.pid, mark, signal.SIGKILL)
    wait_until(lambda: processes.state_of(process.pid, mark) is ProcessState.GONE, 10, "it to end")
    assert process.returncode is None, "the parent has not waited: the process is a zombie"
    assert processes.memory_of(process.pid) == 0
    process.wait(10)
    assert processes.state_of(process.pid, mark) is ProcessState.GONE
    assert not processes.send(process.pid, mark, signal.SIGKILL)
    assert processes.memory_of(process.pid) == 0


def test_only_processes_that_the_harness_started_are_found(
    process: subprocess.Popen[bytes], supervised: int, mark: str
) -> None:
    listed = {found.pid: found.command for found in processes.find(mark)}
    assert supervised in listed
    assert mark in listed[supervised]
    assert process.pid not in listed

    processes.end_all(mark)

    assert processes.find(mark) == []
    assert processes.state_of(supervised, mark) is ProcessState.GONE
    assert processes.state_of(process.pid, mark) is ProcessState.RUNNING


def test_the_exit_code_is_kept_after_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    processes.start_supervised(["sh", "-c", "exit 7"], folder)
    wait_until(lambda: processes.exit_code(folder) is not None, 10, "the exit code")
    assert processes.exit_code(folder) == 7


def test_the_owner_of_a_port_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        owner = describe_port_owner(listener.getsockname()[1])
    assert f"process {os.getpid()} (" in owner
    (free,) = free_ports(1)
    assert describe_port_owner(free) == f"port {free}: a process that this user cannot see"
