"""`python -m harness.app.keeper LAUNCH.json`: run one start of an instance, and end its processes with it.

The keeper is the parent of the application's first process, which gets a session of its own. It writes the
output of the application to a log of limited size, and notes the first line that shows that the instance is
ready. When the first process ends, the keeper ends what is left of the process tree and writes the exit code.
It ends the tree too if the tree uses too much memory, or if the harness has ended, also by SIGKILL. If the
keeper itself is killed, `eos heal`, `eos down` and the next run find the tree by its environment.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import psutil

from harness.app.limited_log import LimitedLog
from harness.base.process_trees import TREE
from harness.base.processes import SUPERVISED, memory_of
from harness.provision.app_processes import app_container, end_processes, was_out_of_memory

LOOK_S: Final = 0.2
"""Longest time between two looks at the process."""
MEASURE_S: Final = 1.0
"""Time between two measurements of memory, and between two checks that the harness still runs."""
LAST_OUTPUT_S: Final = 1.0
"""Time to read the rest of the output after the tree has ended."""
CHUNK: Final = 1 << 16
LONGEST_LINE: Final = 1 << 14
NOT_STARTED: Final = 127

EXIT: Final = "exit.json"
READY: Final = "ready"
MAIN: Final = "main"


class Launch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Description of one start of an instance. `mark` is the value of EOS_TREE for its processes.

    The keeper ends the tree when process `owner`, which was created at `owner_created`, no longer exists.
    """

    instance: str
    number: int
    command: list[str]
    env: dict[str, str]
    directory: str
    mark: str
    log: str
    log_limit: int
    memory_limit: int
    cores: list[int] = []
    """The cores on which the process tree may run; all if empty."""
    ready_pattern: str = ""
    owner: int
    owner_created: float


class Exit(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How a start of an instance ended. `reason` is empty if the first process ended by itself."""

    code: int
    reason: str = ""
    left: int = 0
    """Number of processes of the tree that still ran when the first process had ended."""


class Keeper:
    """The keeper of one start of an instance."""

    def __init__(self, launch: Launch, folder: Path) -> None:
        self._launch = launch
        self._folder = folder
        self._log = LimitedLog(Path(launch.log), launch.log_limit)
        self._ready = re.compile(launch.ready_pattern.encode()) if launch.ready_pattern else None
        self._line = b""
        self._measured = 0.0

    def run(self) -> None:
        """Start the command, keep it until it ends, and write how it ended."""
        launch = self._launch
        self._log.note(f"start {launch.number} of {launch.instance}: {shlex.join(launch.command)}")
        try:
            process = self._start()
        except OSError as error:
            why = f"{launch.command[0]} cannot be started in {launch.directory}: {error.strerror}"
            self._finish(Exit(code=NOT_STARTED, reason=why))
            return
        write_text(self._folder / MAIN, str(process.pid))
        reason = self._attend(process)
        container = app_container(launch.mark)
        if container and not reason and was_out_of_memory(container):
            reason = f"its container used more than {launch.memory_limit >> 20} MiB of memory"
        left = end_processes(launch.mark)
        self._read_rest(process)
        code = process.wait(timeout=LAST_OUTPUT_S)
        self._finish(Exit(code=128 - code if code < 0 else code, reason=reason, left=0 if reason else left))

    def _start(self) -> subprocess.Popen[bytes]:
        if self._launch.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self._launch.cores)  # children inherit it
        inherited = {name: value for name, value in os.environ.items() if name != SUPERVISED}
        return subprocess.Popen(
            self._launch.command,
            cwd=self._launch.directory,
            env=inherited | self._launch.env | {TREE: self._launch.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _attend(self, process: subprocess.Popen[bytes]) -> str:
        """Copy the output until the first process has ended; return why the keeper ended it, if it did."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while process.poll() is None:
                if selector.get_map():
                    if selector.select(LOOK_S) and not self._copy(process.stdout.fileno()):
                        selector.unregister(process.stdout)  # the application has closed its output
                else:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(LOOK_S)
                if reason := self._obstacle(process.pid):
                    end_processes(self._launch.mark)
                    return reason
        return ""

    def _obstacle(self, pid: int) -> str:
        """Return why the tree must end now; empty if it may continue."""
        now = time.monotonic()
        if now - self._measured < MEASURE_S:
            return ""
        self._measured = now
        if not is_running(self._launch.owner, self._launch.owner_created):
            return "the harness has ended"
        used, limit = memory_of(pid, children=True), self._launch.memory_limit
        return (
            f"it used {used >> 20} MiB of memory, and its limit is {limit >> 20} MiB" if used > limit else ""
        )

    def _copy(self, descriptor: int) -> bool:
        """Copy output that has arrived; return False at its end."""
        data = os.read(descriptor, CHUNK)
        self._log.write(data)
        if self._ready is not None:
            *lines, self._line = (self._line + data).split(b"\n")
            if any(self._ready.search(line) for line in (*lines, self._line)):
                write_text(self._folder / READY, "ready")
                self._ready = None
            self._line = self._line[-LONGEST_LINE:]
        return bool(data)

    def _read_rest(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        deadline = time.monotonic() + LAST_OUTPUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline and selector.select(0) and self._copy(process.stdout.fileno()):
                pass

    def _finish(self, how: Exit) -> None:
        self._log.note(f"ended with exit code {how.code}{f': {how.reason}' if how.reason else ''}")
        self._log.close()
        write_text(self._folder / EXIT, msgspec.json.encode(how).decode())


def is_running(pid: int, created: float) -> bool:
    """Return whether process `pid` exists and was created at this time."""
    try:
        process = psutil.Process(pid)
        return bool(process.create_time() == created and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def write_text(path: Path, text: str) -> None:
    """Write a file that another process reads: it has the whole text or does not exist."""
    new = path.with_name(f".{path.name}")
    new.write_text(text)
    new.replace(path)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    Keeper(msgspec.json.decode(file.read_bytes(), type=Launch), file.parent).run()
