"""What a live cluster's file says: where it is, what is ours on it, what may be done to it, when to stop."""

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
    """One table of the file."""


class ClusterPart(Part, frozen=True, kw_only=True):
    """Which cluster it is, where no fault reaches it, and what the names of everything of ours begin with."""

    id: str
    bootstrap: list[str]
    prefix: str


class TopicsPart(Part, frozen=True, kw_only=True):
    """How the topics are made."""

    replication: int = 3
    min_insync: int = 2


class FaultsPart(Part, frozen=True, kw_only=True):
    """What may be done, and to how many nodes at once."""

    allowed: list[str] = []
    most_targets: int = 1


class LimitsPart(Part, frozen=True, kw_only=True):
    """When a run is refused, and when it is stopped."""

    deadline: Duration
    bytes_per_second: Rate
    storage: Size
    abort_file: str
    foreign_under_replicated: int = 0


class LinksPart(Part, frozen=True, kw_only=True):
    """The Toxiproxy before the brokers: `start` one, or the address of the user's own."""

    toxiproxy: str


class ProxyPart(Part, frozen=True, kw_only=True):
    """The way of clients to one broker: what the broker advertises to them is where the proxy listens."""

    broker: int
    listen: str
    upstream: str = ""
    name: str = ""


class NodesPart(Part, frozen=True, kw_only=True):
    """How nodes are reached: containers by a label, or commands of the user's own."""

    docker_label: str = ""
    hosts: dict[str, str] = {}
    kill: str = ""
    stop: str = ""
    start: str = ""
    pause: str = ""
    resume: str = ""
    log: str = ""


class EvidencePart(Part, frozen=True, kw_only=True):
    """Which logs that are not ours may be read for what they tell of a run; left out: none."""

    logs: list[str] = []


class ClusterFile(Part, frozen=True, kw_only=True):
    """The whole file."""

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
        """The proxy before each broker."""
        return {proxy.broker: proxy for proxy in self.proxy}


TABLES: dict[str, type[msgspec.Struct]] = {
    "cluster": ClusterPart,
    "security": Security,
    "topics": TopicsPart,
    "faults": FaultsPart,
    "limits": LimitsPart,
    "links": LinksPart,
    "proxy": ProxyPart,
    "nodes": NodesPart,
    "evidence": EvidencePart,
}


def address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`; a ValueError says what it should be."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f'{text!r} is not "host:port"')
    return host, int(port)
