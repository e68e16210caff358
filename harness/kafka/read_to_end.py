"""Reading of partitions to their end offsets with a plain consumer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from harness.base.partition_id import PartitionId

MESSAGES_PER_POLL: Final = 2000
POLL_S: Final = 0.1
_REQUIRED: Final = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "log_level": 0,
}


def read_to_end(
    config: Mapping[str, Any],
    positions: dict[PartitionId, int],
    take: Callable[[PartitionId, Message], None],
    deadline: float,
    *,
    ends: Mapping[PartitionId, int] | None = None,
    close: Callable[[Consumer], None] = Consumer.close,
) -> list[PartitionId]:
    """Read partitions up to, not including, `ends`; return the partitions that were not read to their end.

    `config` must contain bootstrap.servers, group.id and isolation.level. `positions` contains the offset
    from which to read each partition; the call replaces it with the next offset to read. The call passes
    every record before the end to `take`, and commits no offsets. Without `ends`, a partition ends where the
    consumer reports its end: for read_committed, that is the last stable offset. Reading stops at `deadline`
    on the monotonic clock.
    """
    unread = {p for p, position in positions.items() if ends is None or position < ends[p]}
    if not unread:
        return []
    # Create a consumer for each call: a reused consumer could return records of its previous assignment.
    consumer = Consumer({**config, **_REQUIRED})
    try:
        consumer.assign([TopicPartition(*partition, positions[partition]) for partition in sorted(unread)])
        while unread and time.monotonic() < deadline:
            for message in consumer.consume(MESSAGES_PER_POLL, timeout=POLL_S):
                partition = (message.topic() or "", message.partition() or 0)
                if partition not in unread:
                    continue
                error, offset = message.error(), message.offset() or 0
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                end = math.inf if ends is None else ends[partition]
                if error is None and offset < end:
                    take(partition, message)
                next_offset = offset if error is not None else offset + 1
                positions[partition] = int(min(max(positions[partition], next_offset), end))
                if next_offset >= end or (ends is None and error is not None):
                    unread.discard(partition)
    finally:
        close(consumer)
    return sorted(unread)
