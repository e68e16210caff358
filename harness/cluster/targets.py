"""Targets: the nodes, or the process, that a fault affects. A role is resolved at the injection of the fault.

kafka-2, controller-11            the node with this name
one, minority, majority, all      one broker, or this share of the brokers, drawn with the seed of the plan
controllers(one), ...             one controller, or this share of the controllers, drawn with the same seed
leader_of(topic, partition)       the broker that leads the partition at the injection
txn_coordinator(id)               the broker that coordinates this transactional id at the injection
group_coordinator(group)          the broker that coordinates this group at the injection
active_controller                 the controller that leads the quorum at the injection
client(name)                      a client of the workload; the name may contain `*`
app(name)                         an instance of the application under test; the name may contain `*`
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

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
_CONTROLLERS = tuple(map(node_name, CONTROLLER_IDS))
# The pattern accepts any broker id, because an external cluster may use any ids. The method `check` rejects
# a broker that the cluster does not have.
_NODE = re.compile("|".join([_BROKER + r"(?:0|[1-9]\d*)", *_CONTROLLERS]))
# Roles whose first argument is the name of a topic or group, or a transactional id. Each run uses its own
# names for topics, groups and transactional ids, so `scoped` must replace this argument.
_NAMED_ROLES = ("leader_of", "txn_coordinator", "group_coordinator")
_CLIENT_PATTERN = re.compile(r"[\w.*~-]+")
_ALLOWED = (
    "a node name, one, minority, majority, all, controllers(one), leader_of(topic, partition), "
    "txn_coordinator(id), group_coordinator(group), active_controller, client(name) or app(name)"
)


class Target(str):
    """A parsed target, such as `leader_of(orders, 0)`.

    A target is also a string: the text from which it was parsed.
    """

    __slots__ = ("arguments", "kind")
    kind: str
    arguments: tuple[str, ...]

    @classmethod
    def parse(cls, text: object) -> Target:
        """Parse the text of a target. If it is invalid, raise UsageError with the allowed forms."""
        if isinstance(text, cls):
            return text
        match = isinstance(text, str) and re.fullmatch(r"\s*([a-z0-9_-]+)\s*(?:\(([^()]*)\))?\s*", text)
        if match:
            kind, inside = match[1], match[2]
            arguments = tuple(part.strip() for part in inside.split(",")) if inside else ()
            if _is_well_formed(kind, arguments):
                return cls._made(match[0].strip(), kind, arguments)
        raise UsageError(f"target {text!r} is not known", f"use {_ALLOWED}")

    @classmethod
    def _made(cls, text: str, kind: str, arguments: tuple[str, ...]) -> Target:
        target = super().__new__(cls, text)
        target.kind, target.arguments = kind, arguments
        return target

    @property
    def client(self) -> str | None:
        """Name or pattern of the client; None if the target is a node."""
        return self.arguments[0] if self.kind == "client" else None

    @property
    def app(self) -> str | None:
        """Name or pattern of an instance of the application under test; None for any other target."""
        return self.arguments[0] if self.kind == "app" else None

    @property
    def process(self) -> str | None:
        """Name or pattern of the client or instance; None if the target is a node."""
        return self.client if self.client is not None else self.app

    @property
    def broker(self) -> int | None:
        """Id of the broker if the target names a broker, such as `kafka-2`; None for any other target."""
        named = _NODE.fullmatch(self.kind) and self.kind.startswith(_BROKER)
        return int(self.kind.removeprefix(_BROKER)) if named else None

    @property
    def hits_controllers(self) -> bool:
        """Whether the target consists of controllers only."""
        return self.kind in ("controllers", "active_controller", *_CONTROLLERS)

    def scoped(self, scoped_name: Callable[[str], str]) -> Target:
        """Return a copy of the target with another name for its topic, group or transactional id.

        The function `scoped_name` returns the new name for an old one. A target without such a name is
        returned unchanged.
        """
        if self.kind not in _NAMED_ROLES:
            return self
        arguments = (scoped_name(self.arguments[0]), *self.arguments[1:])
        return self._made(f"{self.kind}({', '.join(arguments)})", self.kind, arguments)

    def drawn(self, seed: int) -> Target:
        """Replace a random choice of one node, such as the target `one`, by the node that this seed selects.

        Return any other target unchanged. This includes a random choice of several nodes.
        """
        names = self._drawn_names(random.Random(seed))
        return Target.parse(names[0]) if names is not None and len(names) == 1 else self

    def preview(self, seed: int) -> str:
        """Describe the nodes to which the target resolves with this seed, without access to a cluster.

        For a client, or for a role such as `leader_of(orders, 0)`, return a note that the target is resolved
        when the fault is injected.
        """
        if _NODE.fullmatch(self.kind):
            return self.kind
        names = self._drawn_names(random.Random(seed))
        return "resolved when it is injected" if names is None else ", ".join(names)

    def _drawn_names(self, rng: random.Random) -> list[str] | None:
        if self.kind in _SHARES:
            return [node_name(i) for i in _draw(BROKER_IDS, self.kind, rng)]
        if self.kind == "controllers":
            return [node_name(i) for i in _draw(CONTROLLER_IDS, self.arguments[0], rng)]
        return None

    def check(self, cluster: Cluster) -> None:
        """Raise UsageError if the target names a broker that the cluster does not have."""
        if self.broker is not None and self.broker not in cluster.broker_ids:
            names = ", ".join(map(cluster.name_of, cluster.broker_ids))
            raise UsageError(f"there is no node {self.kind!r}", f"the brokers are {names}")

    def most_brokers(self, brokers: int) -> int:
        """Return the largest number of nodes that the target can hit in a cluster with `brokers` brokers."""
        if self.process is not None:
            return 0
        share = self.arguments[0] if self.kind == "controllers" else self.kind
        return _SHARES[share](brokers) if share in _SHARES else 1

    def resolve(self, cluster: Cluster, rng: random.Random) -> list[str]:
        """Return the names of the nodes to which the target resolves now.

        `rng` draws the nodes if the target is a random choice, such as `one`. If the target is a client,
        return the client's name or name pattern instead.
        """
        if _NODE.fullmatch(self.kind):
            self.check(cluster)
            return [self.kind]
        if self.kind in _SHARES:
            return [cluster.name_of(b) for b in _draw(cluster.broker_ids, self.kind, rng)]
        if self.kind == "controllers":
            return [cluster.name_of(c) for c in _draw(cluster.controller_ids, self.arguments[0], rng)]
        if self.process is not None:
            return [self.process]
        holder = self.role(cluster)
        assert holder is not None
        return [cluster.name_of(holder())]

    def role(self, cluster: Cluster) -> Callable[[], int] | None:
        """Return a function that asks the cluster which node has the target's role now.

        Return None if the target is not a role such as `leader_of(orders, 0)`.
        """
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


def _is_well_formed(kind: str, arguments: tuple[str, ...]) -> bool:
    if kind == "leader_of":
        return len(arguments) == 2 and bool(arguments[0]) and arguments[1].isdigit()
    if kind == "controllers":
        return len(arguments) == 1 and arguments[0] in _SHARES
    if kind in ("txn_coordinator", "group_coordinator"):
        return len(arguments) == 1 and bool(arguments[0])
    if kind in ("client", "app"):
        return len(arguments) == 1 and bool(_CLIENT_PATTERN.fullmatch(arguments[0]))
    return not arguments and (bool(_NODE.fullmatch(kind)) or kind in _SHARES or kind == "active_controller")
