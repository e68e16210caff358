"""One instance of the application under test, across all its starts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import psutil

from harness.app.app_spec import AppSpec
from harness.app.container_launch import container_command, container_name, java_options
from harness.app.keeper import EXIT, MAIN, READY, Exit, Launch
from harness.app.launch_template import JAR_SETS, LOCK_SUFFIX, Placeholder, fill
from harness.app.limited_log import last_lines, read_log
from harness.base import processes
from harness.base.errors import WaitTimeoutError
from harness.base.ports import free_ports
from harness.base.process_trees import IN_CONTAINER
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.provision.app_processes import (
    CONTAINER,
    count_processes,
    end_processes,
    processes_state,
    send_signal,
)
from harness.provision.client_programs import go_program, python_packages
from harness.provision.jars import class_path, read_app_lock
from harness.provision.java import find_java

START_LIMIT_S: Final = 30.0
"""Time limit for the keeper to start the command."""

LOST: Final = Exit(code=-1, reason="its keeper was killed")

Names = Callable[[Placeholder], str]
"""Function that returns the value of {bootstrap}, {topic:...} and {group}."""


def _ignore(_: str) -> None:
    """Ignore a report: the run has fetched all packages before it starts an instance."""


class AppInstance:
    """One instance: its folder, its processes, and its log.

    `<folder>/state` outlives the processes. `<folder>/starts/N` belongs to start number N.
    """

    def __init__(self, spec: AppSpec, name: str, folder: Path, names: Names, index: int = 1) -> None:
        self.spec = spec
        self.index = index
        """Number of this instance, counted from 1."""
        self.name = name
        self.folder = folder.resolve()
        self.number = 0
        """Number of the latest start; 0 before the first one."""
        self._names = names
        self._ports: dict[str, int] = {}
        self.keeper = 0
        """Process id of the keeper of the latest start."""

    @property
    def mark(self) -> str:
        """Value of EOS_TREE for the processes of the latest start."""
        return f"{self._start}/"

    @property
    def pid(self) -> int:
        """Process id of the first process of the latest start; 0 if it was not started."""
        try:
            return int((self._start / MAIN).read_text())
        except FileNotFoundError:
            return 0

    @property
    def log_path(self) -> Path:
        """Path of the log, which is shared by all starts."""
        return self.folder / "log"

    @property
    def state_folder(self) -> Path:
        """Folder that the application may use for data that must outlive its processes."""
        return self.folder / "state"

    @property
    def _start(self) -> Path:
        return self.folder / "starts" / str(self.number)

    def port(self, name: str) -> int:
        """Return the port with this name. The first call chooses it."""
        if name not in self._ports:
            (self._ports[name],) = free_ports(1, self._ports.values())
        return self._ports[name]

    def text(self, template: str) -> str:
        """Return a text with the values of this instance for its placeholders."""
        return fill(template, self._value)

    def start(self) -> None:
        """Render the files, and start the command in a session of its own."""
        self.number += 1
        for folder in (self.state_folder, self.folder / "files", self.folder / "logs", self._start):
            folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.spec.files.items():
            (self.folder / "files" / name).write_text(self.text(content))
        env = {name: self.text(text) for name, text in self.spec.env.items()}
        env = java_options(self.spec.limits) | env
        env |= {"EOS_INSTANCE": self.name, "EOS_START": "first" if self.number == 1 else "again"}
        env |= {IN_CONTAINER: self.mark} if self.spec.in_container else {}
        command = self.spec.command if self.number == 1 else self.spec.again or self.spec.command
        launch = Launch(
            instance=self.name,
            number=self.number,
            command=self._command([self.text(text) for text in command], env),
            env=env,
            cores=[] if self.spec.in_container else self._cores(),
            directory=self.spec.directory,
            mark=self.mark,
            log=str(self.log_path),
            log_limit=int(self.spec.limits.log),
            memory_limit=int(self.spec.limits.memory),
            ready_pattern=self.spec.ready.log,
            owner=os.getpid(),
            owner_created=psutil.Process().create_time(),
        )
        path = self._start / "launch.json"
        path.touch(mode=0o600)  # the environment may contain secrets
        path.write_bytes(msgspec.json.encode(launch))
        command = [sys.executable, "-m", "harness.app.keeper", str(path)]
        self.keeper = processes.start_supervised(command, self._start / "keeper", dict(os.environ))
        wait_until(
            lambda: self.pid or self.exit() is not None,
            START_LIMIT_S,
            f"instance {self.name} to start",
            hint=f"look at {self._start / 'keeper' / 'log'}",
        )

    def _command(self, command: list[str], env: dict[str, str]) -> list[str]:
        """Return the command that the keeper runs, which starts the container if there is one."""
        if not self.spec.in_container:
            return command
        name = container_name(self.mark, self.name, self.number)
        (self._start / CONTAINER).write_text(name)
        shared = self.folder.parent / "shared"
        shared.mkdir(exist_ok=True)
        mounts = [self.folder / "state", self.folder / "files", self.folder / "logs", shared]
        return container_command(
            self.spec, command, name=name, variables=list(env), mounts=mounts, folder=self._start
        )

    def _cores(self) -> list[int]:
        """Return the cores of this instance. Instances get different ones as far as there are enough."""
        if not self.spec.limits.cores or not hasattr(os, "sched_getaffinity"):
            return []
        cores = sorted(os.sched_getaffinity(0))
        count = min(self.spec.limits.cores, len(cores))
        first = (self.index - 1) * count
        return [cores[(first + i) % len(cores)] for i in range(count)]

    def exit(self) -> Exit | None:
        """Return how the latest start ended; None while it runs."""
        try:
            return msgspec.json.decode((self._start / EXIT).read_bytes(), type=Exit)
        except FileNotFoundError:
            pass
        if not self.number or processes.state_of(self.keeper, f"{self._start}/") is not ProcessState.GONE:
            return None
        # The keeper may have written the file after the first look and before its end.
        if (self._start / EXIT).exists():
            return self.exit()
        end_processes(self.mark)
        return LOST

    def state(self) -> ProcessState:
        """Return whether the processes of the latest start run, are all suspended, or are gone."""
        return processes_state(self.mark) if self.number else ProcessState.GONE

    def has_logged_ready(self) -> bool:
        """Return whether the output of the latest start contained the pattern of `ready.log`."""
        return (self._start / READY).exists()

    def process_count(self) -> int:
        """Return the number of processes of the latest start."""
        return count_processes(self.mark)

    def stop(self) -> str:
        """Ask all processes to stop, and wait for their end. Return what was wrong with it, or ""."""
        if not self.number or self.exit() is not None:
            return ""
        rule = self.spec.stop
        send_signal(self.mark, rule.signal)
        send_signal(self.mark, signal.SIGCONT)  # a suspended process would never receive the signal
        try:
            wait_until(lambda: self.exit() is not None, rule.limit, f"instance {self.name} to stop")
        except WaitTimeoutError:
            self.kill()
            return f"{self.name} did not stop within {rule.limit} of {rule.signal.name}, so it was killed"
        return ""

    def kill(self) -> None:
        """End all processes of the latest start by SIGKILL."""
        if self.number and self.exit() is None:
            end_processes(self.mark)
            wait_until(lambda: self.exit() is not None, START_LIMIT_S, f"instance {self.name} to end")

    def log(self) -> str:
        """Return the log of all starts, as far as its size limit has kept it."""
        return read_log(self.log_path)

    def last_line(self) -> str:
        """Return the last line that the application wrote; empty if it wrote none."""
        return "".join(last_lines(self.log_path, 1))

    def _jars(self, name: str) -> list[Path]:
        if name.endswith(LOCK_SUFFIX):
            return [jar.path for jar in read_app_lock(Path(self.spec.directory) / name)]
        return class_path(*JAR_SETS[name])

    def _value(self, found: Placeholder) -> str:
        if found.name == "jars":
            return os.pathsep.join(map(str, self._jars(found.argument)))
        if found.name == "pip":
            return str(python_packages(Path(self.spec.directory) / found.argument, _ignore))
        if found.name == "go":
            return str(go_program(Path(self.spec.directory) / found.argument, _ignore))
        if found.name == "java":
            return str(find_java().executable)
        own = {
            "instance": self.name,
            "python": sys.executable,
            "state": str(self.state_folder),
            "log": str(self.folder / "logs"),
            "file": str(self.folder / "files" / found.argument),
        }
        if found.name == "port":
            return str(self.port(found.argument))
        return own[found.name] if found.name in own else self._names(found)
