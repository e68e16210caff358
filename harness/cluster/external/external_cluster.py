"""An external cluster behind the interface of the harness's own clusters."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.base import processes
from harness.base.addresses import parse_address
from harness.base.errors import CapabilityError
from harness.base.waits import wait_until
from harness.cluster.backend import Backend, Capability
from harness.cluster.cluster import Cluster
from harness.cluster.external.audit_log import Audit
from harness.cluster.external.cluster_file import NODE_LOGS, START, ClusterFile
from harness.cluster.external.cluster_file_loader import reaches
from harness.cluster.external.created_resources import Made
from harness.cluster.external.external_nodes import AuditedNode, CommandNode, labelled_node
from harness.cluster.external.external_proxies import (
    AuditedToxiproxy,
    proxy_name,
    toxiproxy_address,
    toxiproxy_node,
)
from harness.cluster.external.guarded_admin import PrefixedAdmin
from harness.cluster.health import ailing, describe_partition
from harness.cluster.layout import BrokerListener
from harness.cluster.nodes import Node
from harness.cluster.proxy_names import ClientLink
from harness.cluster.state_directory import BackendName, ClusterRecord, State
from harness.kafka import features
from harness.kafka.admin import Admin, Metadata, PartitionInfo
from harness.kafka.errors import KafkaAnswerError

REQUEST_S: Final = 5.0
_MOST_LISTED: Final = 3


class ExternalCluster(Cluster):
    """A cluster that the harness did not start; its file limits what may be changed."""

    owned = False

    def __init__(self, file: ClusterFile, state: State, view: Metadata) -> None:
        self.file = file
        self.state = state
        self.audit = Audit(state.path / "audit.jsonl")
        self.prefix = file.cluster.prefix
        self.security = file.security
        self.replication = file.topics.replication
        self.longest_s = float(file.limits.deadline)
        self.addresses = dict(sorted(view.addresses.items()))
        self.record = ClusterRecord(
            name=f"external {file.cluster.id}",
            backend="external",
            profile="quick",
            cluster_id=file.cluster.id,
            port_base=0,
        )
        self.backend: Backend = _ExternalBackend(self)
        self.made = Made(state.path, self)
        self._held = False
        readable = frozenset(file.evidence.logs) - {NODE_LOGS}
        self.admin = PrefixedAdmin(
            self.addresses, REQUEST_S, self.security, self.prefix, self.audit, readable=readable
        )

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The brokers at the time of attaching."""
        return tuple(self.addresses)

    def name_of(self, node_id: int) -> str:
        """Return the name of a broker; an external cluster exposes no other nodes."""
        return f"kafka-{node_id}"

    def bootstrap(self, listener: BrokerListener | str = BrokerListener.PROXIED) -> str:
        """Return the bootstrap servers: clients use the proxies if there are any, the observer never does."""
        if BrokerListener(listener) is BrokerListener.TAPPED:
            raise _no_tap()
        if BrokerListener(listener) is BrokerListener.PROXIED and self.file.proxy:
            return ",".join(proxy.listen for proxy in self.file.proxy)
        return ",".join(self.file.cluster.bootstrap)

    def address_of(self, broker: int, listener: BrokerListener = BrokerListener.DIRECT) -> tuple[str, int]:
        """Return where a listener is advertised: PROXIED behind the proxies, if the file names some."""
        if listener is BrokerListener.TAPPED:
            raise _no_tap()
        if listener is BrokerListener.PROXIED and broker in self.file.proxies:
            return parse_address(self.file.proxies[broker].listen)
        return self.addresses[broker]

    @contextmanager
    def locked(self, doing: str) -> Iterator[None]:
        """Hold the cluster's lock; nested use by the same process is allowed."""
        if self._held:
            yield
            return
        with self.state.locked(doing):
            self._held = True
            try:
                yield
            finally:
                self._held = False

    # Links

    @cached_property
    def toxiproxy(self) -> AuditedToxiproxy:
        """The Toxiproxy named in the file, or the one started by the harness."""
        if self.file.links is None:
            raise CapabilityError(
                "there is no Toxiproxy in front of this cluster", "add [links] and [[proxy]]"
            )
        return AuditedToxiproxy(*toxiproxy_address(self.file.links, self._proxy_folder), self.audit)

    def client_links(self, names: Sequence[str]) -> list[ClientLink]:
        """The proxies of these brokers."""
        return [
            ClientLink(proxy_name(p), p.broker, *parse_address(p.listen))
            for p in self.file.proxy
            if self.name_of(p.broker) in names
        ]

    def start_proxies(self) -> None:
        """Start a Toxiproxy if the file asks for one, and wait until it answers."""
        if self.starts_toxiproxy:
            self.audit.note("start", node="toxiproxy", listens=[p.listen for p in self.file.proxy])
            self.nodes["toxiproxy"].start()
            wait_until(self.toxiproxy.proxies, 15, "Toxiproxy to answer")

    def end_proxies(self) -> None:
        """End the Toxiproxy and every other process with the run's mark."""
        if self.starts_toxiproxy:
            self.audit.note("end", node="toxiproxy")
            processes.end_all(f"{self.state.nodes}/")
            shutil.rmtree(self.state.nodes, ignore_errors=True)

    def without_links(self) -> ExternalCluster:
        """The same cluster without proxies, as before any was started."""
        file = msgspec.structs.replace(self.file, links=None, proxy=[])
        view = Metadata(self.record.cluster_id, frozenset(self.addresses), (), self.addresses)
        return ExternalCluster(file, self.state, view)

    @property
    def starts_toxiproxy(self) -> bool:
        """Whether the file asks the harness to start a Toxiproxy."""
        return self.file.links is not None and self.file.links.toxiproxy == START

    @property
    def _proxy_folder(self) -> Path:
        return self.state.nodes / "toxiproxy"

    def passed_by(self) -> list[str]:
        """Return the proxies whose upstream listener would redirect clients past the proxy."""
        found = []
        for proxy in self.file.proxy:
            through = Admin({-1: parse_address(proxy.listen)}, REQUEST_S, self.security)
            try:
                seen = through.metadata((), broker=-1).addresses
            except (OSError, EOFError) as error:
                raise ConnectionError(f"through {proxy.listen}: {error}") from error
            if (where := seen.get(proxy.broker)) != parse_address(proxy.listen):
                at = ":".join(map(str, where)) if where else "nowhere"
                found.append(f"at {proxy.listen} broker {proxy.broker} is advertised at {at}")
        return found

    @property
    def unfaulted(self) -> bool:
        """Whether the observer has a path to the brokers that avoids the proxies."""
        return not {parse_address(proxy.listen) for proxy in self.file.proxy} & set(self.addresses.values())

    def caveats(self, capabilities: frozenset[Capability]) -> list[str]:
        """Caveats of a run: without an unfaulted path, faults hit the observer as well."""
        if Capability.LINK not in capabilities or self.unfaulted:
            return []
        return ["the observer has no unfaulted path: cluster.bootstrap leads through the faulted proxies"]

    # Nodes

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The brokers that the file's commands or labels reach, and the harness's own Toxiproxy."""
        found: list[Node] = [self._node(b) for b in self.addresses] if self.file.nodes else []
        if self.starts_toxiproxy:
            found.append(toxiproxy_node(self._proxy_folder, self.file.proxy))
        return {node.name: node for node in found}

    def _node(self, broker: int) -> Node:
        part = self.file.nodes
        assert part is not None
        where = self.addresses[broker]
        node: Node
        if part.docker_label:
            host = part.hosts.get(str(broker), where[0])
            node = labelled_node(self.name_of(broker), broker, part.docker_label, host)
        else:
            node = CommandNode(self.name_of(broker), broker, part, where, self.answers)
        return AuditedNode(node, self.audit, logs=NODE_LOGS in self.file.evidence.logs)

    # Topics

    def _prepare_topic(self, name: str) -> dict[str, str]:
        """Record the topic before it is created, with the file's settings."""
        self.made.note_topic(name)
        return self._own_settings

    @property
    def _own_settings(self) -> dict[str, str]:
        return {"min.insync.replicas": str(self.file.topics.min_insync)}

    def denied(self) -> str:
        """Return why this user may not create topics with the prefix (by a dry run); empty if permitted."""
        replicas = list(self.broker_ids)[: self.file.topics.replication]
        try:
            self.admin.create_topic(f"{self.prefix}asked", [replicas], self._own_settings, validate_only=True)
        except KafkaAnswerError as error:
            return str(error)
        return ""

    # Health

    def ailments(self) -> list[str]:
        """Return missing or silent brokers, and partitions without a leader or a full ISR."""
        view = self.admin.metadata(None)
        missing = [f"{self.name_of(b)} is missing" for b in self.addresses if b not in view.brokers]
        silent = [f"{self.name_of(b)} does not answer" for b in view.brokers if not self._serves(b)]
        ill = [describe_partition(p) for p in view.partitions if ailing(p)]
        return missing + silent + self._ailing_links() + ill[:_MOST_LISTED]

    def _serves(self, broker: int) -> bool:
        return broker not in self.addresses or self.answers(broker)

    def _ailing_links(self) -> list[str]:
        mine = {proxy_name(p) for p in self.file.proxy}
        proxies = self.toxiproxy.proxies() if mine else []
        found = [f"proxy {name} is missing" for name in sorted(mine - {p.name for p in proxies})]
        return found + [
            f"proxy {p.name} is {'toxic' if p.enabled else 'down'}"
            for p in proxies
            if p.name in mine and (not p.enabled or p.toxics)
        ]

    def foreign(self) -> list[PartitionInfo]:
        """Every foreign partition visible to this user."""
        return [p for p in self.admin.metadata(None).partitions if not p.topic.startswith(self.prefix)]

    def foreign_under_replicated(self) -> list[PartitionInfo]:
        """Foreign partitions that lack a leader or a replica now."""
        return [p for p in self.foreign() if ailing(p)]

    def facts(self) -> dict[str, Any]:
        """Facts that a second run would need to reproduce."""
        levels = features.levels(self.admin)
        return {
            "kafka": f"metadata.version {levels.get('metadata.version', 'unknown')}",
            "backend": "external",
            "cluster_id": self.record.cluster_id,
            "brokers": len(self.addresses),
            "prefix": self.prefix,
        }


def _no_tap() -> CapabilityError:
    return CapabilityError("an external cluster has no wire tap", "remove walkthroughs and frame faults")


class _ExternalBackend:
    """Capabilities of an external cluster, from its file; a run refuses anything else by name."""

    name: BackendName = "external"

    def __init__(self, cluster: ExternalCluster) -> None:
        self._cluster = cluster

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Client faults always; link and node faults if the file defines how."""
        file = self._cluster.file
        verbs = {Capability.KILL: "kill", Capability.STOP: "stop", Capability.PAUSE: "pause"}
        found = {c for c, verb in verbs.items() if reaches(file.nodes, verb)} | {Capability.CLIENT}
        return frozenset(found | ({Capability.LINK} if file.links else set()))

    links = None

    def nodes(self) -> list[Node]:
        """The nodes that can be controlled."""
        return list(self._cluster.nodes.values())

    def __getattr__(self, verb: str) -> Any:
        raise CapabilityError(f"cannot {verb} an external cluster", "use a cluster started by `eos up`")
