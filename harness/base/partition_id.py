"""The identity of a partition: its topic and its number."""

from __future__ import annotations

PartitionId = tuple[str, int]
"""A topic and a partition number. This type is not named TopicPartition, because the client library has a
class of that name.
"""


def partition_name(partition_id: PartitionId) -> str:
    """Return the name `topic-number`, which is also Kafka's name for the partition's directory."""
    return f"{partition_id[0]}-{partition_id[1]}"
