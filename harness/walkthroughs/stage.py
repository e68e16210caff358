"""The stage of a walkthrough: a cluster with a topic, scripted clients, and faults that are always healed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.base.events import Event
from harness.clients.client_settings import Value
from harness.clients.scripted.idempotent_producer import IdempotentProducer
from harness.clients.scripted.scripted_clients import ScriptedClients
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.client_list import ClientListWriter
from harness.evidence.history import HistoryWriter
from harness.evidence.step_report import WalkthroughStep
from harness.faults import ArmedFrameFault, Fault, Injection
from harness.faults.injection import ArmedInjection
from harness.provision.kafka_versions import KafkaFeature
from harness.report.diagram.sequence import read_log
from harness.tap.frame_lines import Line
from harness.tap.tap_client import ensure_tap

OPEN_LIMIT_S: Final = 60.0
"""Transaction time-out of producers in seconds. It is long, because several steps inspect one open
transaction.
"""


@dataclass(frozen=True)
class Walkthrough:
    """Definition of a walkthrough: step titles, topic layout, clients in the sequence diagram, and code."""

    titles: Sequence[str]
    placement: Sequence[Sequence[int]]
    """The replicas of each partition of the walkthrough's topic, leader first."""
    drawn: Sequence[str]
    """Names of the clients that the sequence diagram shows."""
    steps: Callable[[Stage], Iterator[WalkthroughStep]]
    """Generator that carries out one step after the other."""
    drops_packets: bool = False
    """Whether it loses packets between brokers, which is not possible on every cluster."""
    needs: frozenset[KafkaFeature] = frozenset()
    """What the version of Kafka must support."""


@dataclass
class Stage:
    """The cluster, topic, clients and faults of one run of a walkthrough."""

    cluster: Cluster
    topic: str
    partitions: int
    run: str
    directory: Path
    journal: HistoryWriter
    source: str = ""
    group: str = ""
    tries: int = 1
    """Number of attempts per case, for walkthroughs that repeat cases."""
    control_tries: int = 1
    """Number of attempts per control, cure and further case, such as a second means without the wire tap."""
    libraries: list[str] = field(default_factory=list)
    """The client libraries that a walkthrough compares."""
    client_list: ClientListWriter | None = None
    """The file of the run that lists all clients and their ends."""
    emit: Callable[[Event], None] | None = None
    """Receives the events of the faults."""
    transactional_ids: list[str] = field(default_factory=list)
    """The transactional ids whose coordinator decisions the sequence diagram shows."""
    _injections: list[Injection] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Clients use the TAPPED listener, so that every frame passes through the wire tap, which logs it.
        self.clients = ScriptedClients(
            self.run, self.cluster.bootstrap("TAPPED"), self.histories, client_list=self.client_list
        )

    @property
    def histories(self) -> Path:
        """The directory of the clients' histories."""
        return self.directory / "history"

    def idempotent(self, name: str, **settings: Value) -> IdempotentProducer:
        """Return a new idempotent producer of the walkthrough's topic."""
        return self.clients.idempotent(name, self.topic, self.partitions, settings=settings)

    def inject(self, fault: Fault[Any], target: str) -> Injection:
        """Return an injection of a fault.

        Use it in a `with` block, or call its methods `start` and `heal`.
        """
        return self._keep(Injection(self.cluster, fault, target, journal=self.journal, emit=self.emit))

    def arm(self, fault: Fault[Any], target: str = "all") -> ArmedFrameFault:
        """Return an injection of a frame fault, for use in a `with` block.

        The fault is armed when the block begins, and then waits for a matching frame.
        """
        armed = ArmedFrameFault(self.cluster, fault, target, journal=self.journal, emit=self.emit)
        self._keep(armed)
        return armed

    def arm_injection(self, fault: Fault[Any], target: str) -> ArmedInjection:
        """Return an injection of any fault, for use in a `with` block, that does not wait for the bite.

        The bite is measured at the end of the block.
        """
        armed = ArmedInjection(self.cluster, fault, target, journal=self.journal, emit=self.emit)
        self._keep(armed)
        return armed

    def frames(self) -> list[Line]:
        """Return every frame of clients that has passed the wire tap."""
        return self._frames(BrokerListener.TAPPED)

    def internal_frames(self) -> list[Line]:
        """Return every frame between brokers that has passed the wire tap of the listener INTERNAL."""
        return self._frames(BrokerListener.INTERNAL)

    def _frames(self, listener: BrokerListener) -> list[Line]:
        tap = ensure_tap(self.cluster, listener)
        tap.flush()
        return read_log(self.directory / tap.log_name)

    def heal(self) -> None:
        """Heal every fault, the newest first. A second call is harmless."""
        for injection in reversed(self._injections):
            injection.heal()
        self._injections.clear()

    def close(self) -> None:
        """Close every client and its history."""
        self.clients.close()

    def _keep(self, injection: Injection) -> Injection:
        self._injections.append(injection)
        return injection
