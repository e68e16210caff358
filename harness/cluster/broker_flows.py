"""Connections between the brokers of a cluster that runs on this machine, as processes or as containers."""

from __future__ import annotations

from harness.cluster import packet_filter
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.cluster.network_links import BROKER_PORT, node_address
from harness.cluster.packet_filter import Flow


def packets_problem(cluster: Cluster) -> str:
    """Return the reason why packets between the brokers of this cluster cannot be dropped, or ""."""
    if not cluster.owned:
        problem = "its brokers do not run on this machine"
    elif cluster.record.internal_tap:
        problem = "its brokers reach each other through a tap"
    else:
        problem = packet_filter.unavailable(containers=in_containers(cluster)) or _engine_problem(cluster)
    return f"packets of this cluster cannot be dropped: {problem}" if problem else ""


def in_containers(cluster: Cluster) -> bool:
    """Return whether each broker has a network namespace of its own."""
    return cluster.record.backend == "compose"


def _engine_problem(cluster: Cluster) -> str:
    """Return why the namespaces of the brokers' containers cannot be entered, or ""."""
    if not in_containers(cluster):
        return ""
    here = (
        packet_filter.has_address(process_of(cluster, b), _address(cluster, b)) for b in cluster.broker_ids
    )
    return "" if all(here) else "the namespaces of its containers are not on this machine"


def process_of(cluster: Cluster, broker: int) -> int:
    """Return a process in the network namespace of a broker; 0 if that is this process's namespace.

    Also return 0 for a container that does not run: its namespace does not exist.
    """
    return (cluster.node(broker).status().pid or 0) if in_containers(cluster) else 0


def open_flows(cluster: Cluster, sender: int, receiver: int) -> list[Flow]:
    """Return the open connections of one broker to the INTERNAL listener of another, or to its own."""
    if in_containers(cluster):
        source, destination = (process_of(cluster, broker) for broker in (sender, receiver))
        if not source or not destination:
            return []
        return packet_filter.accepted_flows(destination, BROKER_PORT, _address(cluster, sender), source)
    pid = cluster.node(sender).status().pid
    return (
        packet_filter.open_flows(pid, cluster.ports.inner(BrokerListener.INTERNAL, receiver)) if pid else []
    )


def _address(cluster: Cluster, broker: int) -> str:
    return node_address(cluster.ports.subnet, broker)
