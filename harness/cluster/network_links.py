"""Network links between containers: the harness cuts them, and probes which of them are open.

A helper container joins the network namespace of a node and sets packet filters there. This needs no root on
the host and does not change the host's filters. It also works if the Docker engine runs in a virtual machine
(Docker Desktop).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import psutil

from harness.base.errors import HarnessError
from harness.cluster.layout import BROKER_IDS, Ports
from harness.cluster.nodes import Condition

if TYPE_CHECKING:
    from harness.cluster.compose_backend import ContainerNode
    from harness.provision.docker_engine import Engine

Direction = Literal["in", "out", "both"]
BROKER_PORT, _CONTROLLER_PORT = 9092, 9093  # ports of the listeners INTERNAL and CONTROLLER
_PROBE_S = 1


def node_address(subnet: str, node_id: int) -> str:
    """Return the fixed IP address that docker-compose.yml gives to a node."""
    return f"{subnet}.{10 + node_id}"


def reaches_containers(ports: Ports) -> bool:
    """Return whether the containers' network ends on this host, so that the two reach each other."""
    here = {a.address for addresses in psutil.net_if_addrs().values() for a in addresses}
    return ports.gateway in here


def served_port(node_id: int) -> int:
    """Return the port on which a node accepts connections from other nodes."""
    return BROKER_PORT if node_id in BROKER_IDS else _CONTROLLER_PORT


class NetLinks:
    """Network links between the containers of one cluster."""

    def __init__(self, engine: Engine, image: str, subnet: str, nodes: Mapping[str, ContainerNode]) -> None:
        self._engine = engine
        self._image = image
        self._subnet = subnet
        self._nodes = nodes

    def cut(self, node: str, others: list[str], direction: Direction) -> None:
        """Drop packets between the node `node` and the nodes `others`.

        `direction` selects the connections whose packets are dropped. `in` selects connections that the
        others open to the node. `out` selects connections that the node opens to the others. `both` drops all
        packets.
        """
        for port, peers in self._by_port(node, others, direction).items():
            self._run(node, "cut", direction, str(port), *peers)

    def uncut(self, node: str) -> None:
        """Remove every packet filter of a node. Do nothing if the node has none or does not run."""
        if (
            self._nodes[node].status().condition is not Condition.EXITED
        ):  # a node that has exited has no network namespace, so no filters
            self._run(node, "heal")

    def open_to(self, node: str, others: list[str]) -> dict[str, bool]:
        """Return, for each node in `others`, whether the node `node` can open a connection to it."""
        ids = {node_address(self._subnet, self._nodes[o].node_id): o for o in others}
        reached: dict[str, bool] = {}
        for port, peers in self._by_port(node, others, "out").items():
            for line in self._run(node, "probe", str(_PROBE_S), str(port), *peers).splitlines():
                peer, result = line.split()
                reached[ids[peer]] = result == "open"
        if missing := set(others) - set(reached):
            raise HarnessError(f"the probe from {node} did not report {sorted(missing)}", "run `eos doctor`")
        return reached

    def _by_port(self, node: str, others: list[str], direction: Direction) -> dict[int, list[str]]:
        """Group the addresses of the nodes `others` by the port that the filter or probe must use.

        With direction `out`, `node` opens the connections. The port is then the one on which the other node
        accepts connections. Otherwise, it is the port on which `node` accepts connections.
        """
        grouped: dict[int, list[str]] = {}
        for other in others:
            served_by = other if direction == "out" else node
            port = served_port(self._nodes[served_by].node_id)
            grouped.setdefault(port, []).append(node_address(self._subnet, self._nodes[other].node_id))
        return grouped

    def _run(self, node: str, *command: str) -> str:
        return self._engine.run_beside(self._nodes[node].container, self._image, list(command))
