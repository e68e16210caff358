"""Faults of clients: a crash, a clean exit, and a freeze that outlasts the client's timeouts (a zombie)."""

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
from harness.faults.injection import Fault, FaultContext, MarkedProcess, Measured, TargetKind
from harness.faults.undo import UndoStep, undo_verb

ENDING_LIMIT_S: Final = 90.0
"""Time limit in seconds for the clean exit of a client.

The client first finishes its in-flight work, which may have to wait for a broker.
"""
_HINT = "a client process is identified by its id and a mark in its command line, such as its history file"


@undo_verb
def resume_process(_: Cluster, pid: int, mark: str) -> None:
    processes.send(pid, mark, signal.SIGCONT)


class ClientFault(Fault[None]):
    """Base class of the faults that send a signal to one client process."""

    capability: ClassVar[Capability] = Capability.CLIENT
    target_kind: ClassVar[TargetKind] = TargetKind.CLIENT
    signal_sent: ClassVar[signal.Signals]
    expected: ClassVar[ProcessState]
    limit_s: ClassVar[float] = 5.0

    def before(self, context: FaultContext[None]) -> None:
        client = _process(context)
        if not client.mark:
            raise UsageError(f"client {client.pid} has an empty mark", _HINT)
        state = processes.state_of(client.pid, client.mark)
        if state is not ProcessState.RUNNING:
            raise NoBiteError(f"client {client.pid} is {state} already", _HINT)

    def apply(self, context: FaultContext[None]) -> None:
        client = _process(context)
        processes.send(client.pid, client.mark, self.signal_sent)

    def bite(self, context: FaultContext[None]) -> Measured:
        """Wait until the client process is in the state that the fault causes, such as ended or frozen."""
        client = _process(context)
        wait_until(
            lambda: processes.state_of(client.pid, client.mark) is self.expected,
            self.limit_s,
            f"client {client.pid} to be {self.expected}",
        )
        return {"pid": client.pid, "state": str(self.expected)}


class EndedClient(ClientFault):
    """Base class of the faults that end a client.

    The run then starts a successor, which has its own history file.
    """

    expected: ClassVar[ProcessState] = ProcessState.GONE

    def undo_steps(self, context: FaultContext[None]) -> list[UndoStep]:  # noqa: ARG002
        """Return no steps, because a client process that has ended cannot be brought back."""
        return []

    def health(self, context: FaultContext[None]) -> Measured:
        client = _process(context)
        if processes.state_of(client.pid, client.mark) is not ProcessState.GONE:
            raise HealError(f"client {client.pid} has not ended", _HINT)
        return {}


@dataclass(frozen=True)
class CrashClient(EndedClient):
    """Fault that ends a client by SIGKILL.

    The outcome of the client's in-flight work is unknown. The intents that it wrote before remain in its
    history file.
    """

    name: ClassVar[str] = "crash_client"
    allowed_on_external: ClassVar[bool] = True
    signal_sent: ClassVar[signal.Signals] = signal.SIGKILL


@dataclass(frozen=True)
class RetireClient(EndedClient):
    """Fault that ends a client by SIGTERM.

    The client finishes its in-flight work and leaves its group. Then its successor joins the group.
    """

    name: ClassVar[str] = "retire_client"
    signal_sent: ClassVar[signal.Signals] = signal.SIGTERM
    limit_s: ClassVar[float] = ENDING_LIMIT_S


@dataclass(frozen=True)
class Zombie(ClientFault):
    """Fault that freezes a client with SIGSTOP. Heal resumes it with SIGCONT.

    After heal the client continues. Its view of the cluster is outdated if it was frozen for longer than one
    of its time-outs, so choose `lasts` above it: 6 s is the session of a member of a group (pipelines and
    readers), and 20 s is the transaction time-out, unless the scenario sets another one. A shorter freeze is
    only a pause.
    """

    name: ClassVar[str] = "zombie"
    allowed_on_external: ClassVar[bool] = True
    signal_sent: ClassVar[signal.Signals] = signal.SIGSTOP
    expected: ClassVar[ProcessState] = ProcessState.STOPPED

    def undo_steps(self, context: FaultContext[None]) -> list[UndoStep]:
        client = _process(context)
        return [resume_process.step(pid=client.pid, mark=client.mark)]

    def health(self, context: FaultContext[None]) -> Measured:
        """Check that the client is no longer frozen: it runs, or it has ended by itself."""
        client = _process(context)
        state = processes.state_of(client.pid, client.mark)
        if state is ProcessState.STOPPED:
            raise HealError(f"client {client.pid} is still stopped", _HINT)
        return {"state": str(state)}


def _process(context: FaultContext[None]) -> MarkedProcess:
    assert context.process is not None
    return context.process
