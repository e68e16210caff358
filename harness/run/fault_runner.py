"""Carries out a plan: every step injected, left to last, healed; whatever happens, nothing stays injected."""

from __future__ import annotations

import time
from collections.abc import Callable

from harness.base.errors import HarnessError, HealError
from harness.base.events import Event, Healed, Injected, NoBite
from harness.clients.client_process import ClientProcess
from harness.cluster.cluster import Cluster
from harness.evidence.history import HistoryWriter
from harness.faults.catalogue import CLIENT_FAULTS
from harness.faults.client_faults import EndedClient
from harness.faults.injection import Injection
from harness.run.fleet import Fleet
from harness.run.monitor import Monitor
from harness.scenario import make_fault
from harness.scenario.plan import Plan, PlannedFault

Pause = Callable[[float], None]


class FaultRunner:
    """The injections of one run."""

    def __init__(
        self,
        cluster: Cluster,
        fleet: Fleet,
        journal: HistoryWriter,
        watch: Monitor,
        tell: Callable[[Event], None],
    ) -> None:
        self._cluster = cluster
        self._fleet = fleet
        self._journal = journal
        self._watch = watch
        self._tell = tell
        self._live: list[tuple[Injection, ClientProcess | None]] = []

    def carry_out(self, plan: Plan, pause: Pause) -> None:
        """Inject what lasts throughout, then the steps one after the other, then heal what lasted."""
        start = time.monotonic()
        for step in plan.throughout:
            self._inject(step)
        for step in plan.steps:
            pause(start + step.at - time.monotonic())
            if injection := self._inject(step):
                pause(step.lasts)
                self._heal(injection)
        pause(start + plan.duration - time.monotonic())
        self.heal_all()

    def heal_all(self) -> None:
        """Heal what is still injected, the newest first; one that will not heal keeps no other from it."""
        failed = []
        for injection, _ in reversed(self._live.copy()):
            try:
                self._heal(injection)
            except HarnessError as error:
                failed.append(error.message)
        if failed:
            raise HealError("; ".join(failed), "`eos heal` tries again")

    def _inject(self, step: PlannedFault) -> Injection | None:
        started = time.monotonic()
        client = None
        try:
            if step.entry.fault in CLIENT_FAULTS:
                client = self._fleet.choose(step.entry.target[len("client(") : -1], step.seed)
                fault = CLIENT_FAULTS[step.entry.fault](pid=client.pid, mark=client.mark)
                target = f"client({client.spec.client})"
            else:
                fault, target = make_fault(step.entry), step.entry.target
            injection = Injection(self._cluster, fault, target, journal=self._journal, seed=step.seed).start()
        except HarnessError as error:
            # A fault without effect is no reason to end the run: the verdict says that it proves less.
            self._tell(NoBite(fault=step.entry.fault, reason=error.message))
            return None
        self._live.append((injection, client))
        self._watch.active = [self._name(one) for one, _ in self._live]
        took = time.monotonic() - started
        self._tell(Injected(fault=step.entry.fault, names=injection.names, bite=injection.bite, took_s=took))
        return injection

    def _heal(self, injection: Injection) -> None:
        started = time.monotonic()
        index = next(i for i, (one, _) in enumerate(self._live) if one is injection)
        injection.heal()
        # Only now: what would not heal is still injected, and whoever heals next must find it.
        _, client = self._live.pop(index)
        if client is not None and isinstance(injection.fault, EndedClient):
            self._fleet.replace(client)
        self._watch.active = [self._name(one) for one, _ in self._live]
        took = time.monotonic() - started
        name = injection.fault.name
        self._tell(Healed(fault=name, names=injection.names, health=injection.health, took_s=took))

    @staticmethod
    def _name(injection: Injection) -> str:
        return f"{injection.fault.name}({','.join(injection.names)})"
