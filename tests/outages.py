"""Helper that starts a stopped broker and returns the broker's view of a topic."""

from __future__ import annotations

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster

Led = list[tuple[int, tuple[int, ...]]]


def restart_broker(cluster: Cluster, broker: int, topic: str) -> Led:
    """Start a broker; return leader and ISR of each partition of a topic, as this broker reports them."""
    cluster.node(broker).start()

    def leaders_and_isrs() -> Led:
        view = cluster.admin.metadata([topic], broker=broker)
        return [(p.leader, p.isr) for p in view.partitions] if broker in view.brokers else []

    return wait_until(leaders_and_isrs, 60, f"broker {broker} to be back")
