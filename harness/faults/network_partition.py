"""Cut nodes from other nodes, in one direction or both, while clients and the observer still reach them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.base.errors import HealError, NoBiteError, UsageError
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, CONTROLLER_IDS, HOST, node_name
from harness.cluster.network_links import Direction
from harness.faults.injection import Measured
from harness.faults.undo import UndoStep
from harness.kafka.connection import answers

ANSWER_S = 5.0  # a busy broker may be late; one behind a cut never answers
_HINT = "`eos status` shows the nodes"


@dataclass(frozen=True)
class Partition:
    """Cut each target from the brokers, the controllers or both.

    A direction is that of opening a connection. `in`: the others cannot open one to the target, `out`: it
    cannot open one to them; `both`: no packet passes. A follower fetches over a connection that it opens to
    the leader, and every broker opens the ones to the controllers.
    """

    name: ClassVar[str] = "partition"
    capability: ClassVar[Capability] = Capability.PARTITION
    moves_roles: ClassVar[bool] = False
    cut_from: Literal["brokers", "controllers", "all"] = "brokers"
    direction: Direction = "both"

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:  # noqa: ARG002
        """Remove the cuts of each target."""
        return [{"do": "uncut", "node": name} for name in names]

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Every link in question is open."""
        for name in names:
            others = memory[name] = self._others(name, names)
            if closed := self._still(cluster, name, others, is_open=False):
                raise NoBiteError(f"{', '.join(closed)} was cut already", _HINT)

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Set the packet filters."""
        for name in names:
            cluster.links.cut(name, memory[name], self.direction)

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """No new connection passes the cut; the ones that it must not touch still do."""
        cut = []
        for name in names:
            if passed := self._still(cluster, name, memory[name], is_open=True):
                raise NoBiteError(f"{', '.join(passed)} still passes", _HINT)
            cut += [f"{name} {self._arrow} {other}" for other in memory[name]]
            self._untouched(cluster, name, memory[name])
        return {"unreachable": cut}

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """Every link is open again and every target serves."""
        for name in names:
            if closed := self._still(cluster, name, memory[name], is_open=False):
                raise HealError(f"{', '.join(closed)} is still cut", _HINT)
        return {name: f"served after {cluster.wait_serving(name):.1f} s" for name in names}

    @property
    def _arrow(self) -> str:
        return {"in": "<-", "out": "->", "both": "<->"}[self.direction]

    def _others(self, name: str, names: list[str]) -> list[str]:
        """The nodes that `name` is cut from; targets stay together, on the same side."""
        groups = {"brokers": BROKER_IDS, "controllers": CONTROLLER_IDS, "all": (*BROKER_IDS, *CONTROLLER_IDS)}
        others = [node_name(i) for i in groups[self.cut_from] if node_name(i) not in names]
        if not others:
            raise UsageError(f"nothing is left to cut {name} from", "name fewer targets")
        if self.direction == "in" and name.startswith("kafka") and self.cut_from == "controllers":
            raise UsageError("controllers open no connections to brokers", 'use direction = "out" or "both"')
        return others

    def _still(self, cluster: Cluster, name: str, others: list[str], *, is_open: bool) -> list[str]:
        """The links in the cut's direction that are open, or that are closed."""
        probes = [(name, others)] if self.direction != "in" else []
        probes += [(other, [name]) for other in others] if self.direction != "out" else []
        # Side by side: a cut link answers nothing, and is waited for once.
        with ThreadPoolExecutor(len(probes)) as pool:
            answered = list(pool.map(lambda probe: cluster.links.open_to(*probe), probes))
        return [
            f"{start} -> {end}"
            for (start, _), reached in zip(probes, answered, strict=True)
            for end, passes in reached.items()
            if passes is is_open
        ]

    def _untouched(self, cluster: Cluster, name: str, others: list[str]) -> None:
        """The other direction of a one-way cut is open, and a broker still answers clients and observer."""
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
        if node_id in BROKER_IDS:
            for door, port in (
                ("DIRECT", cluster.ports.direct(node_id)),
                ("PROXIED", cluster.ports.proxied(node_id)),
            ):
                if not answers(HOST, port, ANSWER_S):
                    raise NoBiteError(
                        f"{name} no longer answers on {door}: the cut hit more than it may", _HINT
                    )
