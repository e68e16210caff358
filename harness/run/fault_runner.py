"""Execution of a plan: inject each fault, wait for its duration, and heal it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from harness.app.instance import AppInstance
from harness.base.errors import HarnessError, HealError, TargetEndedError
from harness.base.events import Event, Healed, Injected, NoBite
from harness.clients.client_process import ClientProcess
from harness.cluster.cluster import Cluster
from harness.cluster.targets import Target
from harness.evidence.history import HistoryWriter
from harness.faults.app_faults import EndedApp
from harness.faults.client_faults import EndedClient
from harness.faults.injection import Fault, Injection
from harness.run.app_runner import LOOK_S, RESTART_LIMIT_S, AppRunner
from harness.run.fleet import Fleet
from harness.run.monitor import Monitor
from harness.scenario import make_fault
from harness.scenario.plan import Plan, PlannedFault

Pause = Callable[[float], None]


class _Chosen(NamedTuple):
    """The target of an injection, and the client or the instance that it names."""

    target: Target
    client: ClientProcess | None = None
    instance: AppInstance | None = None


class FaultRunner:
    """Runner of one plan; it records which of its injections are active."""

    def __init__(
        self,
        cluster: Cluster,
        fleet: Fleet,
        journal: HistoryWriter,
        monitor: Monitor,
        emit: Callable[[Event], None],
        *,
        app: AppRunner | None = None,
    ) -> None:
        self._cluster = cluster
        self._fleet = fleet
        self._app = app
        self._journal = journal
        self._monitor = monitor
        self._emit = emit
        self._active: list[tuple[Injection, ClientProcess | AppInstance | None]] = []

    def carry_out(self, plan: Plan, pause: Pause) -> None:
        """Carry out the plan.

        First inject the faults that last for the whole plan (`throughout`). Then inject and heal the other
        faults one after another. At the end, heal every fault that is still active.
        """
        start = time.monotonic()
        for step in plan.throughout:
            self._inject(step, pause)
        for step in plan.steps:
            pause(start + step.at - time.monotonic())
            if injection := self._inject(step, pause):
                pause(step.lasts)
                self._heal(injection)
        pause(start + plan.duration - time.monotonic())
        self.heal_all()

    def heal_all(self) -> None:
        """Heal every active fault, the newest first. Continue after a fault that cannot be healed."""
        failures = []
        for injection, _ in reversed(self._active.copy()):
            try:
                self._heal(injection)
            except HarnessError as error:
                failures.append(error.message)
        if failures:
            raise HealError("; ".join(failures), "`eos heal` tries again")

    def _inject(self, step: PlannedFault, pause: Pause) -> Injection | None:
        fault, started = make_fault(step.entry), time.monotonic()
        deadline = started + RESTART_LIMIT_S
        while True:
            chosen = _Chosen(step.entry.target)
            try:
                chosen = self._choose(step, fault)
                injection = self._injection(step, fault, chosen).start()
                break
            except TargetEndedError as error:
                if self._app is not None and chosen.instance is not None:
                    self._app.unhold(chosen.instance)
                if time.monotonic() < deadline:
                    pause(LOOK_S)  # the instance is restarted then, or another one runs
                    continue
                self._emit(NoBite(fault=step.entry.fault, reason=error.message))
                return None
            except HarnessError as error:
                self._release(chosen.instance, fault)
                # A fault that does not bite does not end the run: the verdict reports that fewer faults were
                # injected than planned.
                self._emit(NoBite(fault=step.entry.fault, reason=error.message))
                return None
        self._active.append((injection, chosen.client or chosen.instance))
        if chosen.client is not None and isinstance(injection.fault, EndedClient):
            self._fleet.note_fault(chosen.client, injection.ident)
        if self._app and chosen.instance is not None and isinstance(injection.fault, EndedApp):
            self._app.note_fault(chosen.instance, injection.ident)
        self._update_monitor()
        took = time.monotonic() - started
        self._emit(Injected(fault=step.entry.fault, names=injection.names, bite=injection.bite, took_s=took))
        return injection

    def _choose(self, step: PlannedFault, fault: Fault[Any]) -> _Chosen:
        target = step.entry.target
        if target.client is not None:
            client = self._fleet.choose(target.client, step.seed)
            return _Chosen(Target.parse(f"client({client.spec.client})"), client=client)
        if target.app is not None and self._app is not None:
            instance = self._app.choose(target.app, step.seed)
            if isinstance(fault, EndedApp):
                self._app.hold(instance)
            return _Chosen(Target.parse(f"app({instance.name})"), instance=instance)
        return _Chosen(target)

    def _injection(self, step: PlannedFault, fault: Fault[Any], chosen: _Chosen) -> Injection:
        return Injection(
            self._cluster,
            fault,
            chosen.target,
            process=chosen.client or chosen.instance,
            app=self._app.control if self._app else None,
            journal=self._journal,
            seed=step.seed,
        )

    def _heal(self, injection: Injection) -> None:
        started = time.monotonic()
        index = next(i for i, (active, _) in enumerate(self._active) if active is injection)
        injection.heal()
        # Remove the injection from the list only after it was healed. If healing fails, the injection stays
        # in the list, and the next attempt heals it again.
        _, process = self._active.pop(index)
        if isinstance(process, ClientProcess) and isinstance(injection.fault, EndedClient):
            self._fleet.replace(process)
        self._release(process, injection.fault)
        self._update_monitor()
        took = time.monotonic() - started
        name = injection.fault.name
        self._emit(Healed(fault=name, names=injection.names, health=injection.health, took_s=took))

    def _release(self, process: ClientProcess | AppInstance | None, fault: Fault[Any]) -> None:
        """Start an instance of the application again that the fault has ended."""
        if self._app and isinstance(process, AppInstance) and isinstance(fault, EndedApp):
            self._app.release(process)

    def _update_monitor(self) -> None:
        self._monitor.active = [f"{i.fault.name}({','.join(i.names)})" for i, _ in self._active]
