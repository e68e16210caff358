"""Fault that cuts the network between nodes, in one or both directions.

Clients and the observer of the harness still reach these nodes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.base.errors import HealError, NoBiteError, UsageError
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.cluster.network_links import Direction
from harness.faults.injection import Fault, FaultContext, Measured
from harness.faults.undo import UndoStep, undo_verb

# Time limit in seconds for a target broker to answer clients during the fault. A busy broker may need some of
# this time. A broker that the fault has wrongly cut from its clients never answers.
ANSWER_S = 5.0
_HINT = "`eos status` shows the nodes"
Others = dict[str, list[str]]
"""Map from the name of each target node to the names of the nodes from which the fault cuts it."""


@undo_verb
def uncut(cluster: Cluster, node: str) -> None:
    cluster.links.uncut(node)


@dataclass(frozen=True)
class Partition(Fault[Others]):
    """Fault that cuts each target node from the brokers, the controllers or both.

    `direction` refers to the node that opens a connection. With `in`, the other nodes cannot open connections
    to the target. With `out`, the target cannot open connections to the other nodes. With `both`, no packet
    passes. For example, a follower opens a connection to the leader to fetch, and every broker opens
    connections to the controllers.
    """

    name: ClassVar[str] = "partition"
    capability: ClassVar[Capability] = Capability.PARTITION
    cut_from: Literal["brokers", "controllers", "all"] = "brokers"
    direction: Direction = "both"

    def undo_steps(self, context: FaultContext[Others]) -> list[UndoStep]:
        return [uncut.step(node=name) for name in context.nodes]

    def before(self, context: FaultContext[Others]) -> Others:
        """Check that every link that the fault will cut is open.

        Return the nodes from which each target will be cut.
        """
        others = {name: self._others(context, name) for name in context.nodes}
        for name in context.nodes:
            if closed := self._still(context.cluster, name, others[name], is_open=False):
                raise NoBiteError(f"{', '.join(closed)} was cut already", _HINT)
        return others

    def apply(self, context: FaultContext[Others]) -> None:
        """Set packet filters that block the traffic between each target and the nodes in `context.state`."""
        for name in context.nodes:
            context.cluster.links.cut(name, context.state[name], self.direction)

    def bite(self, context: FaultContext[Others]) -> Measured:
        """Check that no new connection passes a cut link, and that the fault cut nothing else.

        The other direction of a one-way cut must be open, and a target broker must still answer clients.
        """
        cut = []
        for name in context.nodes:
            others = context.state[name]
            if passed := self._still(context.cluster, name, others, is_open=True):
                raise NoBiteError(f"{', '.join(passed)} still passes", _HINT)
            cut += [f"{name} {self._arrow} {other}" for other in others]
            self._check_untouched(context.cluster, name, others)
        return {"unreachable": cut}

    def health(self, context: FaultContext[Others]) -> Measured:
        """Check that every cut link is open again, and wait until every target node serves."""
        for name in context.nodes:
            if closed := self._still(context.cluster, name, context.state[name], is_open=False):
                raise HealError(f"{', '.join(closed)} is still cut", _HINT)
        return {name: f"served after {context.cluster.wait_serving(name):.1f} s" for name in context.nodes}

    @property
    def _arrow(self) -> str:
        return {"in": "<-", "out": "->", "both": "<->"}[self.direction]

    def _others(self, context: FaultContext[Others], name: str) -> list[str]:
        """Return the nodes from which the target `name` is cut.

        The targets themselves stay connected to each other.
        """
        cluster = context.cluster
        brokers, controllers = cluster.broker_ids, cluster.controller_ids
        groups = {"brokers": brokers, "controllers": controllers, "all": (*brokers, *controllers)}
        others = [
            cluster.name_of(i) for i in groups[self.cut_from] if cluster.name_of(i) not in context.nodes
        ]
        if not others:
            raise UsageError(
                f"every node of `cut_from` is a target, so {name} cannot be cut from any",
                "name fewer targets",
            )
        is_broker = cluster.node(name).node_id in brokers
        if self.direction == "in" and is_broker and self.cut_from == "controllers":
            raise UsageError("controllers open no connections to brokers", 'use direction = "out" or "both"')
        return others

    def _still(self, cluster: Cluster, name: str, others: list[str], *, is_open: bool) -> list[str]:
        """Return the open links between `name` and `others`; the closed ones if `is_open` is false.

        Only the directions that the fault cuts are probed.
        """
        probes = [(name, others)] if self.direction != "in" else []
        probes += [(other, [name]) for other in others] if self.direction != "out" else []
        # Probe in parallel, because each probe of a cut link lasts for the whole time limit.
        with ThreadPoolExecutor(len(probes)) as pool:
            answered = list(pool.map(lambda probe: cluster.links.open_to(*probe), probes))
        return [
            f"{start} -> {end}"
            for (start, _), reached in zip(probes, answered, strict=True)
            for end, passes in reached.items()
            if passes is is_open
        ]

    def _check_untouched(self, cluster: Cluster, name: str, others: list[str]) -> None:
        """Check that a one-way cut left the opposite direction of each link open.

        If the target `name` is a broker, also check that it still answers clients.
        """
        if self.direction == "in":
            blocked = [o for o, passes in cluster.links.open_to(name, others).items() if not passes]
        elif self.direction == "out":
            blocked = [o for o in others if not cluster.links.open_to(o, [name])[name]]
        else:
            blocked = []
        if blocked:
            raise NoBiteError(
                f"the cut of {name} also hit the other direction of {', '.join(blocked)}", _HINT
            )
        node_id = cluster.node(name).node_id
        if node_id in cluster.broker_ids:
            for listener in (BrokerListener.DIRECT, BrokerListener.PROXIED):
                if not cluster.answers(node_id, ANSWER_S, listener):
                    raise NoBiteError(
                        f"{name} no longer answers on {listener}: the cut hit more than it may", _HINT
                    )
