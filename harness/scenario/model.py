"""What a scenario is: what the clients do, what is done to the cluster, what must hold."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from harness.base.units import Duration, Size, Span
from harness.clients.client_spec import Positions
from harness.cluster.backend import Capability
from harness.cluster.broker_settings import Profile
from harness.faults.catalogue import CLIENT_FAULTS, FAULTS


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a scenario shows and what to expect of it."""

    name: str
    shows: str
    expect: Literal["valid", "invalid", "unknown"] = "valid"
    # What must be found where the expected verdict is invalid.
    anomalies: list[str] = []


class ClusterNeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the scenario needs of the cluster."""

    profile: Profile = "quick"


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Some clients of one kind; what a kind does not use is an error."""

    kind: Literal["idempotent", "transactional", "pipeline", "reader"]
    clients: int = 1
    topic: str = "orders"
    partitions: int = 3
    rate: int = 1000
    burst: int = 50
    payload: Size = Size(64)
    transaction: tuple[int, int] = (10, 100)
    abort_share: float = 0.1
    transaction_timeout: Duration = Duration(20)
    end_discipline: Literal["reinit", "naive"] = "reinit"
    idempotence: bool = True
    source: str = ""
    group: str = ""
    group_metadata: bool = True
    work: Duration = Duration(0)  # how long a worker takes between its last output and its positions
    transactions: bool = True
    changelog: str = ""  # a stateful pipeline's compacted topic of counts and sums by key
    positions: Positions = "inside"
    protocol: Literal["classic", "consumer"] = "classic"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    settings: dict[str, str | int | float | bool] = {}


USED_BY = {
    "idempotent": {"topic", "partitions", "rate", "burst", "payload", "idempotence"},
    "transactional": {
        "topic",
        "partitions",
        "rate",
        "payload",
        "transaction",
        "abort_share",
        "transaction_timeout",
        "end_discipline",
    },
    "pipeline": {
        "source",
        "topic",
        "partitions",
        "group",
        "transaction",
        "abort_share",
        "transaction_timeout",
        "end_discipline",
        "group_metadata",
        "transactions",
        "protocol",
        "work",
        "changelog",
        "positions",
    },
    "reader": {"topic", "isolation", "group"},
}
USED_BY_ALL = {"kind", "clients", "settings"}


class FaultEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of injection: how the plan draws it, and the fault's own parameters."""

    fault: str
    target: str
    lasts: Span = Span(5, 5)
    at: Duration | None = None
    throughout: bool = False
    weight: float = 1.0
    parameters: dict[str, Any] = {}

    @property
    def capability(self) -> Capability:
        """What the back end must be capable of for this fault."""
        capability: Capability = {**FAULTS, **CLIENT_FAULTS}[self.fault].capability
        return capability


class PlanRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the timetable is drawn."""

    steady: Duration = Duration(5)
    duration: Duration = Duration(30)
    gap: Span = Span(2, 5)


class WalkthroughPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A walkthrough replaces workloads and plan: it has its own clients and injects its own faults."""

    steps: str
    topic: str = "orders"
    # Input topic and consumer group of the walkthrough's application, if it has one.
    source: str = ""
    group: str = ""
    tries: int = 1  # number of attempts per case, for walkthroughs that repeat cases
    libraries: list[str] = []  # client libraries to compare, for walkthroughs that compare them
    transaction_timeout: Duration = Duration(60)  # the longest of its producers


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds on how well the run goes; they are judged apart from safety."""

    recovery: Duration = Duration(60)


class Verify(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who reads the topics back."""

    witnesses: list[Literal["reader", "raw-log", "spark"]] = msgspec.field(
        default_factory=lambda: ["spark", "reader"]
    )
    frames: bool = False  # clients pass the wire tap, and its log is kept


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole scenario."""

    scenario: Header
    cluster: ClusterNeeds = ClusterNeeds()
    workload: list[Workload] = []
    walkthrough: WalkthroughPart | None = None
    plan: PlanRules = PlanRules()
    fault: list[FaultEntry] = []
    limits: Limits = Limits()
    verify: Verify = Verify()

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self.scenario.name

    @property
    def changelogs(self) -> dict[str, str]:
        """The changelogs of its stateful pipelines, and whose aggregates each has: those of which source."""
        return {w.changelog: w.source for w in self.workload if w.changelog}

    @property
    def written_topics(self) -> list[str]:
        """Every topic that its clients write."""
        written = {w.topic for w in self.workload if w.kind != "reader"} | set(self.changelogs)
        shown = {self.walkthrough.topic, self.walkthrough.source} - {""} if self.walkthrough else set()
        return sorted(written | shown)
