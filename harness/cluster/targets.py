"""Which nodes a fault hits, named by role and resolved when it is injected, not before.

kafka-2, controller-11            a node by name
one, minority, majority, all      that many brokers, drawn by the plan's own random numbers
controllers(one), ...             the same of the controllers
leader_of(topic, partition)       the broker that leads it now
txn_coordinator(id)               the broker that coordinates this transactional id now
group_coordinator(group)          the broker that coordinates this group now
active_controller                 the controller that leads the quorum now
client(name)                      a client of the workload, for faults of clients
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.base.errors import UsageError
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, CONTROLLER_IDS, node_name

_SHARES: dict[str, Callable[[int], int]] = {
    "one": lambda _: 1,
    "minority": lambda nodes: max(1, (nodes - 1) // 2),
    "majority": lambda nodes: nodes // 2 + 1,
    "all": lambda nodes: nodes,
}
_BROKER = "kafka-"
# Which brokers there are is for the cluster to say: somebody else's may have any ids.
_NODE = re.compile("|".join([_BROKER + r"(?:0|[1-9]\d*)", *map(node_name, CONTROLLER_IDS)]))
_ALLOWED = (
    "a node name, one, minority, majority, all, controllers(one), leader_of(topic, partition), "
    "txn_coordinator(id), group_coordinator(group), active_controller or client(name)"
)


@dataclass(frozen=True)
class Target:
    """A parsed target; `role` finds who holds it now, and is None where it names no role."""

    text: str
    kind: str
    arguments: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read a target, or say what is allowed."""
        match = re.fullmatch(r"\s*([a-z0-9_-]+)\s*(?:\(([^()]*)\))?\s*", text)
        if match:
            kind, inside = match[1], match[2]
            arguments = tuple(part.strip() for part in inside.split(",")) if inside else ()
            if _well_formed(kind, arguments):
                return cls(text.strip(), kind, arguments)
        raise UsageError(f"target {text!r} is not known", f"use {_ALLOWED}")

    def preview(self, rng: random.Random) -> str:
        """What can be said of it before there is a cluster."""
        if _NODE.fullmatch(self.kind):
            return self.kind
        if self.kind in _SHARES:
            return ", ".join(map(node_name, _draw(BROKER_IDS, self.kind, rng)))
        if self.kind == "controllers":
            return ", ".join(map(node_name, _draw(CONTROLLER_IDS, self.arguments[0], rng)))
        return "resolved when it is injected"

    @property
    def broker(self) -> int | None:
        """The id of the broker that it names; None if it names none."""
        named = _NODE.fullmatch(self.kind) and self.kind.startswith(_BROKER)
        return int(self.kind.removeprefix(_BROKER)) if named else None

    def check(self, cluster: Cluster) -> None:
        """Refuse a broker that the cluster does not have."""
        if self.broker is not None and self.broker not in cluster.broker_ids:
            names = ", ".join(map(cluster.name_of, cluster.broker_ids))
            raise UsageError(f"there is no node {self.kind!r}", f"the brokers are {names}")

    def most(self, brokers: int) -> int:
        """How many nodes it may mean, of so many brokers."""
        share = self.arguments[0] if self.kind == "controllers" else self.kind
        return _SHARES[share](brokers) if share in _SHARES else 1

    def resolve(self, cluster: Cluster, rng: random.Random) -> list[str]:
        """The names of the nodes that this target means now."""
        if _NODE.fullmatch(self.kind):
            self.check(cluster)
            return [self.kind]
        if self.kind in _SHARES:
            return [cluster.name_of(b) for b in _draw(cluster.broker_ids, self.kind, rng)]
        if self.kind == "controllers":
            return [cluster.name_of(c) for c in _draw(CONTROLLER_IDS, self.arguments[0], rng)]
        if self.kind == "client":
            return [self.arguments[0]]
        holder = self.role(cluster)
        assert holder is not None
        return [cluster.name_of(holder())]

    def role(self, cluster: Cluster) -> Callable[[], int] | None:
        """Asks who holds the role that this target names; None if it names no role."""
        arguments = self.arguments
        if self.kind == "leader_of":
            return lambda: cluster.leader_of(arguments[0], int(arguments[1]))
        if self.kind == "txn_coordinator":
            return lambda: cluster.txn_coordinator(arguments[0])
        if self.kind == "group_coordinator":
            return lambda: cluster.group_coordinator(arguments[0])
        if self.kind == "active_controller":
            return cluster.active_controller
        return None


def _draw(ids: Sequence[int], share: str, rng: random.Random) -> list[int]:
    return sorted(rng.sample(ids, _SHARES[share](len(ids))))


def _well_formed(kind: str, arguments: tuple[str, ...]) -> bool:
    if kind == "leader_of":
        return len(arguments) == 2 and arguments[1].isdigit()
    if kind == "controllers":
        return len(arguments) == 1 and arguments[0] in _SHARES
    if kind in ("txn_coordinator", "group_coordinator", "client"):
        return len(arguments) == 1 and bool(arguments[0])
    return not arguments and (bool(_NODE.fullmatch(kind)) or kind in _SHARES or kind == "active_controller")
