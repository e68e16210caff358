"""What a group's coordinator says of its committed positions, asked by raw requests."""

from __future__ import annotations

from typing import NamedTuple

from harness.kafka.admin import Admin
from harness.kafka.connection import KafkaAnswerError

Place = tuple[str, int]


class Committed(NamedTuple):
    """A group's position in a partition, -1 if there is none; or why it is not told."""

    offset: int
    error: str


def committed(admin: Admin, coordinator: int, group: str, place: Place, *, stable: bool) -> Committed:
    """Ask a coordinator for a position; `stable`: it shall say so if a transaction is about to change it."""
    from kafka.errors import for_code
    from kafka.protocol.consumer import OffsetFetchRequest

    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    request = OffsetFetchRequest(
        group_id=group,
        topics=[topic(name=place[0], partition_indexes=[place[1]])],
        require_stable=stable,
        version=7,
    )
    answer = admin.call(coordinator, request)
    if answer.error_code:
        raise KafkaAnswerError(f"positions of {group}", answer.error_code)
    found = answer.topics[0].partitions[0]
    error = for_code(found.error_code).message if found.error_code else "NONE"
    return Committed(found.committed_offset, error)
