"""The cluster of a state directory, with access to its nodes, topics, offsets and health.

It also finds the node that has a role now, such as the leader of a partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from typing import Any, Literal

from harness.base.errors import CapabilityError, HarnessError, UsageError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.cluster import health
from harness.cluster.backend import Backend, Capability, VersionedNodes, capabilities_of
from harness.cluster.broker_settings import SESSION_TIMEOUT_MS
from harness.cluster.layout import BROKER_IDS, CONTROLLER_IDS, HOST, BrokerListener, Ports, node_name
from harness.cluster.network_links import NetLinks
from harness.cluster.nodes import Node
from harness.cluster.proxy_names import FAULTED_LISTENERS, ClientLink, proxy_name
from harness.cluster.state_directory import ClusterRecord, State
from harness.cluster.topics import Topics
from harness.cluster.toxiproxy_client import Toxiproxy
from harness.kafka.admin import Admin
from harness.kafka.connection import RawConnection, answers
from harness.kafka.security import PLAINTEXT, Security

HEALTHY_LIMIT_S = 60.0
ROLE_LIMIT_S = 30.0


class Cluster(Topics):
    """The running cluster of a state directory.

    A run can also use an external cluster, because the class ExternalCluster has the same interface.
    """

    # True if the harness started this cluster and is its only user. The harness may then repair everything on
    # the cluster.
    owned = True
    # Prefix of the names of all topics, groups and transactional ids that a run uses. It is empty on a
    # cluster that the harness started.
    prefix = ""
    security: Security = PLAINTEXT
    # Internal topics that the harness may read as evidence.
    readable_logs: frozenset[str] = frozenset({"__transaction_state", "__consumer_offsets"})
    # Time limit in seconds for each client process of a run. The harness normally stops the client earlier.
    longest_s = 6 * 3600.0

    def __init__(self, state: State, record: ClusterRecord, backend: Backend) -> None:
        self.state = state
        self.record = record
        self.backend = backend
        self.ports = Ports(record.port_base)
        self.admin = Admin({broker: (HOST, self.ports.direct(broker)) for broker in BROKER_IDS})

    @cached_property
    def toxiproxy(self) -> Toxiproxy:
        """Client of the cluster's Toxiproxy."""
        return Toxiproxy(HOST, self.ports.toxiproxy_api)

    def locked(self, doing: str) -> AbstractContextManager[None]:
        """Hold the cluster's lock inside the block. Raise RefusedError if another command holds it.

        `doing` is the name of the command that changes the cluster.
        """
        return self.state.locked(doing)

    # Nodes

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """All nodes by name, including Toxiproxy."""
        return {node.name: node for node in self.backend.nodes()}

    def node(self, which: int | str) -> Node:
        """Return the node with this Kafka id or name."""
        for node in self.nodes.values():
            if which in (node.name, node.node_id):
                return node
        raise UsageError(f"there is no node {which!r}", f"the nodes are {', '.join(self.nodes)}")

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Kafka ids of the brokers."""
        return BROKER_IDS

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """Kafka ids of the controllers."""
        return CONTROLLER_IDS

    def name_of(self, node_id: int) -> str:
        """Return the name of the node with this id."""
        return node_name(node_id)

    @property
    def brokers(self) -> list[Node]:
        return [self.node(i) for i in self.broker_ids]

    @property
    def controllers(self) -> list[Node]:
        return [self.node(i) for i in self.controller_ids]

    def require(self, capability: Capability) -> None:
        """Raise CapabilityError if the back end of this cluster lacks a capability."""
        if capability not in self.backend.capabilities:
            if capability in capabilities_of(self.record.backend):
                raise CapabilityError(
                    f"a cluster with a tap between its brokers does not support {capability}",
                    "use a cluster without this tap: `eos down` and `eos up`",
                )
            raise CapabilityError(
                f"the {self.backend.name} back end does not support {capability}",
                "use the compose back end: `eos down` and `eos up --backend compose`",
            )

    @property
    def links(self) -> NetLinks:
        """Network links between the nodes. Raises CapabilityError if the back end cannot cut them."""
        self.require(Capability.PARTITION)
        assert self.backend.links is not None
        return self.backend.links

    @property
    def versions(self) -> VersionedNodes:
        """The versions of Kafka of the nodes. Raises CapabilityError if they cannot differ."""
        self.require(Capability.VERSION)
        assert isinstance(self.backend, VersionedNodes)
        return self.backend

    def bootstrap(self, listener: BrokerListener | str = BrokerListener.PROXIED) -> str:
        """Return the bootstrap servers for clients that use this listener."""
        return self.ports.bootstrap(BrokerListener(listener))

    def address_of(self, broker: int, listener: BrokerListener = BrokerListener.DIRECT) -> tuple[str, int]:
        """Return the host and port at which clients reach a listener of a broker."""
        port = {
            BrokerListener.DIRECT: self.ports.direct,
            BrokerListener.PROXIED: self.ports.proxied,
            BrokerListener.TAPPED: self.ports.tapped,
        }[listener]
        return HOST, port(broker)

    def second_proxy_address(self, broker: int) -> str:
        """Return the host and port of a second Toxiproxy proxy for a broker.

        The layout of the cluster reserves this port for it. The second proxy forwards the connections of the
        first proxy to the broker.
        """
        return f"127.0.0.1:{self.ports.inner_proxy(broker)}"

    def direct(self, broker: int, timeout: float = 5.0) -> RawConnection:
        """Return a connection to the DIRECT listener of a broker. No link fault affects this listener."""
        return RawConnection(*self.address_of(broker), timeout, self.security)

    def answers(
        self, broker: int, timeout: float = 1.0, listener: BrokerListener = BrokerListener.DIRECT
    ) -> bool:
        """Return whether a broker answers a request on a listener within the time limit."""
        return answers(*self.address_of(broker, listener), timeout, self.security)

    def client_links(self, names: Sequence[str]) -> list[ClientLink]:
        """Return the links through Toxiproxy from clients to these nodes. Only brokers have such links."""
        return [
            ClientLink(proxy_name(b, listener), b, HOST, self.ports.toxiproxy(listener, b))
            for b in BROKER_IDS
            if node_name(b) in names
            for listener in FAULTED_LISTENERS
        ]

    def caveats(self, capabilities: frozenset[Capability]) -> list[str]:  # noqa: ARG002
        """Return the reasons why faults that need these capabilities would weaken the evidence of the run.

        Such a reason exists if the faults could disturb the harness's own reader, called the observer. The
        list is empty here: the observer uses the DIRECT listener, which no link fault affects.
        """
        return []

    def facts(self) -> dict[str, Any]:
        """Return properties of the cluster that identify it in a run's result.

        Two runs can be compared only if these properties are equal.
        """
        record = self.record
        tapped = {"internal_tap": True} if record.internal_tap else {}
        return {
            **tapped,
            "kafka": record.kafka,
            "backend": record.backend,
            "profile": record.profile,
            "cluster_id": record.cluster_id,
            "images": record.images,
        }

    # Roles of nodes. Each call asks the cluster again, because roles move.

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition now. Wait while the partition has no leader."""
        return _node_id(
            lambda: self.admin.partition(topic, partition).leader, f"a leader of {topic}-{partition}"
        )

    def txn_coordinator(self, transactional_id: str) -> int:
        """Return the id of the broker that is now the transaction coordinator of a transactional id."""
        what = f"the transaction coordinator of {transactional_id}"
        return _node_id(lambda: self.admin.coordinator("transaction", transactional_id), what)

    def group_coordinator(self, group: str) -> int:
        """Return the id of the broker that is now the group coordinator of a group."""
        return _node_id(lambda: self.admin.coordinator("group", group), f"the coordinator of {group}")

    def active_controller(self) -> int:
        """Return the id of the controller that is now the leader of the controller quorum."""
        return _node_id(lambda: self.admin.quorum().leader, "an active controller")

    # Health

    def wait_serving(self, name: str, limit: float = HEALTHY_LIMIT_S) -> float:
        """Wait until a node serves again. Return the number of seconds that the wait took.

        A broker serves when it answers and is in the ISR of every partition of which it has a replica. A
        controller serves when its log has reached the high watermark of the controller quorum.
        """
        start = time.monotonic()
        node = self.node(name)
        serves = self._broker_serves if node.role == "broker" else self._controller_serves
        wait_until(lambda: serves(node.node_id), limit, f"{name} to serve")
        return time.monotonic() - start

    def _broker_serves(self, broker: int) -> bool:
        if not self.answers(broker):
            return False
        view = self.admin.metadata(None)
        return broker in view.brokers and all(
            broker in p.isr for p in view.partitions if broker in p.replicas
        )

    def _controller_serves(self, controller: int) -> bool:
        quorum = self.admin.quorum()
        return quorum.leader >= 0 and quorum.voter_log_ends.get(controller, -1) >= quorum.high_watermark

    def ailments(self) -> list[str]:
        """Describe the current health problems of the cluster. An empty list means that it is healthy."""
        return health.ailments(self)

    def look(self) -> list[str]:
        """Describe the current health problems. If a check raises an error, return its error message."""
        try:
            return self.ailments()
        except HarnessError as error:
            return [error.message]
        except (OSError, EOFError) as error:
            return [str(error)]

    def lasting_ailments(self) -> list[str]:
        """Return the health problems that still exist after a wait of one session timeout.

        The wait ends early if the cluster becomes healthy. Without the wait, this method would also report
        the brief problems that a busy machine causes.
        """
        ailments: list[str] = []

        def well() -> bool:
            ailments[:] = self.look()
            return not ailments

        with suppress(WaitTimeoutError):
            wait_until(well, SESSION_TIMEOUT_MS / 1000, "the cluster to be healthy", every=0.2)
        return ailments

    def wait_healthy(
        self, limit: float = HEALTHY_LIMIT_S, *, enough: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until the cluster is healthy, or until the argument `enough`, a function, returns true.

        If neither happens within `limit` seconds, the error lists the health problems that the last check
        found.
        """

        def healthy() -> bool:
            if enough():
                return True
            if ailments := self.ailments():
                raise ConnectionError("; ".join(ailments))
            return True

        wait_until(healthy, limit, "the cluster to be healthy", every=0.1)

    def _coordinated(self, kind: Literal["group", "transaction"]) -> bool:
        try:
            return self.admin.coordinator(kind, "eos-health") >= 0
        except (OSError, EOFError):
            return False

    def wait_transactions_possible(self, limit: float = HEALTHY_LIMIT_S) -> None:
        """Wait until a group coordinator and a transaction coordinator answer requests.

        The group coordinator needs the topic __consumer_offsets, and the transaction coordinator needs the
        topic __transaction_state. The brokers create each of these topics at the first request for its
        coordinator.
        """
        wait_until(
            lambda: all([self._coordinated("group"), self._coordinated("transaction")]),
            limit,
            "a group coordinator and a transaction coordinator",
        )
        what = "a transaction coordinator to assign a producer id"
        wait_until(lambda: self.admin.init_producer_id("eos-health")[1] >= 0, limit, what)


def _node_id(ask: Callable[[], int], what: str) -> int:
    """Call the function `ask` until it returns the id of a node, which is 0 or more. Return this id.

    The function asks the cluster which node has a certain role. It returns a negative number while no node
    has that role.
    """
    return wait_until(lambda: [node_id] if (node_id := ask()) >= 0 else [], ROLE_LIMIT_S, what)[0]
