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
from collections.abc import Callable
from dataclasses import dataclass

from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, CONTROLLER_IDS, node_name
from harness.errors import UsageError

_SHARES = {"one": 1, "minority": 1, "majority": 2, "all": 3}
_NODES = {node_name(i) for i in (*BROKER_IDS, *CONTROLLER_IDS)}
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
        if self.kind in _NODES:
            return self.kind
        if self.kind in _SHARES:
            return ", ".join(_draw(BROKER_IDS, self.kind, rng))
        if self.kind == "controllers":
            return ", ".join(_draw(CONTROLLER_IDS, self.arguments[0], rng))
        return "resolved when it is injected"

    def resolve(self, cluster: Cluster, rng: random.Random) -> list[str]:
        """The names of the nodes that this target means now."""
        if self.kind in _NODES:
            return [self.kind]
        if self.kind in _SHARES:
            return _draw(BROKER_IDS, self.kind, rng)
        if self.kind == "controllers":
            return _draw(CONTROLLER_IDS, self.arguments[0], rng)
        if self.kind == "client":
            return [self.arguments[0]]
        holder = self.role(cluster)
        assert holder is not None
        return [node_name(holder())]

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


def _draw(ids: tuple[int, ...], share: str, rng: random.Random) -> list[str]:
    return [node_name(i) for i in sorted(rng.sample(ids, _SHARES[share]))]


def _well_formed(kind: str, arguments: tuple[str, ...]) -> bool:
    if kind == "leader_of":
        return len(arguments) == 2 and arguments[1].isdigit()
    if kind == "controllers":
        return len(arguments) == 1 and arguments[0] in _SHARES
    if kind in ("txn_coordinator", "group_coordinator", "client"):
        return len(arguments) == 1 and bool(arguments[0])
    return not arguments and (kind in _NODES or kind in _SHARES or kind == "active_controller")
