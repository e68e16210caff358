"""A client in its own operating-system process: start, observe and stop it; faults crash or freeze it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from harness.base import processes
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.clients.client_settings import STOP_LIMIT_S
from harness.clients.client_spec import BaseSpec
from harness.clients.progress import ClientProgress, load_progress


class ClientProcess:
    """One client process, identified by the path of its spec on the command line."""

    def __init__(self, spec: BaseSpec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self.pid = 0

    @property
    def mark(self) -> str:
        """Text in the command line that identifies the process on this host."""
        return str(self.folder / "spec.json")

    def start(self) -> None:
        """Write the spec and start the process, which creates the history."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.spec.save(self.folder / "spec.json")
        command = [sys.executable, "-m", "harness.clients", self.mark]
        self.pid = processes.start_supervised(command, self.folder, dict(os.environ))

    def state(self) -> ProcessState:
        return processes.state_of(self.pid, self.mark)

    def exit_code(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return processes.exit_code(self.folder)

    def progress(self) -> ClientProgress:
        """Return the progress that the client last wrote. It is at most about a second old."""
        return load_progress(self.folder / "progress.json")

    def request_stop(self) -> None:
        """Request a stop and return at once. `stop` also waits until the process has ended."""
        processes.send(self.pid, self.mark, signal.SIGTERM)

    def stop(self) -> int:
        """Let the client finish what is in flight.

        Wait until the process has ended, and return its exit code.
        """
        self.request_stop()
        wait_until(
            lambda: self.exit_code() is not None,
            STOP_LIMIT_S,
            f"client {self.spec.client} to finish",
            hint=f"look at {self.folder / 'log'}",
        )
        return self.exit_code() or 0

    def kill(self) -> bool:
        """Kill the process, even if it is frozen. Return False if the process had already ended."""
        was_running = self.state() is not ProcessState.GONE
        if was_running and processes.send(self.pid, self.mark, signal.SIGKILL):
            wait_until(lambda: self.state() is ProcessState.GONE, 5, f"client {self.spec.client} to be gone")
        return was_running

    def log(self) -> str:
        """Return the output of the client."""
        return (self.folder / "log").read_text()

    def last_line(self) -> str:
        """Return the last line of the client's output; empty if there is none."""
        try:
            return "".join(self.log().strip().splitlines()[-1:])
        except OSError:
            return ""
