"""A fault and its life: intent on disk, injection, measured bite, healing, measured health.

with inject(cluster, Jitter(latency_ms=200), "leader_of(orders, 0)") as injection:
    print(injection.bite)          # what was measured; no bite is an error
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

from harness.base.errors import HarnessError, HealError, NoBiteError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.targets import Target
from harness.evidence.history import HistoryWriter
from harness.faults.intents import open_journal
from harness.faults.undo import UndoStep, undo

ROLE_MOVES_LIMIT_S = 20.0
# What a measurement raises when the other side does not answer at all.
_UNREACHABLE = (OSError, EOFError)
Measured = dict[str, Any]


class Fault(Protocol):
    """A description: what is done, what undoes it, and how its effect is measured.

    The four methods are called in this order, each with the same resolved names. What they must remember
    between the calls (a connection that is to be cut, a pid that is to change) goes into `memory`.
    """

    name: ClassVar[str]
    capability: ClassVar[Capability]
    moves_roles: ClassVar[bool]

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:
        """What undoes it, known before it is done."""
        ...

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Measure the state without the fault, or fail: a fault on what is ailing proves nothing."""
        ...

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:
        """Do it."""
        ...

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """Measure that it took effect, or raise NoBiteError."""
        ...

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """Measure that the effect is gone, or raise HealError or WaitTimeoutError."""
        ...


class Injection:
    """One live fault: `start` injects and returns only with a bite, `heal` undoes it, twice if you like."""

    def __init__(
        self,
        cluster: Cluster,
        fault: Fault,
        target: str | Target,
        *,
        journal: HistoryWriter | None = None,
        seed: int = 0,
    ) -> None:
        self.cluster = cluster
        self.fault = fault
        self.target = target if isinstance(target, Target) else Target.parse(target)
        self.names: list[str] = []
        self.bite: Measured = {}
        self.health: Measured = {}
        self._rng = random.Random(seed)
        self._journal = journal
        self._owns_journal = journal is None
        self._memory: Measured = {}
        self._ident: str | None = None
        self._steps: list[UndoStep] = []

    def start(self) -> Self:
        """Inject; without a bite the injection is healed and NoBiteError raised."""
        self.cluster.require(self.fault.capability)
        self.names = self.target.resolve(self.cluster, self._rng)
        try:
            self.fault.before(self.cluster, self.names, self._memory)
        except _UNREACHABLE as error:
            raise self._unmeasured("the state before", error) from error
        journal = self._journal = self._journal or open_journal(self.cluster.state)
        # The id is part of what undoes it (a toxic carries it), so it is drawn before the intent is written.
        mark = f"{self.fault.name}-{time.time_ns():x}"
        self._steps = self.fault.undo_steps(self.names, mark)
        self._ident = journal.fault_intent(
            self.fault.name,
            self.target.text,
            self.names,
            params=_parameters(self.fault),
            undo={"steps": [dict(step) for step in self._steps]},
        )
        try:
            started = time.monotonic()
            self.fault.apply(self.cluster, self.names, self._memory, mark)
            self._measure(journal, started)
        except NoBiteError as error:
            journal.fault_no_bite(self._ident, error.message)
            self.heal()
            raise
        except _UNREACHABLE as error:
            journal.fault_no_bite(self._ident, f"{type(error).__name__}: {error}")
            self.heal()
            raise self._unmeasured("the bite of", error) from error
        except BaseException:
            self.heal()
            raise
        return self

    def heal(self) -> None:
        """Undo and verify; a second time is harmless."""
        if self._ident is None or self._journal is None:
            return
        try:
            undo(self.cluster, self._steps)
            self.health = self.fault.health(self.cluster, self.names, self._memory)
        except (HarnessError, *_UNREACHABLE) as error:
            said = error.message if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
            self._journal.fault_heal_failed(self._ident, said)
            raise HealError(
                f"{self.fault.name} on {', '.join(self.names)} was undone and is not over: {said}",
                "`eos heal` tries again, `eos status` shows what ails the cluster",
            ) from error
        self._journal.fault_healed(self._ident, self.health)
        self._ident = None
        if self._owns_journal:
            self._journal.close()

    def _unmeasured(self, what: str, error: Exception) -> NoBiteError:
        return NoBiteError(
            f"{what} {self.fault.name} on {', '.join(self.names)} could not be measured: {error}",
            "another fault may be in the way: `eos status` shows what is injected",
        )

    def _measure(self, journal: HistoryWriter, started: float) -> None:
        """Measure the bite and note it, or raise NoBiteError."""
        assert self._ident is not None
        self.bite = self.fault.bite(self.cluster, self.names, self._memory)
        self.bite |= self._role_move(started)
        journal.fault_bite(self._ident, self.bite)

    def _role_move(self, started: float) -> Measured:
        """Who holds the role that the target names, once it is somebody else."""
        role = self.target.role(self.cluster)
        if role is None or not self.fault.moves_roles:
            return {}
        try:
            holder = wait_until(
                lambda: name if (name := self.cluster.name_of(role())) not in self.names else "",
                ROLE_MOVES_LIMIT_S,
                f"{self.target.text} to be another node than {self.names[0]}",
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


def inject(cluster: Cluster, fault: Fault, target: str | Target, **options: Any) -> Injection:
    """An injection for `with`: live inside the block, healed and verified after it."""
    return Injection(cluster, fault, target, **options)


def _parameters(fault: Fault) -> Measured:
    return asdict(fault)  # type: ignore[call-overload,no-any-return]
