"""Faults of clients: a crash, an end in order, and a freeze past the client's time limits (a zombie)."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import ClassVar, Final

from harness.base import processes
from harness.base.errors import HealError, NoBiteError, UsageError
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.faults.injection import Measured
from harness.faults.undo import UndoStep

ENDING_LIMIT_S: Final = 90.0
"""A client that is asked to end finishes what it has in flight first, which may wait for a broker."""
_HINT = "a client process is known by its id and a mark in its command line, such as its history file"


class _ClientFault:
    """A fault of one client process, known by its id and by a mark in its command line."""

    capability: ClassVar[Capability] = Capability.CLIENT
    moves_roles: ClassVar[bool] = False
    pid: int
    mark: str

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:  # noqa: ARG002
        """The client runs."""
        if not self.mark:
            raise UsageError(f"client {self.pid} has an empty mark", _HINT)
        state = processes.state_of(self.pid, self.mark)
        if state is not ProcessState.RUNNING:
            raise NoBiteError(f"client {self.pid} is {state} already", _HINT)

    def _send(self, what: signal.Signals, expected: ProcessState, limit: float = 5.0) -> Measured:
        processes.send(self.pid, self.mark, what)
        wait_until(
            lambda: processes.state_of(self.pid, self.mark) is expected,
            limit,
            f"client {self.pid} to be {expected}",
        )
        return {"pid": self.pid, "state": str(expected)}


@dataclass(frozen=True)
class EndedClient(_ClientFault):
    """A client that is gone: whoever runs the workload starts a new one, under a history of its own."""

    ends_by: ClassVar[signal.Signals]
    gone_within: ClassVar[float] = 5.0
    pid: int
    mark: str

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Send it the signal that it ends by."""
        processes.send(self.pid, self.mark, self.ends_by)

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """It is gone."""
        return self._send(self.ends_by, ProcessState.GONE, self.gone_within)

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:  # noqa: ARG002
        """Nothing: a process does not come back."""
        return []

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Nothing is left of it."""
        if processes.state_of(self.pid, self.mark) is not ProcessState.GONE:
            raise HealError(f"client {self.pid} is still there", _HINT)
        return {}


@dataclass(frozen=True)
class CrashClient(EndedClient):
    """SIGKILL a client: what it had in flight is unknown, its intents are on disk."""

    name: ClassVar[str] = "crash_client"
    ends_by: ClassVar[signal.Signals] = signal.SIGKILL


@dataclass(frozen=True)
class RetireClient(EndedClient):
    """Ask a client to end: it finishes what it has in flight, leaves its group, and another one joins."""

    name: ClassVar[str] = "retire_client"
    ends_by: ClassVar[signal.Signals] = signal.SIGTERM
    gone_within: ClassVar[float] = ENDING_LIMIT_S


@dataclass(frozen=True)
class Zombie(_ClientFault):
    """Freeze a client (SIGSTOP) until heal (SIGCONT): then it goes on with what it believed."""

    name: ClassVar[str] = "zombie"
    pid: int
    mark: str

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:  # noqa: ARG002
        """Let it go on."""
        return [{"do": "resume_process", "pid": self.pid, "mark": self.mark}]

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Freeze it."""
        processes.send(self.pid, self.mark, signal.SIGSTOP)

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """The system reports it as stopped."""
        return self._send(signal.SIGSTOP, ProcessState.STOPPED)

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """It runs again, or has ended by itself since."""
        if processes.state_of(self.pid, self.mark) is ProcessState.STOPPED:
            raise HealError(f"client {self.pid} is still stopped", _HINT)
        return {"state": str(processes.state_of(self.pid, self.mark))}
