"""Model of a cluster file, which describes an external cluster and limits what the harness may do with it."""

from __future__ import annotations

import msgspec

from harness.base.units import Duration, Rate, Size
from harness.cluster.backend import Capability
from harness.kafka.security import PLAINTEXT, Security

NODE_CAPABILITIES = (Capability.KILL, Capability.STOP, Capability.PAUSE)
START = "start"
TRANSACTION_LOG, OFFSETS_LOG, NODE_LOGS = "__transaction_state", "__consumer_offsets", "nodes"
LOGS = (TRANSACTION_LOG, OFFSETS_LOG, NODE_LOGS)
UNDONE_BY = {"kill": "start", "stop": "start", "pause": "resume"}
VERBS = ("kill", "stop", "start", "pause", "resume")


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base class of the structs of a cluster file. A key that the struct does not define is an error."""


class ClusterPart(Part, frozen=True, kw_only=True):
    """Table [cluster]: cluster id, bootstrap servers, and prefix of every name that the harness creates."""

    id: str
    bootstrap: list[str]
    prefix: str


class TopicsPart(Part, frozen=True, kw_only=True):
    """Table [topics]: settings of the topics that a run creates."""

    replication: int = 3
    min_insync: int = 2


class FaultsPart(Part, frozen=True, kw_only=True):
    """Table [faults]: the permitted faults, and the maximum number of nodes under a fault at one time."""

    allowed: list[str] = []
    most_targets: int = 1


class LimitsPart(Part, frozen=True, kw_only=True):
    """Table [limits]: the limits of a run.

    The harness refuses a run that would exceed a limit. It stops a run that exceeds one.
    """

    deadline: Duration
    bytes_per_second: Rate
    storage: Size
    abort_file: str
    foreign_under_replicated: int = 0


class LinksPart(Part, frozen=True, kw_only=True):
    """Table [links]: the Toxiproxy between clients and brokers.

    The key `toxiproxy` is "start" if the harness is to start it, or the address of the user's own Toxiproxy.
    """

    toxiproxy: str


class ProxyPart(Part, frozen=True, kw_only=True):
    """Table [[proxy]]: the Toxiproxy proxy in front of one broker.

    The proxy listens at the address `listen`. The broker must advertise this address to the clients under
    test.
    """

    broker: int
    listen: str
    upstream: str = ""
    name: str = ""


class NodesPart(Part, frozen=True, kw_only=True):
    """Table [nodes]: the means by which the harness kills, stops, starts, pauses and resumes brokers.

    It contains either a label that finds each broker's Docker container, or commands of the user.
    """

    docker_label: str = ""
    hosts: dict[str, str] = {}
    kill: str = ""
    stop: str = ""
    start: str = ""
    pause: str = ""
    resume: str = ""
    log: str = ""


class EvidencePart(Part, frozen=True, kw_only=True):
    """Table [evidence]: the logs of the cluster that the harness may read as evidence.

    By default it may read none.
    """

    logs: list[str] = []


class ClusterFile(Part, frozen=True, kw_only=True):
    """A whole cluster file. Each field is one of its tables."""

    cluster: ClusterPart
    limits: LimitsPart
    security: Security = PLAINTEXT
    topics: TopicsPart = TopicsPart()
    faults: FaultsPart = FaultsPart()
    links: LinksPart | None = None
    proxy: list[ProxyPart] = []
    nodes: NodesPart | None = None
    evidence: EvidencePart = EvidencePart()

    @property
    def proxies(self) -> dict[int, ProxyPart]:
        """The proxies in the cluster file, by broker id."""
        return {proxy.broker: proxy for proxy in self.proxy}
