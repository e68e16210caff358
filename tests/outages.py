"""Brokers that come back one by one, and what they find."""

from __future__ import annotations

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster

Led = list[tuple[int, tuple[int, ...]]]


def brought_back(cluster: Cluster, broker: int, topic: str) -> Led:
    """Start a broker: leader and ISR of each of the topic's partitions, as it sees them when it is back."""
    cluster.node(broker).start()

    def seen() -> Led:
        view = cluster.admin.metadata([topic], broker=broker)
        return [(p.leader, p.isr) for p in view.partitions] if broker in view.brokers else []

    return wait_until(seen, 60, f"broker {broker} to be back")
