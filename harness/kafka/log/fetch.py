"""The fetch loop, which reads the log of a partition from one replica with raw requests."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from harness.base.errors import WaitTimeoutError
from harness.base.partition_id import PartitionId, partition_name
from harness.base.waits import wait_until
from harness.kafka.admin import Admin, Isolation
from harness.kafka.errors import check
from harness.kafka.log.batches import Batch, decode_batch, stored_batches

FETCH_BYTES: Final = 8 << 20
PATIENCE_S: Final = 30.0
"""Seconds to repeat a fetch whose answers are empty although the log is known to be longer.

A broker also returns an empty answer while a quota throttles the client, and while the high watermark of a
new leader is behind. A throttle lasts at most as long as the broker's quota windows: 11 s by default.
"""
_MAX_WAIT_MS: Final = 100


def fetch_request(partition_id: PartitionId, offset: int, isolation: Isolation = "read_uncommitted") -> Any:
    """Build a fetch request for the batches of a partition, starting at `offset`."""
    from kafka.protocol.consumer import FetchRequest

    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(
        partition=partition_id[1],
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=FETCH_BYTES,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=_MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=int(isolation == "read_committed"),
        session_id=0,
        session_epoch=-1,
        topics=[topic(topic=partition_id[0], partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
        version=11,
    )


def fetch_once(
    admin: Admin,
    broker: int,
    partition_id: PartitionId,
    offset: int,
    isolation: Isolation = "read_uncommitted",
) -> Any:
    """Send one fetch request to a replica of the partition; return the partition's part of the response."""
    answer = admin.call(broker, fetch_request(partition_id, offset, isolation))
    check(f"fetch of {partition_name(partition_id)}", answer.error_code)
    partition = answer.responses[0].partitions[0]
    check(f"fetch of {partition_name(partition_id)} at {offset}", partition.error_code)
    return partition


def fetch_stored(
    admin: Admin,
    broker: int,
    partition_id: PartitionId,
    start: int,
    end: int | None = None,
    *,
    deadline: float = math.inf,
    patience_s: float = 0.0,
) -> Iterator[Any]:
    """Yield the stored batches of a partition from `start` up to, not including, `end`.

    Without `end`, iteration continues until the broker returns no further batch. With `end`, iteration stops
    early if the broker returns no further batch for `patience_s` seconds. In both cases it stops at
    `deadline` on the monotonic clock.
    """
    offset = start

    def fetch() -> list[Any]:
        response = fetch_once(admin, broker, partition_id, offset)
        # A fetch response begins with the batch that contains `offset`, so this batch may start before
        # `offset`. If compaction removed that batch, the first batch starts after `offset`. Both are correct.
        # Skip only batches that end before `offset`.
        return [b for b in stored_batches(bytes(response.records or b"")) if b.last_offset >= offset]

    while (end is None or offset < end) and time.monotonic() < deadline:
        batches = fetch()
        if not batches and end is not None:
            batches = _fetch_again(
                fetch, patience_s, f"the log of {partition_name(partition_id)} at {offset}"
            )
        if not batches:
            return
        for stored in batches:
            if end is not None and stored.base_offset >= end:
                return
            offset = stored.last_offset + 1
            yield stored


def _fetch_again(fetch: Callable[[], list[Any]], patience_s: float, describe: str) -> list[Any]:
    """Repeat a fetch until it returns batches; return an empty list after `patience_s` seconds."""
    if not patience_s:
        return []
    try:
        return wait_until(fetch, patience_s, describe, not_yet=())
    except WaitTimeoutError:
        return []


def fetch_batches(
    admin: Admin,
    broker: int,
    partition_id: PartitionId,
    start: int,
    end: int,
    *,
    patience_s: float = PATIENCE_S,
) -> Iterator[Batch]:
    """Yield the decoded batches of a partition from `start` up to, not including, `end`."""
    stored = fetch_stored(admin, broker, partition_id, start, end, patience_s=patience_s)
    return map(decode_batch, stored)
