"""The identity of a partition: its topic and its number."""

from __future__ import annotations

PartitionId = tuple[str, int]
"""Topic and partition number. It is not called TopicPartition, which is a class of the client library."""


def partition_name(partition_id: PartitionId) -> str:
    """Return `topic-number`, as Kafka names the partition's directory."""
    return f"{partition_id[0]}-{partition_id[1]}"
