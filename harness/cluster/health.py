"""What ails a cluster of our own, from the cheap to the telling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cluster.broker_settings import SESSION_TIMEOUT_MS
from harness.cluster.nodes import Condition
from harness.kafka.admin import PartitionInfo

if TYPE_CHECKING:
    from harness.cluster.cluster import Cluster


def ailments(cluster: Cluster) -> list[str]:
    """What the first check finds that finds something: a later one would stumble over it."""
    checks = (_ailing_nodes, _silent_brokers, _ailing_proxies, _ailing_metadata)
    return next((found for check in checks if (found := check(cluster))), [])


def ailing(partition: PartitionInfo) -> bool:
    """Whether a partition has no leader, or not every replica in sync."""
    return partition.leader < 0 or set(partition.isr) != set(partition.replicas)


def describe_partition(partition: PartitionInfo) -> str:
    """An ailing partition in words."""
    place = f"{partition.topic}-{partition.partition}"
    return f"{place} has leader {partition.leader}, ISR {list(partition.isr)} of {list(partition.replicas)}"


def _ailing_nodes(cluster: Cluster) -> list[str]:
    states = {name: node.status() for name, node in cluster.nodes.items()}
    return [f"{name} is {s}" for name, s in states.items() if s.condition is not Condition.RUNNING]


def _silent_brokers(cluster: Cluster) -> list[str]:
    silent = [b for b in cluster.broker_ids if not cluster.answers(b)]
    return [f"{cluster.name_of(b)} does not answer on DIRECT" for b in silent]


def _ailing_proxies(cluster: Cluster) -> list[str]:
    return [
        f"proxy {p.name} is {'toxic' if p.enabled else 'down'}"
        for p in cluster.toxiproxy.proxies()
        if not p.enabled or p.toxics
    ]


def _ailing_metadata(cluster: Cluster) -> list[str]:
    found = []
    for broker in cluster.broker_ids:
        view = cluster.admin.metadata(None, broker=broker)
        if missing := set(cluster.broker_ids) - view.brokers:
            found.append(f"broker {broker} does not see {sorted(missing)}")
        found += [describe_partition(p) for p in view.partitions if ailing(p)][:3]
    quorum = cluster.admin.quorum()
    # A voter is behind for a moment with every record; one that stays behind does not follow.
    if lagging := [voter for voter, ms in quorum.behind_ms.items() if ms > SESSION_TIMEOUT_MS]:
        found.append(f"controllers {lagging} lag behind the quorum")
    return found
