"""What every flow has: a stage to act on, and the document that is made of it afterwards."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from harness.cluster.cluster import Cluster
from harness.faults import Expectation, Fault, Injection
from harness.flows.actor import Actor
from harness.history import HistoryWriter
from harness.narrative import FlowStep
from harness.tap.client import LOG_NAME, ensure_tap
from harness.tap.lines import Line
from harness.tap.steps import read_log
from harness.workload.settings import Value

FLOWS: Final = {"idempotent": "harness.flows.idempotent"}


class Flow(Protocol):
    """The module of a flow."""

    TITLES: Sequence[str]
    """The steps, in words."""
    PLACEMENT: Sequence[Sequence[int]]
    """The replicas of each partition of its topic, leader first."""
    DRAWN: Sequence[str]
    """The clients that its diagram shows."""

    def steps(self, stage: Stage) -> Iterator[FlowStep]:
        """Carry out one step after the other."""
        ...


def flow_of(name: str) -> Flow:
    """The module of a flow, by the name that a scenario gives it."""
    module: Flow = importlib.import_module(FLOWS[name])
    return module


@dataclass
class Stage:
    """A cluster and a topic, producers that act when told, faults that are healed at the end at latest."""

    cluster: Cluster
    topic: str
    partitions: int
    run: str
    directory: Path
    journal: HistoryWriter
    _actors: list[Actor] = field(default_factory=list)
    _injections: list[Injection] = field(default_factory=list)

    def actor(self, name: str, **settings: Value) -> Actor:
        """A new producer, whose frames pass the wire tap."""
        made = Actor(
            run=self.run, name=name, number=len(self._actors) + 1, bootstrap=self.cluster.bootstrap("TAPPED"),
            topic=self.topic, partitions=self.partitions, histories=self.directory / "history",
            settings={key.replace("_", "."): value for key, value in settings.items()},
        )  # fmt: skip
        self._actors.append(made)
        return made

    def inject(self, fault: Fault, target: str) -> Injection:
        """A fault of this run; for `with`, or to be started and healed by hand."""
        return self._noted(Injection(self.cluster, fault, target, journal=self.journal))

    def expect(self, fault: Fault, target: str = "all") -> Expectation:
        """A fault of a single frame that has still to come."""
        made = Expectation(self.cluster, fault, target, journal=self.journal)
        self._noted(made)
        return made

    def frames(self) -> list[Line]:
        """Everything that has passed the tap so far."""
        ensure_tap(self.cluster).flush()
        return read_log(self.directory / LOG_NAME)

    def heal(self) -> None:
        """Heal what is still injected, the newest first; twice is harmless."""
        for injection in reversed(self._injections):
            injection.heal()
        self._injections.clear()

    def close(self) -> None:
        """End the producers' histories."""
        for actor in self._actors:
            actor.close()
        self._actors.clear()

    def _noted(self, injection: Injection) -> Injection:
        self._injections.append(injection)
        return injection
