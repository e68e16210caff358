"""An external cluster, with the interface of the harness's own clusters."""

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
from harness.kafka.rights import denied_on_group, denied_on_topic, denied_on_transactional_id

REQUEST_S: Final = 5.0
_MOST_LISTED: Final = 3


class ExternalCluster(Cluster):
    """A cluster that the harness did not start. The cluster file limits what the harness may change."""

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
        self.readable_logs = frozenset(file.evidence.logs) - {NODE_LOGS}
        self.admin = PrefixedAdmin(
            self.addresses, REQUEST_S, self.security, self.prefix, self.audit, readable=self.readable_logs
        )

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Ids of the brokers that existed when the harness connected."""
        return tuple(self.addresses)

    def name_of(self, node_id: int) -> str:
        """Return the name of a broker. The harness cannot see the controllers of an external cluster."""
        return f"kafka-{node_id}"

    def bootstrap(self, listener: BrokerListener | str = BrokerListener.PROXIED) -> str:
        """Return the bootstrap servers for clients that use a listener.

        For the listener PROXIED, these are the proxies in the cluster file, if it has any. In all other
        cases, they are the servers in `cluster.bootstrap` of the cluster file. There is no listener TAPPED.
        """
        if BrokerListener(listener) is BrokerListener.TAPPED:
            raise _no_tap()
        if BrokerListener(listener) is BrokerListener.PROXIED and self.file.proxy:
            return ",".join(proxy.listen for proxy in self.file.proxy)
        return ",".join(self.file.cluster.bootstrap)

    def address_of(self, broker: int, listener: BrokerListener = BrokerListener.DIRECT) -> tuple[str, int]:
        """Return the address at which clients reach a broker.

        For the listener PROXIED, this is the address of the broker's proxy if the cluster file has one.
        Otherwise it is the broker's own address.
        """
        if listener is BrokerListener.TAPPED:
            raise _no_tap()
        if listener is BrokerListener.PROXIED and broker in self.file.proxies:
            return parse_address(self.file.proxies[broker].listen)
        return self.addresses[broker]

    @contextmanager
    def locked(self, doing: str) -> Iterator[None]:
        """Hold the cluster's lock inside the block.

        If this object holds the lock already, the block runs at once. Blocks of the same object can therefore
        be nested.
        """
        if self._held:
            yield
            return
        with self.state.locked(doing):
            self._held = True
            try:
                yield
            finally:
                self._held = False

    # Links between clients and brokers

    @cached_property
    def toxiproxy(self) -> AuditedToxiproxy:
        """Client of Toxiproxy: the user's own Toxiproxy, or the one that the harness starts."""
        if self.file.links is None:
            raise CapabilityError(
                "there is no Toxiproxy in front of this cluster", "add [links] and [[proxy]]"
            )
        return AuditedToxiproxy(*toxiproxy_address(self.file.links, self._proxy_folder), self.audit)

    def client_links(self, names: Sequence[str]) -> list[ClientLink]:
        """Return the links from clients to these brokers, one for each proxy in the cluster file."""
        return [
            ClientLink(proxy_name(p), p.broker, *parse_address(p.listen))
            for p in self.file.proxy
            if self.name_of(p.broker) in names
        ]

    def start_proxies(self) -> None:
        """Start Toxiproxy if the cluster file requests it, and wait until it answers."""
        if self.starts_toxiproxy:
            self.audit.note("start", node="toxiproxy", listens=[p.listen for p in self.file.proxy])
            self.nodes["toxiproxy"].start()
            wait_until(self.toxiproxy.proxies, 15, "Toxiproxy to answer")

    def end_proxies(self) -> None:
        """Stop the Toxiproxy that the harness started, and remove the folder with its configuration and log.

        Do nothing if the cluster file does not ask the harness to start Toxiproxy.
        """
        if self.starts_toxiproxy:
            self.audit.note("end", node="toxiproxy")
            processes.end_all(f"{self.state.nodes}/")
            shutil.rmtree(self.state.nodes, ignore_errors=True)

    def without_links(self) -> ExternalCluster:
        """Return an object for the same external cluster that ignores all proxies in the cluster file.

        A dry run uses it for its checks if the cluster file asks the harness to start Toxiproxy, because a
        dry run does not start Toxiproxy.
        """
        file = msgspec.structs.replace(self.file, links=None, proxy=[])
        view = Metadata(self.record.cluster_id, frozenset(self.addresses), (), self.addresses)
        return ExternalCluster(file, self.state, view)

    @property
    def starts_toxiproxy(self) -> bool:
        """Whether the cluster file asks the harness to start Toxiproxy."""
        return self.file.links is not None and self.file.links.toxiproxy == START

    @property
    def _proxy_folder(self) -> Path:
        return self.state.nodes / "toxiproxy"

    def passed_by(self, *, upstream: bool = False) -> list[str]:
        """Describe the proxies that clients would bypass, one line for each proxy.

        Clients connect to the address that a broker advertises. They bypass the proxy in front of a broker if
        the broker does not advertise the proxy's address. With `upstream`, ask the broker at the upstream
        address of each proxy instead: a proxy that runs later forwards the same answer.
        """
        found = []
        for proxy in self.file.proxy:
            asked = proxy.upstream if upstream else proxy.listen
            through = Admin({-1: parse_address(asked)}, REQUEST_S, self.security)
            try:
                seen = through.metadata((), broker=-1).addresses
            except (OSError, EOFError) as error:
                raise ConnectionError(f"through {asked}: {error}") from error
            if (where := seen.get(proxy.broker)) != parse_address(proxy.listen):
                at = ":".join(map(str, where)) if where else "no address"
                found.append(f"broker {proxy.broker} behind proxy {proxy.listen} advertises {at}")
        return found

    @property
    def unfaulted(self) -> bool:
        """Whether all brokers advertise addresses that differ from the addresses of the proxies.

        These are the addresses that the brokers advertise to a client of `cluster.bootstrap`. If they differ,
        the harness's own reader (the observer) connects directly to the brokers, and no link fault affects
        it.
        """
        return not {parse_address(proxy.listen) for proxy in self.file.proxy} & set(self.addresses.values())

    def caveats(self, capabilities: frozenset[Capability]) -> list[str]:
        """Return one caveat if the faults of a run could disturb the observer, else an empty list.

        `capabilities` are the capabilities that the faults need. The observer is the harness's own reader.
        Link faults disturb the observer if it can reach the brokers only through the proxies.
        """
        if Capability.LINK not in capabilities or self.unfaulted:
            return []
        return ["the observer has no unfaulted path: cluster.bootstrap leads through the faulted proxies"]

    # Nodes

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The nodes that the harness controls.

        These are the brokers if the cluster file has [nodes], and Toxiproxy if the harness starts it.
        """
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
        """Record the name of a topic before the run creates the topic.

        Return the topic settings that the cluster file requires for new topics.
        """
        self.made.note_topic(name)
        return self._own_settings

    @property
    def _own_settings(self) -> dict[str, str]:
        return {"min.insync.replicas": str(self.file.topics.min_insync)}

    def denied(self) -> str:
        """Return the reason why a broker would refuse the topics of a run; empty if it would accept them.

        The harness sends a CreateTopics request for a name with the prefix. The request sets `validate_only`,
        so it creates nothing.
        """
        replicas = list(self.broker_ids)[: self.file.topics.replication]
        try:
            self.admin.create_topic(self._asked, [replicas], self._own_settings, validate_only=True)
        except KafkaAnswerError as error:
            return str(error)
        return ""

    def missing_rights(self, *, groups: bool, transactions: bool) -> list[str]:
        """Return the rights on names with the prefix that the brokers deny, such as "Read on topics".

        The requests change nothing. `groups` and `transactions` are whether the run needs rights on groups
        and on transactional ids.
        """
        first = self.broker_ids[0]
        denied = {"topics": denied_on_topic(self.admin, first, self._asked)}
        if groups:
            denied["groups"] = denied_on_group(self.admin, self.broker_ids, self._asked)
        if transactions:
            denied["transactional ids"] = denied_on_transactional_id(self.admin, first, self._asked)
        return [f"{operation} on {kind}" for kind, operations in denied.items() for operation in operations]

    @property
    def _asked(self) -> str:
        """A name with the prefix that no run uses, for requests about rights."""
        return f"{self.prefix}asked"

    # Health

    def ailments(self) -> list[str]:
        """Describe the current health problems of the cluster.

        These are brokers that are missing or do not answer, proxies that are missing or closed or have a
        toxic, and partitions without a leader or with an incomplete ISR.
        """
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
        """Return all partitions of foreign topics that the harness can see.

        A topic is foreign if its name lacks the prefix.
        """
        return [p for p in self.admin.metadata(None).partitions if not p.topic.startswith(self.prefix)]

    def foreign_under_replicated(self) -> list[PartitionInfo]:
        """Return the partitions of foreign topics that now have no leader or an incomplete ISR."""
        return [p for p in self.foreign() if ailing(p)]

    def facts(self) -> dict[str, Any]:
        """Return properties of the cluster that identify it in a run's result.

        Two runs can be compared only if these properties are equal.
        """
        levels = features.levels(self.admin)
        return {
            "kafka": describe_level(levels.get("metadata.version", 0)),
            "backend": "external",
            "cluster_id": self.record.cluster_id,
            "brokers": len(self.addresses),
            "prefix": self.prefix,
        }


_FIRST_LEVELS: Final = {"3.9": 21, "4.0": 22, "4.1": 26, "4.2": 28, "4.3": 30}
"""First level of metadata.version of each release of Kafka."""
_LAST_KNOWN: Final = 30


def describe_level(level: int) -> str:
    """Return the level of metadata.version with its release. Brokers may be newer than the level."""
    releases = [release for release, first in _FIRST_LEVELS.items() if first <= level <= _LAST_KNOWN]
    return f"metadata.version {level or 'unknown'}" + (f", of Kafka {releases[-1]}" if releases else "")


def _no_tap() -> CapabilityError:
    return CapabilityError("an external cluster has no wire tap", "remove walkthroughs and frame faults")


class _ExternalBackend:
    """Back end of an external cluster. It provides capabilities and nodes.

    The other methods of a back end, such as `start` and `destroy`, raise CapabilityError.
    """

    name: BackendName = "external"

    def __init__(self, cluster: ExternalCluster) -> None:
        self._cluster = cluster

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities that follow from the cluster file.

        Client faults are always possible. Link faults need the table [links]. To kill, stop or pause a node,
        the table [nodes] must have a container label or the command for this action.
        """
        file = self._cluster.file
        verbs = {Capability.KILL: "kill", Capability.STOP: "stop", Capability.PAUSE: "pause"}
        found = {c for c, verb in verbs.items() if reaches(file.nodes, verb)} | {Capability.CLIENT}
        return frozenset(found | ({Capability.LINK} if file.links else set()))

    links = None

    def nodes(self) -> list[Node]:
        """Return the nodes that the harness can control."""
        return list(self._cluster.nodes.values())

    def __getattr__(self, verb: str) -> Any:
        raise CapabilityError(f"cannot {verb} an external cluster", "use a cluster started by `eos up`")
