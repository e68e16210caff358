"""Operating-system processes that outlive the command that started them, known by their command line.

A process id alone is no identity: ids are reused. Every process that the harness starts carries the
cluster's state directory in its command line, so that a later command, or one after a crash of the
harness, finds exactly its own processes and no others.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

# In the environment of every process that the harness starts to outlive a command. A user who looks at a
# log has the same path in the command line, and must not be taken for one of ours.
SUPERVISED = "EOS_SUPERVISED"


class ProcessState(StrEnum):
    """What the operating system says of a process."""

    RUNNING = "running"
    STOPPED = "stopped"  # by SIGSTOP: alive, and doing nothing
    GONE = "gone"


@dataclass(frozen=True)
class Found:
    """A live process and its command line."""

    pid: int
    command: str


def start_supervised(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> int:
    """Start a process in a session of its own and return its id, written to `folder`/pid.

    Its output goes to `folder`/log, and when it ends its exit code to `folder`/exit: a shell of a few
    hundred kilobytes stays behind to note it, because only a parent learns how its child died.
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
    from harness.base.waits import wait_until

    wait_until(pid_file.exists, 10, f"{command[0]} to start", hint=f"look at {folder / 'log'}")
    return int(pid_file.read_text())


def exit_code(folder: Path) -> int | None:
    """How the process of `folder` ended (128 + n if by signal n), None if it has not."""
    try:
        return int((folder / "exit").read_text())
    except FileNotFoundError:
        return None


def command_of(pid: int) -> str:
    """The command line of a live process, empty if there is none."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return ""
        return _ps(pid, "command")  # macOS has no /proc
    except ProcessLookupError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def state_of(pid: int, mark: str) -> ProcessState:
    """The state of process `pid`, if its command line carries `mark`; else it is gone."""
    if mark not in command_of(pid):
        return ProcessState.GONE
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        letter = stat.rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        letter = _ps(pid, "stat")[:1] if not Path("/proc/self").exists() else ""
    if letter in {"", "Z", "X"}:
        return ProcessState.GONE
    return ProcessState.STOPPED if letter in {"T", "t"} else ProcessState.RUNNING


def memory_of(pid: int, *, children: bool = False) -> int:
    """The bytes of memory that a process holds, or it and its children; 0 if it is gone."""
    folder = Path(f"/proc/{pid}")
    try:
        own = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        listed = folder.glob("task/*/children") if children else ()
        below = [int(child) for one in listed for child in one.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self").exists():
            return 0
        return int(_ps(pid, "rss") or 0) * 1024  # macOS: of the process alone
    return own + sum(memory_of(child, children=True) for child in below)


def send(pid: int, mark: str, what: signal.Signals) -> bool:
    """Send a signal to process `pid` if its command line carries `mark`; False if it is gone."""
    if state_of(pid, mark) is ProcessState.GONE:
        return False
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        return False
    return True


def find(mark: str) -> list[Found]:
    """Every live process of ours whose command line carries `mark`, this one excepted."""
    if Path("/proc/self").exists():
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    else:
        listed = subprocess.run(["ps", "-axo", "pid="], capture_output=True, text=True, check=True)
        pids = [int(line) for line in listed.stdout.split()]
    found = [Found(pid, command_of(pid)) for pid in pids if pid != os.getpid()]
    return [
        f
        for f in found
        if mark in f.command and state_of(f.pid, mark) is not ProcessState.GONE and _is_ours(f.pid)
    ]


def _is_ours(pid: int) -> bool:
    """Whether the harness started this process; where no environment can be read the mark alone decides."""
    try:
        return f"{SUPERVISED}=1".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return not Path("/proc/self").exists()


def end_all(mark: str) -> None:
    """SIGKILL every process whose command line carries `mark`, and wait until they are gone."""
    from harness.base.waits import wait_until

    for found in find(mark):
        send(found.pid, mark, signal.SIGKILL)
    wait_until(lambda: not find(mark), 10, f"the processes of {mark} to end")


def _ps(pid: int, column: str) -> str:
    listed = subprocess.run(
        ["ps", "-p", str(pid), "-o", f"{column}="], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip()
