"""Committed offsets of a consumer group, as its coordinator reports them."""

from __future__ import annotations

from typing import Any, NamedTuple

from harness.base.partition_id import PartitionId, partition_name
from harness.kafka.admin import Admin
from harness.kafka.errors import check, error_name


class CommittedOffset(NamedTuple):
    """A group's committed offset in a partition (-1: none), and the error name for this partition."""

    offset: int
    error: str


def committed_offset(
    admin: Admin, coordinator: int, group: str, partition_id: PartitionId, *, stable: bool
) -> CommittedOffset:
    """Return the committed offset of a group in one partition.

    An offset is pending while the transaction that commits it is open. With `stable`, the error is
    UNSTABLE_OFFSET_COMMIT while the partition has a pending offset.
    """
    from kafka.protocol.consumer import OffsetFetchRequest

    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    wanted = [topic(name=partition_id[0], partition_indexes=[partition_id[1]])]
    partition = _fetch(admin, coordinator, group, wanted, stable=stable).topics[0].partitions[0]
    return CommittedOffset(partition.committed_offset, error_name(partition.error_code))


def stable_offsets(admin: Admin, group: str) -> dict[PartitionId, int]:
    """Return every committed offset of a group; raise KafkaAnswerError while any offset is pending.

    An offset is pending while the transaction that commits it is open.
    """
    answer = _fetch(admin, admin.coordinator("group", group), group, None, stable=True)
    offsets: dict[PartitionId, int] = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            partition_id = (str(topic.name), int(partition.partition_index))
            check(f"offset of {group} in {partition_name(partition_id)}", partition.error_code)
            if partition.committed_offset >= 0:
                offsets[partition_id] = int(partition.committed_offset)
    return offsets


def _fetch(admin: Admin, coordinator: int, group: str, topics: list[Any] | None, *, stable: bool) -> Any:
    from kafka.protocol.consumer import OffsetFetchRequest

    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable, version=7)
    answer = admin.call(coordinator, request)
    check(f"offsets of group {group}", answer.error_code)
    return answer
