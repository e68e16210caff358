"""What a back end must offer: nodes, a start, an end that leaves nothing, and what it is capable of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from harness.cluster.network_links import NetLinks
from harness.cluster.nodes import Node
from harness.cluster.state_directory import BackendName, ClusterRecord


class Capability(StrEnum):
    """What a fault may need of a back end."""

    LINK = "link"  # Toxiproxy on the clients' links
    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    PARTITION = "partition"  # cut nodes from each other
    CLIENT = "client"  # signals to the processes of the workload


ALL_CAPABILITIES = frozenset(Capability)


def capabilities_of(backend: BackendName) -> frozenset[Capability]:
    """What a back end can do; processes on loopback have no links between them to cut."""
    return ALL_CAPABILITIES - {Capability.PARTITION} if backend == "process" else ALL_CAPABILITIES


class Backend(Protocol):
    """Runs the six nodes and Toxiproxy."""

    @property
    def name(self) -> BackendName:
        """`compose` or `process`."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do; what is missing is refused by name."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Every node, Toxiproxy included."""
        ...

    def prepare(self, report: Callable[[str], None]) -> ClusterRecord:
        """Provide what a start needs; return the record with what was decided on the way."""
        ...

    def start(self) -> None:
        """Start every node."""
        ...

    def destroy(self) -> None:
        """Remove everything that was started and its data; harmless if nothing is there."""
        ...

    @property
    def links(self) -> NetLinks | None:
        """The links between the nodes, where they can be cut."""
        ...

    def leftovers(self) -> list[str]:
        """What is still there of the cluster, in words."""
        ...
