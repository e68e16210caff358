"""Model of a cluster file: address, prefix, permitted faults and limits of an external cluster."""

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
    """The cluster's id, its unfaulted address, and the prefix of every name the harness creates."""

    id: str
    bootstrap: list[str]
    prefix: str


class TopicsPart(Part, frozen=True, kw_only=True):
    """Settings of the topics that a run creates."""

    replication: int = 3
    min_insync: int = 2


class FaultsPart(Part, frozen=True, kw_only=True):
    """Permitted faults, and the maximum number of nodes hit at once."""

    allowed: list[str] = []
    most_targets: int = 1


class LimitsPart(Part, frozen=True, kw_only=True):
    """Limits that refuse a run before it starts, or stop it."""

    deadline: Duration
    bytes_per_second: Rate
    storage: Size
    abort_file: str
    foreign_under_replicated: int = 0


class LinksPart(Part, frozen=True, kw_only=True):
    """Toxiproxy in front of the brokers: started by the harness, or the address of the user's own."""

    toxiproxy: str


class ProxyPart(Part, frozen=True, kw_only=True):
    """The proxied path to one broker: the proxy listens where the broker's advertised listener points."""

    broker: int
    listen: str
    upstream: str = ""
    name: str = ""


class NodesPart(Part, frozen=True, kw_only=True):
    """How nodes are controlled: containers found by a label, or the user's own commands."""

    docker_label: str = ""
    hosts: dict[str, str] = {}
    kill: str = ""
    stop: str = ""
    start: str = ""
    pause: str = ""
    resume: str = ""
    log: str = ""


class EvidencePart(Part, frozen=True, kw_only=True):
    """Logs of the cluster that may be read as evidence; default: none."""

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
        """The proxy of each broker."""
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
