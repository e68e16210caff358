"""What every flow has: a stage to act on, and the document that is made of it afterwards."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from harness.base.closing import Closing
from harness.clients.client_settings import Value
from harness.clients.scripted.idempotent_actor import Actor
from harness.clients.scripted.source_actor import SourceActor
from harness.clients.scripted.transactional_actor import TransactionalActor
from harness.cluster.cluster import Cluster
from harness.evidence.history import HistoryWriter
from harness.evidence.step_report import WalkthroughStep
from harness.faults import ArmedFrameFault, Fault, Injection
from harness.report.diagram.sequence import read_log
from harness.tap.frame_lines import Line
from harness.tap.tap_client import LOG_NAME, ensure_tap

FLOWS: Final = {
    "idempotent": "harness.walkthroughs.idempotent_steps",
    "transactional": "harness.walkthroughs.transactional_steps",
    "delayed_endtxn": "harness.walkthroughs.delayed_endtxn",
    "endtxn_control": "harness.walkthroughs.endtxn_control",
    "skipped_marker": "harness.walkthroughs.skipped_marker",
    "skipped_clients": "harness.walkthroughs.skipped_clients",
}


OPEN_LIMIT_S: Final = 60.0
"""How long a transaction may be open: several steps look at it, on a busy machine too."""
C = TypeVar("C", bound=Closing)


class Walkthrough(Protocol):
    """The module of a flow."""

    TITLES: Sequence[str]
    """The steps, in words."""
    PLACEMENT: Sequence[Sequence[int]]
    """The replicas of each partition of its topic, leader first."""
    DRAWN: Sequence[str]
    """The clients that its diagram shows."""

    def steps(self, stage: Stage) -> Iterator[WalkthroughStep]:
        """Carry out one step after the other."""
        ...


def walkthrough_of(name: str) -> Walkthrough:
    """The module of a flow, by the name that a scenario gives it."""
    module: Walkthrough = importlib.import_module(FLOWS[name])
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
    source: str = ""
    group: str = ""
    tries: int = 1
    """How often a flow makes each of its tries, where it makes tries."""
    libraries: list[str] = field(default_factory=list)
    """The client libraries that a flow compares, where it compares some."""
    transactional_ids: list[str] = field(default_factory=list)
    """Whose decisions its diagram shows."""
    _actors: list[Closing] = field(default_factory=list)
    _injections: list[Injection] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        """The door through which every client's frames pass the wire tap."""
        return self.cluster.bootstrap("TAPPED")

    @property
    def histories(self) -> Path:
        """Where clients write their histories."""
        return self.directory / "history"

    def actor(self, name: str, topic: str | None = None, partitions: int = 1, **settings: Value) -> Actor:
        """A new producer of the flow's topic, or of another."""
        made = Actor(
            run=self.run,
            name=name,
            number=self.number(),
            bootstrap=self.bootstrap,
            topic=topic or self.topic,
            partitions=partitions if topic else self.partitions,
            histories=self.histories,
            settings={key.replace("_", "."): value for key, value in settings.items()},
        )
        return self.keep(made)

    def transactional(self, name: str, transactional_id: str, **settings: Value) -> TransactionalActor:
        """A new transactional producer of the flow's topic, that trusts the client library with its ends."""
        made = TransactionalActor(
            run=self.run,
            name=name,
            number=self.number(),
            bootstrap=self.bootstrap,
            topic=self.topic,
            partitions=self.partitions,
            transactional_id=transactional_id,
            histories=self.histories,
            discipline="naive",
            timeout_s=OPEN_LIMIT_S,
            settings={key.replace("_", "."): value for key, value in settings.items()},
        )
        return self.keep(made)

    def reading(self, name: str) -> SourceActor:
        """A new member of the flow's group, that reads its source."""
        made = SourceActor(
            run=self.run,
            name=name,
            number=self.number(),
            bootstrap=self.bootstrap,
            source=self.source,
            group=self.group,
            histories=self.histories,
        )
        return self.keep(made)

    def number(self) -> int:
        """The number of the next client."""
        return len(self._actors) + 1

    def keep(self, client: C) -> C:
        """Close this client when the flow ends."""
        self._actors.append(client)
        return client

    def inject(self, fault: Fault[Any], target: str) -> Injection:
        """A fault of this run; for `with`, or to be started and healed by hand."""
        return self._noted(Injection(self.cluster, fault, target, journal=self.journal))

    def expect(self, fault: Fault[Any], target: str = "all") -> ArmedFrameFault:
        """A fault of a single frame that has still to come."""
        made = ArmedFrameFault(self.cluster, fault, target, journal=self.journal)
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
        """End the clients' histories."""
        for actor in self._actors:
            actor.close()
        self._actors.clear()

    def _noted(self, injection: Injection) -> Injection:
        self._injections.append(injection)
        return injection
