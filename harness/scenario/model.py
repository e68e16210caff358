"""Model of a scenario file: its clients, faults, expected verdict and limits."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from harness.app.app_spec import AppSpec
from harness.base.units import Duration, Size, Span
from harness.clients.client_spec import Positions
from harness.cluster.backend import Capability
from harness.cluster.broker_settings import Profile
from harness.cluster.targets import Target
from harness.evidence.checkers.model import STALL_MS
from harness.faults.catalogue import fault_class
from harness.scenario.app_parts import InputPart, OutputPart
from harness.scenario.headline import Header, PlanRules


class ClusterNeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Table [cluster]: the cluster that the scenario needs."""

    profile: Profile = "quick"
    kafka: str = ""
    """Version of Kafka, such as "4.1.2". Empty: that of a running cluster, or else the default version."""
    internal_tap: bool = False
    """Whether the brokers must reach each other through a wire tap. Faults on frames between them need it."""


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table [[workload]]: one or more clients of the same kind.

    A key that this kind of client does not use is an error.
    """

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
    end_discipline: Literal["reinit", "always", "naive"] = "reinit"
    # Without an acknowledgement after this time, the producer aborts with requests in flight. 0: it waits.
    delivery_limit: Duration = Duration(0)
    idempotence: bool = True
    source: str = ""
    group: str = ""
    group_metadata: bool = True
    work: Duration = Duration(0)  # time between a pipeline worker's last output and its offset commit
    transactions: bool = True
    changelog: str = ""  # topic for the state of a stateful pipeline: counts and sums by key
    positions: Positions = "inside"
    protocol: Literal["classic", "consumer"] = "classic"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    settings: dict[str, str | int | float | bool] = {}
    planted_bug: str = ""  # bug that the clients have on purpose, to show that the checkers notice it


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
        "delivery_limit",
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
USED_BY_ALL = {"kind", "clients", "settings", "planted_bug"}


class FaultEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Table [[fault]]: a fault with its parameters and target.

    It also contains the time, the duration and the weight (relative frequency) of the fault's injections.
    """

    fault: str
    target: Target
    lasts: Span = Span(5, 5)
    at: Duration | None = None
    throughout: bool = False
    weight: float = 1.0
    parameters: dict[str, Any] = {}

    @property
    def capability(self) -> Capability:
        """Capability that the cluster must have for this fault, such as freezing a node."""
        return fault_class(self.fault).capability


class WalkthroughPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table [walkthrough]: the walkthrough that the scenario runs instead of workloads and a plan.

    A walkthrough has its own clients and injects its own faults.
    """

    steps: str
    topic: str = "orders"
    # `source` and `group` are the input topic and the consumer group of the application that the walkthrough
    # shows. Both are empty if the walkthrough has no application.
    source: str = ""
    group: str = ""
    tries: int = 1  # number of attempts per case, for walkthroughs that repeat their cases
    control_tries: int | None = None  # the same for controls, cures and further cases, if it differs
    libraries: list[str] = []  # client libraries that the walkthrough compares; empty if it compares none
    transaction_timeout: Duration = Duration(60)  # longest transaction timeout of the walkthrough's producers


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Table [limits]: performance limits of the run. They are checked separately from correctness."""

    recovery: Duration = Duration(60)

    @property
    def stall(self) -> float:
        """Seconds after which a wait for an answer, or for the application, is the anomaly `stalled`.

        A longer limit of recovery permits longer waits. A shorter one does not: clients may wait until their
        time-outs, so exceeding it is a breached limit and no anomaly.
        """
        return max(STALL_MS / 1000, self.recovery)


class Verify(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Table [verify]: the witnesses that read the topics, and what a run records besides."""

    witnesses: list[Literal["reader", "raw-log", "spark"]] = msgspec.field(
        default_factory=lambda: ["spark", "reader", "raw-log"]
    )
    frames: bool = False  # connect clients through the wire tap, and keep the tap's log
    metrics: bool = False  # sample the metrics of brokers and clients


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole scenario file. Each field is one of its tables."""

    scenario: Header
    cluster: ClusterNeeds = ClusterNeeds()
    workload: list[Workload] = []
    walkthrough: WalkthroughPart | None = None
    app: AppSpec | None = None
    input: list[InputPart] = []
    output: list[OutputPart] = []
    plan: PlanRules = PlanRules()
    fault: list[FaultEntry] = []
    limits: Limits = Limits()
    verify: Verify = Verify()

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def changelogs(self) -> dict[str, str]:
        """Changelog topics of the stateful pipelines.

        Each changelog topic is mapped to the input topic whose records the pipeline aggregates in it.
        """
        return {w.changelog: w.source for w in self.workload if w.changelog}

    @property
    def written_topics(self) -> list[str]:
        """Names of all topics to which the scenario's clients, or its application, write."""
        written = {w.topic for w in self.workload if w.kind != "reader"} | set(self.changelogs)
        shown = {self.walkthrough.topic, self.walkthrough.source} - {""} if self.walkthrough else set()
        return sorted(written | shown | set(self.app_topics))

    @property
    def rate(self) -> int:
        """Records that all producers, or the inputs of the application, should write each second."""
        producers = [w for w in self.workload if w.kind in ("idempotent", "transactional")]
        return sum(w.rate * w.clients for w in producers) + sum(part.rate for part in self.input)

    @property
    def app_topics(self) -> dict[str, int]:
        """Topics of the application under test, with their numbers of partitions."""
        return {part.topic: part.partitions for part in self.input} | {
            part.topic: part.partitions for part in self.output if part.is_topic
        }
