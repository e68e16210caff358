"""Health checks of a cluster that the harness started. The cheapest check runs first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cluster.broker_settings import SESSION_TIMEOUT_MS
from harness.cluster.nodes import Condition
from harness.kafka.admin import PartitionInfo

if TYPE_CHECKING:
    from harness.cluster.cluster import Cluster


def ailments(cluster: Cluster) -> list[str]:
    """Return the problems that the first failing check finds.

    The checks after it are skipped, because each check depends on the earlier ones.
    """
    checks = (_ailing_nodes, _silent_brokers, _ailing_proxies, _ailing_metadata)
    return next((problems for check in checks if (problems := check(cluster))), [])


def ailing(partition: PartitionInfo) -> bool:
    """Return whether a partition has no leader, or has a replica outside of the ISR."""
    return partition.leader < 0 or set(partition.isr) != set(partition.replicas)


def describe_partition(partition: PartitionInfo) -> str:
    """Describe the leader, ISR and replicas of an unhealthy partition."""
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
    problems = []
    for broker in cluster.broker_ids:
        view = cluster.admin.metadata(None, broker=broker)
        if missing := set(cluster.broker_ids) - view.brokers:
            problems.append(f"broker {broker} does not see {sorted(missing)}")
        problems += [describe_partition(p) for p in view.partitions if ailing(p)][:3]
    quorum = cluster.admin.quorum()
    # A controller lags behind the quorum for a moment after each new record. If it lags for longer than a
    # session timeout, it no longer follows the leader.
    if lagging := [voter for voter, ms in quorum.behind_ms.items() if ms > SESSION_TIMEOUT_MS]:
        problems.append(f"controllers {lagging} lag behind the quorum")
    return problems
