"""Faults of the application under test: its process tree is killed, asked to stop, or frozen."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import ClassVar, Final

from harness.base.errors import HealError, NoBiteError
from harness.base.process_trees import find_tree, send_to_tree, tree_state
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.faults.injection import Fault, FaultContext, MarkedProcess, Measured, TargetKind
from harness.faults.undo import UndoStep, undo_verb

STOP_LIMIT_S: Final = 90.0
"""Time limit in seconds for the clean exit of an application, which may have to wait for a broker."""
_HINT = "read the log of the instance in the run directory"


@undo_verb
def resume_app(_: Cluster, mark: str) -> None:
    send_to_tree(mark, signal.SIGCONT)


class AppFault(Fault[int]):
    """Base class of the faults that send a signal to all processes of one start of an instance."""

    capability: ClassVar[Capability] = Capability.CLIENT
    target_kind: ClassVar[TargetKind] = TargetKind.APP
    signal_sent: ClassVar[signal.Signals]
    expected: ClassVar[ProcessState] = ProcessState.GONE
    limit_s: ClassVar[float] = 10.0

    def before(self, context: FaultContext[int]) -> int:
        """Return the number of processes; raise NoBiteError if the instance does not run."""
        mark = _process(context).mark
        if (state := tree_state(mark)) is not ProcessState.RUNNING:
            raise NoBiteError(f"the instance is {state} already", _HINT)
        return len(find_tree(mark))

    def undo_steps(self, context: FaultContext[int]) -> list[UndoStep]:  # noqa: ARG002
        """Return no steps: the supervisor of the run starts an instance that has ended again."""
        return []

    def apply(self, context: FaultContext[int]) -> None:
        send_to_tree(_process(context).mark, self.signal_sent)

    def bite(self, context: FaultContext[int]) -> Measured:
        """Wait until all processes of the instance have ended, or are frozen."""
        process = _process(context)
        wait_until(
            lambda: tree_state(process.mark) is self.expected,
            self.limit_s,
            f"the processes of the instance to be {self.expected}",
            hint=_HINT,
        )
        return {"pid": process.pid, "processes": context.state, "state": str(self.expected)}

    def health(self, context: FaultContext[int]) -> Measured:
        if tree_state(_process(context).mark) is not ProcessState.GONE:
            raise HealError("the processes of the instance have not ended", _HINT)
        return {}


class EndedApp(AppFault):
    """Base class of the faults that end an instance. It is started again when the fault is healed."""


@dataclass(frozen=True)
class KillApp(EndedApp):
    """Fault that ends all processes of an instance by SIGKILL."""

    name: ClassVar[str] = "kill_app"
    signal_sent: ClassVar[signal.Signals] = signal.SIGKILL


@dataclass(frozen=True)
class RetireApp(EndedApp):
    """Fault that asks all processes of an instance to stop, by SIGTERM."""

    name: ClassVar[str] = "retire_app"
    signal_sent: ClassVar[signal.Signals] = signal.SIGTERM
    limit_s: ClassVar[float] = STOP_LIMIT_S


@dataclass(frozen=True)
class FreezeApp(AppFault):
    """Fault that freezes all processes of an instance with SIGSTOP. Heal resumes them with SIGCONT."""

    name: ClassVar[str] = "freeze_app"
    signal_sent: ClassVar[signal.Signals] = signal.SIGSTOP
    expected: ClassVar[ProcessState] = ProcessState.STOPPED

    def undo_steps(self, context: FaultContext[int]) -> list[UndoStep]:
        return [resume_app.step(mark=_process(context).mark)]

    def health(self, context: FaultContext[int]) -> Measured:
        """Check that the instance is no longer frozen: it runs, or it has ended by itself."""
        state = tree_state(_process(context).mark)
        if state is ProcessState.STOPPED:
            raise HealError("the processes of the instance are still frozen", _HINT)
        return {"state": str(state)}


def _process(context: FaultContext[int]) -> MarkedProcess:
    assert context.process is not None
    return context.process
