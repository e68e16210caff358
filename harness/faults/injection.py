"""The life of a fault: intent on disk, injection, measured bite, healing, measured health.

with inject(cluster, Jitter(latency_ms=200), "leader_of(orders, 0)") as injection:
    print(injection.bite)          # what was measured; no bite is an error
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from harness.base.errors import (
    HarnessError,
    HealError,
    NoBiteError,
    UsageError,
    WaitTimeoutError,
    describe_error,
)
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.targets import Target
from harness.evidence.history import HistoryWriter
from harness.faults.intents import open_journal
from harness.faults.undo import UndoStep, undo

ROLE_MOVES_LIMIT_S = 20.0
# The errors of a measurement whose peer does not answer.
_UNREACHABLE = (OSError, EOFError)
Measured = dict[str, Any]
S = TypeVar("S")


class MarkedProcess(Protocol):
    """The process of a client: its id, and a mark in its command line that no other process has."""

    @property
    def pid(self) -> int: ...
    @property
    def mark(self) -> str: ...


class TargetKind(Enum):
    """What a fault acts on."""

    NODES = "nodes"
    CLIENT = "client"


@dataclass
class FaultContext(Generic[S]):
    """One injection as its fault sees it. `state` is what the fault's `before` returned."""

    cluster: Cluster
    nodes: list[str]
    mark: str
    """Unique for this injection: the name of what the fault leaves on the cluster, such as a toxic."""
    process: MarkedProcess | None = None
    state: S = field(init=False)

    @property
    def brokers(self) -> list[int]:
        """The ids of those nodes that are brokers."""
        return [b for b in self.cluster.broker_ids if self.cluster.name_of(b) in self.nodes]


class Fault(ABC, Generic[S]):
    """The description of a fault: a frozen dataclass whose fields are its parameters.

    The methods are called in this order: `before`, `undo_steps`, `apply`, `bite`, and `health` after the undo
    steps were carried out. S is the type of what `before` returns for the later methods.
    """

    name: ClassVar[str]
    capability: ClassVar[Capability]
    target_kind: ClassVar[TargetKind] = TargetKind.NODES
    moves_roles: ClassVar[bool] = False
    """Whether another node must take over the role that the target names."""
    allowed_on_external: ClassVar[bool] = False
    """Whether the file of an external cluster may allow it."""

    @classmethod
    def check_target(cls, target: Target) -> None:
        """Refuse a target that this fault cannot act on."""
        if cls.target_kind is TargetKind.CLIENT and target.client is None:
            hint = "write client(idempotent-1), or client(*) for any client"
            raise UsageError(f"{target!r} does not name a client, which {cls.name} needs", hint)
        if cls.target_kind is TargetKind.NODES and target.client is not None:
            hint = "write a node or a role, such as one or leader_of(orders, 0)"
            raise UsageError(f"{target!r} does not name nodes, which {cls.name} needs", hint)

    @abstractmethod
    def before(self, context: FaultContext[S]) -> S:
        """Measure the state without the fault, or raise NoBiteError if something is already broken."""

    @abstractmethod
    def undo_steps(self, context: FaultContext[S]) -> list[UndoStep]:
        """Return what undoes the fault. It is on disk before `apply` is called."""

    @abstractmethod
    def apply(self, context: FaultContext[S]) -> None:
        """Inject the fault."""

    @abstractmethod
    def bite(self, context: FaultContext[S]) -> Measured:
        """Measure that the fault took effect, or raise NoBiteError."""

    @abstractmethod
    def health(self, context: FaultContext[S]) -> Measured:
        """Measure that the effect has ended, or raise HealError or WaitTimeoutError."""


class Injection:
    """One injected fault. `start` returns only after a measured bite; `heal` may be called twice."""

    def __init__(
        self,
        cluster: Cluster,
        fault: Fault[Any],
        target: str | Target,
        *,
        process: MarkedProcess | None = None,
        journal: HistoryWriter | None = None,
        seed: int = 0,
    ) -> None:
        self.cluster = cluster
        self.fault = fault
        self.target = Target.parse(target)
        self.names: list[str] = []
        self.bite: Measured = {}
        self.health: Measured = {}
        self._process = process
        self._rng = random.Random(seed)
        self._journal = journal
        self._owns_journal = journal is None
        self._context: FaultContext[Any] | None = None
        self._intent_id: str | None = None
        self._undo_steps: list[UndoStep] = []

    @property
    def context(self) -> FaultContext[Any]:
        """What the fault acts on, once it was started."""
        assert self._context is not None
        return self._context

    def start(self) -> Self:
        """Inject. Without a bite the fault is healed and NoBiteError raised."""
        self.cluster.require(self.fault.capability)
        self.fault.check_target(self.target)
        if self.target.client is not None and self._process is None:
            raise UsageError(f"{self.fault.name} needs the process of {self.target}", "pass process=client")
        self.names = self.target.resolve(self.cluster, self._rng)
        # The mark is part of the undo steps, so it is drawn before the intent is written.
        mark = f"{self.fault.name}-{time.time_ns():x}"
        context = self._context = FaultContext[Any](self.cluster, self.names, mark, self._process)
        try:
            context.state = self.fault.before(context)
        except _UNREACHABLE as error:
            raise self._unmeasured("the state before", error) from error
        journal = self._write_intent()
        try:
            started = time.monotonic()
            self.fault.apply(context)
            self._measure(journal, started)
        except (NoBiteError, *_UNREACHABLE) as error:
            assert self._intent_id is not None
            journal.fault_no_bite(self._intent_id, describe_error(error))
            self.heal()
            if isinstance(error, NoBiteError):
                raise
            raise self._unmeasured("the bite of", error) from error
        except BaseException:
            self.heal()
            raise
        return self

    def heal(self) -> None:
        """Undo the fault and measure that its effect has ended; the second call does nothing."""
        if self._intent_id is None or self._journal is None:
            return
        try:
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

    @property
    def _described(self) -> str:
        return f"{self.fault.name} on {', '.join(self.names)}"

    def _write_intent(self) -> HistoryWriter:
        journal = self._journal = self._journal or open_journal(self.cluster.state)
        process = {"pid": self._process.pid, "mark": self._process.mark} if self._process else {}
        self._undo_steps = self.fault.undo_steps(self.context)
        self._intent_id = journal.fault_intent(
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
            "another fault may be in the way: `eos status` shows what is injected",
        )

    def _measure(self, journal: HistoryWriter, started: float) -> None:
        """Measure the bite and write it down, or raise NoBiteError."""
        assert self._intent_id is not None
        self.bite = self.fault.bite(self.context)
        self.bite |= self._role_move(started)
        journal.fault_bite(self._intent_id, self.bite)

    def _role_move(self, started: float) -> Measured:
        """Wait until another node has the role that the target names."""
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


def inject(cluster: Cluster, fault: Fault[Any], target: str | Target, **options: Any) -> Injection:
    """Return an injection for `with`: injected inside the block, healed and verified after it."""
    return Injection(cluster, fault, target, **options)
