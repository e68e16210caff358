"""Life cycle of a fault: intent on disk, injection, measured bite, heal, check that the effect has ended.

A fault is used as a context manager. If the fault does not bite, `inject` raises NoBiteError:

    with inject(cluster, Jitter(latency_ms=200), "leader_of(orders, 0)") as injection:
        print(injection.bite)  # the measurement
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum
from types import TracebackType
from typing import Annotated, Any, ClassVar, Generic, Protocol, Self, TypeVar

import msgspec

from harness.base.errors import (
    HarnessError,
    HealError,
    NoBiteError,
    UsageError,
    WaitTimeoutError,
    describe_error,
)
from harness.base.events import Event, Healed, Injected, NoBite
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.targets import Target
from harness.evidence.history import HistoryWriter
from harness.faults.app_control import AppControl
from harness.faults.intents import open_journal
from harness.faults.undo import UndoStep, undo

ROLE_MOVES_LIMIT_S = 20.0
# Errors that a measurement raises if the node that it measures does not answer.
_UNREACHABLE = (OSError, EOFError)
Measured = dict[str, Any]
Positive = Annotated[int, msgspec.Meta(ge=1)]
"""Type of a fault's parameter that must be 1 or more, in its unit. The loader checks it."""
S = TypeVar("S")


class MarkedProcess(Protocol):
    """A client process, or an instance of the application under test.

    `pid` is its process id. `mark` is text that no other process has: in the command line of a client, and in
    the environment of an application.
    """

    @property
    def pid(self) -> int: ...
    @property
    def mark(self) -> str: ...


@dataclass(frozen=True)
class ProcessSnapshot:
    """A process as it was when the fault was injected. If it is restarted, the new one is not affected."""

    pid: int
    mark: str


class TargetKind(Enum):
    """Kind of target that a fault acts on: nodes, a client, or an instance of the application under test."""

    NODES = "nodes"
    CLIENT = "client"
    APP = "app"


@dataclass
class FaultContext(Generic[S]):
    """The data of one injection, which the methods of a fault receive.

    `state` is the value that the fault's method `before` returned.
    """

    cluster: Cluster
    nodes: list[str]
    mark: str
    """Unique text for this injection. The fault uses it to name what it creates, such as a toxic."""
    process: MarkedProcess | None = None
    app: AppControl | None = None
    """The application of the run; None if there is none."""
    state: S = field(init=False)

    @property
    def brokers(self) -> list[int]:
        """Ids of the brokers among the target nodes."""
        return [b for b in self.cluster.broker_ids if self.cluster.name_of(b) in self.nodes]


class Fault(ABC, Generic[S]):
    """Description of a fault: a frozen dataclass whose fields are its parameters.

    An injection calls `before`, `undo_steps`, `apply` and `bite` in this order. To heal, it carries out the
    undo steps and then calls `health`. S is the type of the value that `before` returns for the later
    methods.
    """

    name: ClassVar[str]
    capability: ClassVar[Capability]
    target_kind: ClassVar[TargetKind] = TargetKind.NODES
    moves_roles: ClassVar[bool] = False
    """Whether the fault bites only if another node takes over the role that the target names."""
    needs_frames: ClassVar[bool] = False
    """Whether the clients must connect through the wire tap, because the fault learns from their frames."""
    allowed_on_external: ClassVar[bool] = False
    """Whether a cluster file may allow this fault on an external cluster."""

    @classmethod
    def check_target(cls, target: Target) -> None:
        """Raise UsageError if this fault cannot act on the target."""
        if cls.target_kind is TargetKind.CLIENT and target.client is None:
            hint = "write client(idempotent-orders-1), or client(*) for any client"
            raise UsageError(f"{target!r} does not name a client, which {cls.name} needs", hint)
        if cls.target_kind is TargetKind.APP and target.app is None:
            hint = "write app(app-1), or app(*) for any instance"
            raise UsageError(f"{target!r} does not name an application, which {cls.name} needs", hint)
        if cls.target_kind is TargetKind.NODES and target.process is not None:
            hint = "write a node or a role, such as one or leader_of(orders, 0)"
            raise UsageError(f"{target!r} does not name nodes, which {cls.name} needs", hint)

    @abstractmethod
    def before(self, context: FaultContext[S]) -> S:
        """Measure the state of the target before the fault is injected.

        Raise NoBiteError if the target is already affected by a fault.
        """

    @abstractmethod
    def undo_steps(self, context: FaultContext[S]) -> list[UndoStep]:
        """Return the steps that undo the fault. The injection writes them to disk before it calls `apply`."""

    @abstractmethod
    def apply(self, context: FaultContext[S]) -> None:
        """Carry out the disturbance, for example kill the node or add the toxic."""

    @abstractmethod
    def bite(self, context: FaultContext[S]) -> Measured:
        """Measure that the fault took effect. Raise NoBiteError if it did not. Return the measurement."""

    def release(self, context: FaultContext[S]) -> None:
        """Undo what lives in the process of the run and not on the cluster. Heal calls this first."""

    @abstractmethod
    def health(self, context: FaultContext[S]) -> Measured:
        """Measure that the effect of the fault has ended. Raise HealError or WaitTimeoutError if it has not.

        Return the measurement.
        """


class Injection:
    """The injection of one fault.

    `start` returns only after it has measured a bite. Calling `heal` a second time is harmless.
    """

    def __init__(
        self,
        cluster: Cluster,
        fault: Fault[Any],
        target: str | Target,
        *,
        process: MarkedProcess | None = None,
        app: AppControl | None = None,
        journal: HistoryWriter | None = None,
        seed: int = 0,
        emit: Callable[[Event], None] | None = None,
    ) -> None:
        self.cluster = cluster
        self.fault = fault
        self.target = Target.parse(target)
        self.names: list[str] = []
        self.bite: Measured = {}
        self.health: Measured = {}
        self.ident = ""
        """Id of the injection's lines in the journal; empty before the intent is written."""
        self._process = process
        self._app = app
        self._rng = random.Random(seed)
        self._emit = emit
        """Receives the events of this injection. None: the caller emits events itself, or needs none."""
        self._intended = 0.0
        self._bitten = False
        self._journal = journal
        self._owns_journal = journal is None
        self._context: FaultContext[Any] | None = None
        self._intent_id: str | None = None
        self._undo_steps: list[UndoStep] = []

    @property
    def context(self) -> FaultContext[Any]:
        """The data that the fault's methods receive. It exists only after the start."""
        assert self._context is not None
        return self._context

    def start(self) -> Self:
        """Inject the fault and measure its bite.

        If it does not bite, heal the fault and raise NoBiteError.
        """
        self.cluster.require(self.fault.capability)
        self.fault.check_target(self.target)
        if self.target.process is not None and self._process is None:
            raise UsageError(f"{self.fault.name} needs the process of {self.target}", "pass process=client")
        self.names = self.target.resolve(self.cluster, self._rng)
        # The undo steps contain the mark, and the intent contains the undo steps. Create the mark first.
        mark = f"{self.fault.name}-{time.time_ns():x}"
        process = self._process and ProcessSnapshot(self._process.pid, self._process.mark)
        context = self._context = FaultContext[Any](self.cluster, self.names, mark, process, self._app)
        try:
            context.state = self.fault.before(context)
        except _UNREACHABLE as error:
            raise self._unmeasured("the state before", error) from error
        journal = self._write_intent()
        try:
            started = time.monotonic()
            self.fault.apply(context)
            self._measure(journal, started)
        except (HarnessError, *_UNREACHABLE) as error:
            assert self._intent_id is not None
            self._note_no_bite(journal, describe_error(error))
            self.heal()
            if isinstance(error, HarnessError):
                raise
            raise self._unmeasured("the bite of", error) from error
        except BaseException:
            self.heal()
            raise
        return self

    def heal(self) -> None:
        """Undo the fault and measure that its effect has ended. A second call does nothing."""
        if self._intent_id is None or self._journal is None:
            return
        began = time.monotonic()
        try:
            self.fault.release(self.context)
            undo(self.cluster, self._undo_steps)
            self.health = self.fault.health(self.context)
        except (HarnessError, *_UNREACHABLE) as error:
            self._journal.fault_heal_failed(self._intent_id, describe_error(error))
            raise HealError(
                f"{self._described} was reverted, but its effect persists: {describe_error(error)}",
                "`eos heal` tries again, `eos status` shows the state of the cluster",
            ) from error
        self._journal.fault_healed(self._intent_id, self.health)
        self._intent_id = None
        if self._owns_journal:
            self._journal.close()
        if self._emit and self._bitten:
            took = time.monotonic() - began
            self._emit(Healed(fault=self.fault.name, names=self.names, health=self.health, took_s=took))

    def _note_no_bite(self, journal: HistoryWriter, reason: str) -> None:
        assert self._intent_id is not None
        journal.fault_no_bite(self._intent_id, reason)
        if self._emit:
            self._emit(NoBite(fault=self.fault.name, reason=reason))

    @property
    def _described(self) -> str:
        return f"{self.fault.name} on {', '.join(self.names)}"

    def _write_intent(self) -> HistoryWriter:
        journal = self._journal = self._journal or open_journal(self.cluster.state)
        self._intended = time.monotonic()
        process = asdict(self.context.process) if self.context.process else {}  # type: ignore[call-overload]
        self._undo_steps = self.fault.undo_steps(self.context)
        self.ident = self._intent_id = journal.fault_intent(
            self.fault.name,
            str(self.target),
            self.names,
            params=asdict(self.fault) | process,  # type: ignore[call-overload]
            undo={"steps": [dict(step) for step in self._undo_steps]},
        )
        return journal

    def _unmeasured(self, what: str, error: Exception) -> NoBiteError:
        return NoBiteError(
            f"{what} {self._described} could not be measured: {error}",
            "another fault may prevent the measurement: `eos status` shows the active faults",
        )

    def _measure(self, journal: HistoryWriter, started: float) -> None:
        """Measure the bite and write it to the file that contains the intent.

        Raise NoBiteError if the fault did not bite.
        """
        assert self._intent_id is not None
        self.bite = self.fault.bite(self.context)
        self.bite |= self._role_move(started)
        journal.fault_bite(self._intent_id, self.bite)
        self._bitten = True
        if self._emit:
            took = time.monotonic() - self._intended
            self._emit(Injected(fault=self.fault.name, names=self.names, bite=self.bite, took_s=took))

    def _role_move(self, started: float) -> Measured:
        """Wait until the role that the target names has moved to another node.

        Return which node took over the role, and after how many seconds.
        """
        role = self.target.role(self.cluster)
        if role is None or not self.fault.moves_roles:
            return {}
        try:
            holder = wait_until(
                lambda: name if (name := self.cluster.name_of(role())) not in self.names else "",
                ROLE_MOVES_LIMIT_S,
                f"{self.target} to be another node than {self.names[0]}",
            )
        except WaitTimeoutError as error:
            raise NoBiteError(
                error.message, "is there a replica that can take over? see `eos status`"
            ) from error
        return {
            "moved_from": self.names[0],
            "moved_to": holder,
            "moved_after_s": round(time.monotonic() - started, 2),
        }

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()


class ArmedInjection(Injection):
    """Injection whose start does not wait for the bite, as a context manager.

    It is for faults that take effect later, when a client sends something. The bite is measured at the end of
    the `with` block.
    """

    def _measure(self, journal: HistoryWriter, started: float) -> None:
        """Do nothing, because the fault may not have taken effect yet."""

    def measure(self) -> Measured:
        """Measure the bite now. Raise NoBiteError if there is none.

        If this method is not called, the bite is measured at the end of the `with` block.
        """
        assert self._journal is not None
        if not self.bite:
            try:
                super()._measure(self._journal, time.monotonic())
            except NoBiteError as error:
                self._note_no_bite(self._journal, error.message)
                raise
        return self.bite

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._intent_id is not None:
                self.measure()
        finally:
            self.heal()


def inject(cluster: Cluster, fault: Fault[Any], target: str | Target, **options: Any) -> Injection:
    """Return an injection as a context manager.

    The fault is active inside the `with` block and is healed at the end of the block.
    """
    return Injection(cluster, fault, target, **options)
