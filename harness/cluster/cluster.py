"""One cluster, whatever runs it: nodes, roles resolved live, topics, offsets, health."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from typing import Any, Literal

from harness.base.errors import CapabilityError, HarnessError, UsageError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.cluster import health
from harness.cluster.backend import Backend, Capability
from harness.cluster.broker_settings import KAFKA_VERSION, SESSION_TIMEOUT_MS
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

    An external cluster has the same interface (harness.cluster.external): a run does not need to know
    which of the two it has.
    """

    # Nobody else uses it: whatever ails it may be put right.
    owned = True
    # What the name of every topic, group and transactional id begins with.
    prefix = ""
    security: Security = PLAINTEXT
    # The longest that a client may work whom nobody stops.
    longest_s = 6 * 3600.0

    def __init__(self, state: State, record: ClusterRecord, backend: Backend) -> None:
        self.state = state
        self.record = record
        self.backend = backend
        self.ports = Ports(record.port_base)
        self.admin = Admin({broker: (HOST, self.ports.direct(broker)) for broker in BROKER_IDS})

    @cached_property
    def toxiproxy(self) -> Toxiproxy:
        """The client of this cluster's Toxiproxy."""
        return Toxiproxy(HOST, self.ports.toxiproxy_api)

    def locked(self, doing: str) -> AbstractContextManager[None]:
        """Hold the cluster for a change; refused while another command holds it."""
        return self.state.locked(doing)

    # Nodes

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Every node by name, Toxiproxy included."""
        return {node.name: node for node in self.backend.nodes()}

    def node(self, which: int | str) -> Node:
        """A node by its id or name."""
        for node in self.nodes.values():
            if which in (node.name, node.node_id):
                return node
        raise UsageError(f"there is no node {which!r}", f"the nodes are {', '.join(self.nodes)}")

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Kafka's ids of the brokers."""
        return BROKER_IDS

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """Kafka's ids of the controllers."""
        return CONTROLLER_IDS

    def name_of(self, node_id: int) -> str:
        """The name of a node."""
        return node_name(node_id)

    @property
    def brokers(self) -> list[Node]:
        """The brokers."""
        return [self.node(i) for i in self.broker_ids]

    @property
    def controllers(self) -> list[Node]:
        """The controllers."""
        return [self.node(i) for i in self.controller_ids]

    def require(self, capability: Capability) -> None:
        """Refuse by name what this back end cannot do."""
        if capability not in self.backend.capabilities:
            raise CapabilityError(
                f"the {self.backend.name} back end cannot {capability}",
                "use the compose back end: `eos down` and `eos up --backend compose`",
            )

    @property
    def links(self) -> NetLinks:
        """The links between the nodes; refused where the back end cannot cut them."""
        self.require(Capability.PARTITION)
        assert self.backend.links is not None
        return self.backend.links

    def bootstrap(self, listener: BrokerListener | str = BrokerListener.PROXIED) -> str:
        """The bootstrap servers of a listener."""
        return self.ports.bootstrap(BrokerListener(listener))

    def address_of(self, broker: int, listener: BrokerListener = BrokerListener.DIRECT) -> tuple[str, int]:
        """Return host and port at which clients reach this listener of a broker."""
        port = {
            BrokerListener.DIRECT: self.ports.direct,
            BrokerListener.PROXIED: self.ports.proxied,
            BrokerListener.TAPPED: self.ports.tapped,
        }[listener]
        return HOST, port(broker)

    def second_proxy_address(self, broker: int) -> str:
        """Return a free address for a second proxy of a broker, as Toxiproxy itself reaches it."""
        return f"127.0.0.1:{self.ports.inner_proxy(broker)}"

    def direct(self, broker: int, timeout: float = 5.0) -> RawConnection:
        """Connect to the listener of a broker that no fault hits."""
        return RawConnection(*self.address_of(broker), timeout, self.security)

    def answers(
        self, broker: int, timeout: float = 1.0, listener: BrokerListener = BrokerListener.DIRECT
    ) -> bool:
        """Return whether a broker answers at a listener."""
        return answers(*self.address_of(broker, listener), timeout, self.security)

    def client_links(self, names: Sequence[str]) -> list[ClientLink]:
        """The ways of clients to these nodes that faults can hit; a controller has none."""
        return [
            ClientLink(proxy_name(b, listener), b, HOST, self.ports.toxiproxy(listener, b))
            for b in BROKER_IDS
            if node_name(b) in names
            for listener in FAULTED_LISTENERS
        ]

    def caveats(self, capabilities: frozenset[Capability]) -> list[str]:  # noqa: ARG002
        """Return why the observer's readings prove less under faults with these capabilities."""
        return []

    def facts(self) -> dict[str, Any]:
        """What a second run would need to be the same on."""
        record = self.record
        return {
            "kafka": KAFKA_VERSION,
            "backend": record.backend,
            "profile": record.profile,
            "cluster_id": record.cluster_id,
            "images": record.images,
        }

    # Roles, resolved when they are asked for

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads this partition now; waits for one while there is none."""
        return _node_id(
            lambda: self.admin.partition(topic, partition).leader, f"a leader of {topic}-{partition}"
        )

    def txn_coordinator(self, transactional_id: str) -> int:
        """The broker that coordinates this transactional id now."""
        what = f"the transaction coordinator of {transactional_id}"
        return _node_id(lambda: self.admin.coordinator("transaction", transactional_id), what)

    def group_coordinator(self, group: str) -> int:
        """The broker that coordinates this group now."""
        return _node_id(lambda: self.admin.coordinator("group", group), f"the coordinator of {group}")

    def active_controller(self) -> int:
        """The controller that leads the quorum now."""
        return _node_id(lambda: self.admin.quorum().leader, "an active controller")

    # Health

    def wait_serving(self, name: str, limit: float = HEALTHY_LIMIT_S) -> float:
        """Wait until a node does its work again, and return how long that took.

        A broker answers and is in the ISR of every partition that has a replica on it; a controller has all
        that the quorum has agreed on.
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
        """What is wrong with the cluster now, in words; empty if it is healthy."""
        return health.ailments(self)

    def look(self) -> list[str]:
        """The same, where what cannot be reached or asked is an ailment and not an error."""
        try:
            return self.ailments()
        except HarnessError as error:
            return [error.message]
        except (OSError, EOFError) as error:
            return [str(error)]

    def lasting_ailments(self) -> list[str]:
        """What ails the cluster for a session's time: what a busy machine did for a moment is no ailment."""
        seen: list[str] = []

        def well() -> bool:
            seen[:] = self.look()
            return not seen

        with suppress(WaitTimeoutError):
            wait_until(well, SESSION_TIMEOUT_MS / 1000, "the cluster to be healthy", every=0.2)
        return seen

    def wait_healthy(
        self, limit: float = HEALTHY_LIMIT_S, *, enough: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until nothing ails the cluster, or it is `enough`; the error says what still does."""
        seen: list[str] = []

        def healthy() -> bool:
            if enough():
                return True
            seen[:] = self.ailments()
            if seen:
                raise ConnectionError("; ".join(seen))
            return True

        wait_until(healthy, limit, "the cluster to be healthy", every=0.1)

    def _coordinated(self, kind: Literal["group", "transaction"]) -> bool:
        try:
            return self.admin.coordinator(kind, "eos-health") >= 0
        except (OSError, EOFError):
            return False

    def wait_transactions_possible(self, limit: float = HEALTHY_LIMIT_S) -> None:
        """Wait until both coordinators serve: their topics exist only once somebody asked for both."""
        wait_until(
            lambda: all([self._coordinated("group"), self._coordinated("transaction")]),
            limit,
            "a group coordinator and a transaction coordinator",
        )
        what = "a transaction coordinator to hand out a producer id"
        wait_until(lambda: self.admin.init_producer_id("eos-health")[1] >= 0, limit, what)


def _node_id(ask: Callable[[], int], what: str) -> int:
    """Wait for a node's id: 0 is one like any other, and a negative one is none."""
    return wait_until(lambda: [found] if (found := ask()) >= 0 else [], ROLE_LIMIT_S, what)[0]
