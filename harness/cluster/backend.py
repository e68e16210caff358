"""Interface of a back end: its nodes, start and removal, and the faults that it supports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from harness.cluster.network_links import NetLinks
from harness.cluster.nodes import Node
from harness.cluster.state_directory import BackendName, ClusterRecord


class Capability(StrEnum):
    """An ability of a back end that a fault may require."""

    LINK = "link"  # Toxiproxy on the clients' links
    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    PARTITION = "partition"  # cut nodes from each other
    CLIENT = "client"  # send signals to the processes of the workload


ALL_CAPABILITIES = frozenset(Capability)


def capabilities_of(backend: BackendName) -> frozenset[Capability]:
    """Return the abilities of a back end. Processes on loopback have no links that can be cut."""
    return ALL_CAPABILITIES - {Capability.PARTITION} if backend == "process" else ALL_CAPABILITIES


class Backend(Protocol):
    """Runs the six nodes and Toxiproxy."""

    @property
    def name(self) -> BackendName:
        """`compose` or `process`."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The abilities; a fault that needs another one is refused."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Return every node, Toxiproxy included."""
        ...

    def prepare(self, report: Callable[[str], None]) -> ClusterRecord:
        """Provide what a start needs and return the completed record."""
        ...

    def start(self) -> None:
        """Start every node."""
        ...

    def destroy(self) -> None:
        """Remove everything that was started, with its data. No error if nothing exists."""
        ...

    @property
    def links(self) -> NetLinks | None:
        """The links between the nodes; None if the back end cannot cut them."""
        ...

    def leftovers(self) -> list[str]:
        """Describe what still exists of the cluster."""
        ...
