"""Interface of a back end. It starts and removes a cluster's nodes, and declares the supported faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

from harness.cluster.network_links import NetLinks
from harness.cluster.nodes import Node
from harness.cluster.state_directory import BackendName, ClusterRecord


class Capability(StrEnum):
    """One ability of a back end, such as freezing a node. Each fault states which ability it needs."""

    LINK = "link"  # there is a Toxiproxy between the clients and the brokers
    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    PARTITION = "partition"  # the network between nodes can be cut
    INTERNAL_TAP = "internal_tap"  # a wire tap can be put between the brokers
    CLIENT = "client"  # signals can be sent to the client processes
    VERSION = "version"  # a node can be restarted with another version of Kafka


ALL_CAPABILITIES = frozenset(Capability)


def capabilities_of(backend: BackendName) -> frozenset[Capability]:
    """Return the capabilities of a back end.

    The process back end cannot cut links between its nodes. The harness sets no version of the nodes of an
    external cluster.
    """
    lacks = {"process": Capability.PARTITION, "external": Capability.VERSION}
    return ALL_CAPABILITIES - {lacks[backend]} if backend in lacks else ALL_CAPABILITIES


class Backend(Protocol):
    """A back end: the means by which the harness runs the six Kafka nodes and Toxiproxy."""

    @property
    def name(self) -> BackendName:
        """Name of the back end: `compose` or `process`."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities of the back end. The harness refuses a fault that needs any other capability."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Return every node, including Toxiproxy."""
        ...

    def prepare(self, report: Callable[[str], None]) -> ClusterRecord:
        """Fetch or build the images or binaries that are needed to start the nodes.

        Return the cluster record of this cluster. The compose back end adds the names of its images to this
        record.
        """
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
        """Describe the processes, containers and data of the cluster that still exist, one line for each."""
        ...


@runtime_checkable
class VersionedNodes(Protocol):
    """A back end in which each node has its own version of Kafka, and keeps its data when it changes."""

    def version_of(self, node: str) -> str:
        """Return the version of Kafka with which a node starts."""
        ...

    def provide_version(self, version: str) -> None:
        """Fetch or build what nodes with a version of Kafka need, before a node is stopped."""
        ...

    def set_version(self, node: str, version: str) -> None:
        """Set the version of Kafka with which a node starts the next time. It must not run."""
        ...
