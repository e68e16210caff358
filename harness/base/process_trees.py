"""Trees of processes that are recognised by their environment, such as those of an application under test.

The command line of an application belongs to its user, so it contains no mark of the harness. Instead, the
harness sets the environment variable EOS_TREE for the first process, and children inherit it. The value is a
path, so the trees of one run or of one cluster are found by the beginning of the path. A child that clears
its environment still belongs to the tree while it is in the same session, or while its parent is in the tree.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Final

import psutil

from harness.base.processes import ProcessState
from harness.base.waits import wait_until

TREE: Final = "EOS_TREE"
"""Environment variable that all processes of a tree have. Its value ends with a slash."""
IN_CONTAINER: Final = "EOS_CONTAINER"
"""The same for the processes in a container, which the container's engine ends."""

END_LIMIT_S: Final = 10.0
_ENDED: Final = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_FROZEN: Final = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def find_tree(mark: str, variable: str = TREE) -> list[psutil.Process]:
    """Return every process of the trees whose value of EOS_TREE (or `variable`) begins with `mark`."""
    own_session = os.getsid(0)
    running = [process for process in psutil.process_iter() if process.pid != os.getpid()]
    found = {process.pid: process for process in running if _has_mark(process, mark, variable)}
    sessions = {_session(pid) for pid in found} - {None, own_session}
    found |= {process.pid: process for process in running if _session(process.pid) in sessions}
    for process in list(found.values()):
        with suppress(psutil.NoSuchProcess):
            found |= {child.pid: child for child in process.children(recursive=True)}
    found.pop(os.getpid(), None)
    return [process for process in found.values() if _status(process) not in _ENDED]


def send_to_tree(mark: str, what: signal.Signals) -> int:
    """Send a signal to every process of the trees with this mark, and return the number of processes."""
    processes = find_tree(mark)
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(what)
    return len(processes)


def end_tree(mark: str) -> int:
    """End every process of the trees with this mark by SIGKILL, and wait until all have ended.

    Return the number of processes that were found first. The search is repeated until it finds no process,
    because a process may start a child just before it ends.
    """
    first = send_to_tree(mark, signal.SIGKILL)
    if first:
        wait_until(
            lambda: not send_to_tree(mark, signal.SIGKILL),
            END_LIMIT_S,
            f"the processes with {TREE}={mark} to end",
            hint="look at them with ps",
        )
    return first


def tree_state(mark: str) -> ProcessState:
    """Return STOPPED if all processes of these trees are suspended, and GONE if there is none."""
    states = [_status(process) for process in find_tree(mark)]
    states = [state for state in states if state not in _ENDED]
    if not states:
        return ProcessState.GONE
    return ProcessState.STOPPED if all(state in _FROZEN for state in states) else ProcessState.RUNNING


def _has_mark(process: psutil.Process, mark: str, variable: str) -> bool:
    try:
        return str(process.environ().get(variable, "")).startswith(mark)
    except (psutil.Error, OSError):
        return False  # the process has ended, or another user started it


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)
