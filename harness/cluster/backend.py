"""Interface of a back end: its nodes, their start and removal, and the faults that it supports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from harness.cluster.network_links import NetLinks
from harness.cluster.nodes import Node
from harness.cluster.state_directory import BackendName, ClusterRecord


class Capability(StrEnum):
    """Ability of a back end that a fault may require."""

    LINK = "link"  # Toxiproxy between the clients and the brokers
    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    PARTITION = "partition"  # cut the network between nodes
    CLIENT = "client"  # send signals to the processes of the workload


ALL_CAPABILITIES = frozenset(Capability)


def capabilities_of(backend: BackendName) -> frozenset[Capability]:
    """Return the abilities of a back end. The process back end cannot cut the links between its nodes."""
    return ALL_CAPABILITIES - {Capability.PARTITION} if backend == "process" else ALL_CAPABILITIES


class Backend(Protocol):
    """A back end: it runs the six Kafka nodes and Toxiproxy."""

    @property
    def name(self) -> BackendName:
        """Name of the back end: `compose` or `process`."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Abilities of the back end. A fault that needs any other ability is refused."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Return every node, including Toxiproxy."""
        ...

    def prepare(self, report: Callable[[str], None]) -> ClusterRecord:
        """Fetch or build what the start needs, and return the cluster record with these parts filled in."""
        ...

    def start(self) -> None:
        """Start every node."""
        ...

    def destroy(self) -> None:
        """Remove every node with its data. Do nothing if no node exists."""
        ...

    @property
    def links(self) -> NetLinks | None:
        """Links between the nodes; None if the back end cannot cut them."""
        ...

    def leftovers(self) -> list[str]:
        """Describe the processes, containers and data of the cluster that still exist."""
        ...
