"""Transactions on partitions that lose their leader: whose coordinator lives on, when the loss is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.clients.scripted.scripted_client import Scripted
from harness.cluster.cluster import Cluster
from harness.walkthroughs.stage import Stage

TIMEOUT_MS: Final = 10_000
_SUFFIXES: Final = ("", *"abcdefghijklmnopqrst")


def surviving_client(
    stage: Stage,
    name: str,
    number: int,
    lost: Sequence[int],
    lanes: Sequence[int],
    *,
    library: str = "confluent-kafka",
    timeout_ms: int = TIMEOUT_MS,
) -> Scripted:
    """A producer whose coordinator is none of the brokers `lost`: its name is chosen so."""
    found = next(
        f"{name}{suffix}"
        for suffix in _SUFFIXES
        if stage.cluster.txn_coordinator(f"{name}{suffix}.{stage.run}") not in lost
    )
    client = Scripted(
        run=stage.run,
        name=found,
        number=number,
        library=library,
        bootstrap=stage.cluster.bootstrap("TAPPED"),
        topic=stage.topic,
        partitions=lanes,
        histories=stage.directory / "history",
        timeout_ms=timeout_ms,
    )
    stage.transactional_ids.append(client.transactional_id)
    return client


def wait_leaderless(cluster: Cluster, place: PartitionId, survivors: Sequence[int]) -> None:
    """Wait until every broker that is left knows that a partition has no leader."""
    topic, partition = place

    def known(broker: int) -> bool:
        found = cluster.admin.metadata([topic], broker=broker).partitions
        return any(p.leader < 0 for p in found if p.partition == partition)

    for broker in survivors:
        wait_until(
            lambda b=broker: known(b),  # type: ignore[misc]
            30,
            f"broker {broker} to know that {topic}-{partition} has no leader",
        )
