"""Processes that outlive the `eos` command that started them, and the search for these processes.

The operating system reuses process ids, so an id alone does not identify a process. Every process that the
harness starts has the path of the cluster's state directory in its command line. This path is the mark of the
process. A later `eos` command searches for the mark. It finds only the processes of its own cluster, even
after a crash of the harness.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from harness.base.waits import wait_until

# The harness sets this environment variable for every process that outlives an `eos` command. The search for
# these processes requires both the mark and this variable. The mark alone is not enough: it is the path of
# the state directory, so it also occurs in the arguments of a user's `less` or `tail` on a log file. Such a
# process must not be killed.
SUPERVISED = "EOS_SUPERVISED"


class ProcessState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"  # suspended by SIGSTOP
    GONE = "gone"


@dataclass(frozen=True)
class FoundProcess:
    """The id and the command line of a process that has not ended."""

    pid: int
    command: str


def start_supervised(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> int:
    """Start a process in its own session and return its id, which is also written to `folder`/pid.

    The output of the process is written to `folder`/log. A shell waits for the process and writes its exit
    code to `folder`/exit, because only the parent of a process can read the exit code.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pid_file = folder / "pid"
    pid_file.unlink(missing_ok=True)
    (folder / "exit").unlink(missing_ok=True)
    script = (
        'cd "$1" || exit 1; shift; { "$@" & echo $! >pid.new; mv pid.new pid; echo started; '
        "wait $!; code=$?; echo $code >exit.new; mv exit.new exit; } >>log 2>&1 </dev/null &"
    )
    subprocess.run(
        ["sh", "-c", script, "eos-supervisor", str(folder), *command],
        env=(os.environ if environment is None else environment) | {SUPERVISED: "1"},
        start_new_session=True,
        check=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(pid_file.exists, 10, f"{command[0]} to start", hint=f"look at {folder / 'log'}")
    return int(pid_file.read_text())


def exit_code(folder: Path) -> int | None:
    """Return the exit code of the process that was started in `folder`, or None while the process runs.

    If signal n ended the process, the code is 128 + n.
    """
    try:
        return int((folder / "exit").read_text())
    except FileNotFoundError:
        return None


def state_of(pid: int, mark: str) -> ProcessState:
    """Return the state of process `pid`.

    The state is GONE if the process has ended. It is also GONE if the command line of the process does not
    contain `mark`, because the id then belongs to another process.
    """
    process = _marked(pid, mark)
    try:
        status = process.status() if process else psutil.STATUS_DEAD
    except psutil.NoSuchProcess:
        return ProcessState.GONE
    if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        return ProcessState.GONE
    stopped = status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return ProcessState.STOPPED if stopped else ProcessState.RUNNING


def memory_of(pid: int, *, children: bool = False) -> int:
    """Return the resident memory of a process in bytes; with `children`, add the memory of its descendants.

    The result is 0 if the process has ended.
    """
    total = 0
    try:
        process = psutil.Process(pid)
        members = [process, *(process.children(recursive=True) if children else [])]
    except psutil.NoSuchProcess:
        return 0
    for member in members:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue  # this process ended after the search for descendants
    return total


def send(pid: int, mark: str, what: signal.Signals) -> bool:
    """Send a signal to process `pid` if its command line contains `mark`.

    Return False if no such process exists.
    """
    process = _marked(pid, mark)
    if process is None:
        return False
    try:
        process.send_signal(what)
    except psutil.NoSuchProcess:
        return False
    return True


def find(mark: str) -> list[FoundProcess]:
    """Return every process that the harness started and whose command line contains `mark`."""
    return [FoundProcess(process.pid, _command(process)) for process in _supervised(mark)]


def end_all(mark: str) -> None:
    """Send SIGKILL to every process that `find` returns, and wait until all have ended."""
    for process in find(mark):
        send(process.pid, mark, signal.SIGKILL)
    wait_until(lambda: not find(mark), 10, f"the processes of {mark} to end")


def _supervised(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        if process.pid == os.getpid() or mark not in _command(process):
            continue
        try:
            if process.environ().get(SUPERVISED) == "1" and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # the process has ended, or another user started it


def _marked(pid: int, mark: str) -> psutil.Process | None:
    """Return process `pid` if it exists and its command line contains `mark`."""
    try:
        process = psutil.Process(pid)
    except (psutil.NoSuchProcess, ValueError):
        return None
    return process if mark in _command(process) else None


def _command(process: psutil.Process) -> str:
    """Return the command line of a process; empty if the process has ended or this user may not read it."""
    try:
        return " ".join(process.cmdline()).strip()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
