"""One cluster, whatever runs it: nodes, roles resolved live, topics, offsets, health."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Literal

from harness.cluster.backend import Backend, Capability
from harness.cluster.layout import BROKER_IDS, CONTROLLER_IDS, HOST, Listener, Ports
from harness.cluster.netlinks import NetLinks
from harness.cluster.nodes import Condition, Node
from harness.cluster.settings import SESSION_TIMEOUT_MS
from harness.cluster.state import ClusterRecord, State
from harness.cluster.topics import Topics
from harness.errors import CapabilityError, HarnessError, UsageError, WaitTimeoutError
from harness.waits import wait_until
from harness.wire.admin import Admin
from harness.wire.protocol import answers
from harness.wire.toxiproxy import Toxiproxy

HEALTHY_LIMIT_S = 60.0


class Cluster(Topics):
    """The running cluster of a state directory."""

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
    def brokers(self) -> list[Node]:
        """The three brokers."""
        return [self.node(i) for i in BROKER_IDS]

    @property
    def controllers(self) -> list[Node]:
        """The three controllers."""
        return [self.node(i) for i in CONTROLLER_IDS]

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

    def bootstrap(self, listener: Listener | str = Listener.PROXIED) -> str:
        """The bootstrap servers of a listener."""
        return self.ports.bootstrap(Listener(listener))

    # Roles, resolved when they are asked for

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads this partition now; waits for one while there is none."""
        return wait_until(
            lambda: max(self.admin.partition(topic, partition).leader, 0),
            30,
            f"a leader of {topic}-{partition}",
        )

    def txn_coordinator(self, transactional_id: str) -> int:
        """The broker that coordinates this transactional id now."""
        what = f"the transaction coordinator of {transactional_id}"
        return wait_until(lambda: self.admin.coordinator("transaction", transactional_id), 30, what)

    def group_coordinator(self, group: str) -> int:
        """The broker that coordinates this group now."""
        return wait_until(lambda: self.admin.coordinator("group", group), 30, f"the coordinator of {group}")

    def active_controller(self) -> int:
        """The controller that leads the quorum now."""
        return wait_until(lambda: max(self.admin.quorum().leader, 0), 30, "an active controller")

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
        if not answers(HOST, self.ports.direct(broker)):
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
        return next((found for check in self._checks() if (found := check())), [])

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

    def _checks(self) -> list[Callable[[], list[str]]]:
        """From the cheap to the telling; a later check would stumble over what an earlier one found."""
        return [self._ailing_nodes, self._silent_brokers, self._ailing_proxies, self._ailing_metadata]

    def _ailing_nodes(self) -> list[str]:
        states = {name: node.status() for name, node in self.nodes.items()}
        return [f"{name} is {s}" for name, s in states.items() if s.condition is not Condition.RUNNING]

    def _silent_brokers(self) -> list[str]:
        return [
            f"kafka-{b} does not answer on DIRECT"
            for b in BROKER_IDS
            if not answers(HOST, self.ports.direct(b))
        ]

    def _ailing_proxies(self) -> list[str]:
        return [
            f"proxy {p.name} is {'toxic' if p.enabled else 'down'}"
            for p in self.toxiproxy.proxies()
            if not p.enabled or p.toxics
        ]

    def _ailing_metadata(self) -> list[str]:
        found = []
        for broker in BROKER_IDS:
            view = self.admin.metadata(None, broker=broker)
            if missing := set(BROKER_IDS) - view.brokers:
                found.append(f"broker {broker} does not see {sorted(missing)}")
            found += [
                f"{p.topic}-{p.partition} has leader {p.leader}, ISR {list(p.isr)} of {list(p.replicas)}"
                for p in view.partitions
                if p.leader < 0 or set(p.isr) != set(p.replicas)
            ][:3]
        quorum = self.admin.quorum()
        # A voter is behind for a moment with every record; one that stays behind does not follow.
        if lagging := [voter for voter, ms in quorum.behind_ms.items() if ms > SESSION_TIMEOUT_MS]:
            found.append(f"controllers {lagging} lag behind the quorum")
        return found

    def wait_healthy(self, limit: float = HEALTHY_LIMIT_S) -> None:
        """Wait until nothing ails the cluster; the error says what still does."""
        seen: list[str] = []

        def healthy() -> bool:
            seen[:] = self.ailments()
            if seen:
                raise ConnectionError("; ".join(seen))
            return True

        wait_until(healthy, limit, "the cluster to be healthy", every=0.1)

    def _coordinated(self, kind: Literal["group", "transaction"]) -> bool:
        try:
            return self.admin.coordinator(kind, "eos-health") > 0
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
