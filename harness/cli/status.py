"""Output of `eos status`: nodes with their roles, links, faults that are not healed, and problems."""

from __future__ import annotations

from collections import Counter

import msgspec

from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.cluster.toxiproxy_client import ToxiproxyError
from harness.faults.intents import unhealed
from harness.report.text_format import format_table


class NodeRow(msgspec.Struct, frozen=True):
    """One node with its condition and its current roles."""

    name: str
    condition: str
    roles: str


class Status(msgspec.Struct, frozen=True):
    """The state of a cluster as `eos status` shows it.

    `unhealed` lists the injections that are not healed, and `ailments` lists the problems of the cluster.
    """

    name: str
    backend: str
    kafka: str
    profile: str
    cluster_id: str
    state: str
    bootstrap: dict[str, str]
    nodes: list[NodeRow]
    toxics: list[str]
    unhealed: list[str]
    ailments: list[str]

    def json(self) -> str:
        """Return the status as one JSON object."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()

    def text(self) -> str:
        """Return the status as aligned lines for a terminal."""
        lines = [
            f"{self.name}: Kafka {self.kafka}, {self.backend}, {self.profile}, cluster id {self.cluster_id}",
            f"state {self.state}",
            *format_table([(listener.lower(), servers) for listener, servers in self.bootstrap.items()]),
            *format_table([(row.name, row.condition, row.roles) for row in self.nodes]),
            *(f"toxic: {toxic}" for toxic in self.toxics),
            *(f"not healed: {intent}" for intent in self.unhealed),
            *(f"problem: {ailment}" for ailment in self.ailments),
        ]
        return "\n".join(lines if self.ailments else [*lines, "healthy"])


def read_status(cluster: Cluster) -> Status:
    """Read the state of a cluster. List a node that does not answer as a problem; do not raise an error."""
    record = cluster.record
    ailments = cluster.look()
    roles = _roles(cluster)
    return Status(
        name=record.name,
        backend=record.backend,
        kafka=record.kafka,
        profile=record.profile,
        cluster_id=record.cluster_id,
        state=str(cluster.state.path),
        bootstrap={
            listener: cluster.bootstrap(listener)
            for listener in (BrokerListener.PROXIED, BrokerListener.TAPPED, BrokerListener.DIRECT)
        },
        nodes=[NodeRow(n.name, str(n.status()), roles.get(n.node_id, "")) for n in cluster.nodes.values()],
        toxics=_toxics(cluster),
        unhealed=[f"{i.fault} on {', '.join(i.resolved)} ({i.id})" for i in unhealed(cluster.state)],
        ailments=ailments,
    )


def _roles(cluster: Cluster) -> dict[int, str]:
    try:
        leaders = Counter(p.leader for p in cluster.admin.metadata(None).partitions)
        roles = {broker: f"leads {count} partitions" for broker, count in leaders.items()}
        roles[cluster.admin.quorum().leader] = "active controller"
    except (OSError, EOFError):
        return {}  # `Status.ailments` contains the reason why the roles cannot be read
    return roles


def _toxics(cluster: Cluster) -> list[str]:
    try:
        proxies = cluster.toxiproxy.proxies()
    except (OSError, ToxiproxyError):
        return []  # `Status.ailments` contains the reason why the toxics cannot be read
    return [
        *(f"{p.name} {t.type} {dict(t.attributes)} {t.stream}" for p in proxies for t in p.toxics),
        *(f"{p.name} is closed" for p in proxies if not p.enabled),
    ]
