"""The end of a run: stop requests, healing, and copies of the logs.

A failure in one of these steps does not prevent the verdict.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from harness.base.errors import HarnessError, describe_error
from harness.base.secrets import redact
from harness.clients import bug_log
from harness.clients.client_process import ClientProcess
from harness.cluster.cluster import Cluster
from harness.evidence.run_directory import RunDirectory
from harness.faults.heal import heal

Action = Callable[[], object]
FAILURES: Final = (HarnessError, OSError, EOFError)
"""Errors that a cluster may cause in any step. Any other exception is a bug of the harness."""
_LOG_LINES: Final = 2000


class InterruptedRun(Exception):  # noqa: N818  # not an error: it ends a phase
    """Exception that ends a phase because the run was asked to stop."""


class StopRequest:
    """The request that a run stops early, made by Ctrl-C, by a guard, or by a time limit."""

    def __init__(self) -> None:
        self.reason = ""
        """The reason why the run must stop; empty after Ctrl-C."""
        self._event = threading.Event()

    def make(self, reason: str = "") -> None:
        """Ask the run to stop. The first reason is kept. Any thread may call this."""
        self.reason = self.reason or reason
        self._event.set()

    def is_set(self) -> bool:
        """Return whether the run was asked to stop."""
        return self._event.is_set()

    def pause(self, seconds: float) -> None:
        """Wait for some seconds. Raise InterruptedRun at once when the run is asked to stop."""
        if self._event.wait(max(0.0, seconds)):
            raise InterruptedRun

    def describe(self) -> str:
        """Return the message for an interrupted run: the reason if there is one, and the next steps."""
        return f"{f'{self.reason}: ' if self.reason else ''}healing, then checking what was recorded"


class Shutdown:
    """The last steps of one run. A step that fails is reported and does not prevent the other steps."""

    def __init__(self, cluster: Cluster, directory: RunDirectory, log: Callable[[str, str], None]) -> None:
        self._cluster = cluster
        self._directory = directory
        self._log = log

    def heal(self, heal_injections: Action) -> None:
        """Heal the injections of this run.

        If that fails, heal every fault that can be found on the cluster.
        """
        try:
            heal_injections()
        except FAILURES as error:
            self._log("heal", f"{describe_error(error)}: healing every fault that the cluster shows")
            self._heal_cluster()

    def _heal_cluster(self) -> None:
        try:
            heal(self._cluster, lambda line: self._log("heal", line), spare_clients=True)
        except FAILURES as error:
            # Raise no error: the checkers find the fault that was never healed, so the run cannot be valid.
            self._log("heal", f"NOT healed: {describe_error(error)}; `eos heal` tries again")

    def each(self, *steps: Action) -> None:
        """Carry out every step, even after one that fails."""
        for step in steps:
            try:
                step()
            except FAILURES as error:
                self._log("drain", f"{describe_error(error)}: checking what was recorded")

    def keep_logs(self, clients: list[ClientProcess]) -> None:
        """Copy the logs of clients and nodes into the run directory, with secrets redacted.

        A client with a planted bug has a second log: the record of what its bug did.
        """
        logs = self._directory.path / "logs"
        logs.mkdir(exist_ok=True)
        read: dict[str, Callable[[], str]] = {client.spec.client: client.log for client in clients}
        read |= {name: partial(node.log, _LOG_LINES) for name, node in self._cluster.nodes.items()}
        for name, log in read.items():
            self._keep(logs / f"{name}.log", f"the log of {name}", log)
        for client in clients:
            record = client.folder / bug_log.FILE
            if record.exists():
                name = client.spec.client
                self._keep(logs / f"{name}.{bug_log.FILE}", f"the bug record of {name}", record.read_text)

    def _keep(self, path: Path, what: str, read: Callable[[], str]) -> None:
        try:
            path.write_text(redact(read()))
        except FAILURES as error:
            self._log("drain", f"could not keep {what}: {describe_error(error)}")


@contextmanager
def interruptible(stop: StopRequest) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into a request to stop; a second signal raises KeyboardInterrupt."""

    def on_signal(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.make()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
