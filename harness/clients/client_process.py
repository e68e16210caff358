"""A client as a process of its own: started, watched, stopped; crashed and frozen by faults."""

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
    """One client process, known by its folder, which stands in its command line."""

    def __init__(self, spec: BaseSpec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self.pid = 0

    @property
    def mark(self) -> str:
        """What identifies it among the processes of this host."""
        return str(self.folder / "spec.json")

    def start(self) -> None:
        """Start it; it writes its history from its first moment on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.spec.save(self.folder / "spec.json")
        command = [sys.executable, "-m", "harness.clients", self.mark]
        self.pid = processes.start_supervised(command, self.folder, dict(os.environ))

    def state(self) -> ProcessState:
        """Running, stopped by a signal, or gone."""
        return processes.state_of(self.pid, self.mark)

    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return processes.exit_code(self.folder)

    def progress(self) -> ClientProgress:
        """What it wrote last of how it is getting on, at most a second or so old."""
        return load_progress(self.folder / "progress.json")

    def tell_to_stop(self) -> None:
        """Ask it to begin nothing more; `stop` also waits."""
        processes.send(self.pid, self.mark, signal.SIGTERM)

    def stop(self) -> int:
        """Ask it to finish what it has in flight, and wait until it has; return its exit code."""
        self.tell_to_stop()
        wait_until(
            lambda: self.exit_code() is not None,
            STOP_LIMIT_S,
            f"client {self.spec.client} to finish",
            hint=f"look at {self.folder / 'log'}",
        )
        return self.exit_code() or 0

    def kill(self) -> None:
        """End it at once, whatever its state; harmless if it is gone."""
        if processes.send(self.pid, self.mark, signal.SIGKILL):
            wait_until(lambda: self.state() is ProcessState.GONE, 5, f"client {self.spec.client} to be gone")

    def log(self) -> str:
        """What it wrote to its output."""
        return (self.folder / "log").read_text()
