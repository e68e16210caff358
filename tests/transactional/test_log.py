"""Transactions in the log: across segments, after a kill, on followers, and in a recreated topic."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import pytest

from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, node_name
from harness.faults import Kill, inject
from harness.kafka.admin import EndOffsets
from harness.kafka.log.batches import Batch, decode_batches
from harness.kafka.log.fetch import fetch_once
from tests.client_case import text
from tests.tapped import Evidence
from tests.transactional.transactional_case import TransactionalCase

pytestmark = pytest.mark.cluster

SEGMENT_BYTES = 1 << 20
PAYLOAD = 20_000
RECORDS = 150
"""Records of one transaction. They take three megabytes, so at least three segments."""


class Fetched(NamedTuple):
    """The batches that one broker returned for a partition, with the offsets that it reported."""

    batches: list[Batch]
    high_watermark: int
    last_stable: int
    aborted: list[tuple[int, int]]
    """Producer id and first offset of each aborted transaction. A reader must skip its records."""


def fetched(cluster: Cluster, broker: int, place: PartitionId) -> Fetched:
    """Return everything that one replica returns to a read_committed reader."""
    fetch = partial(fetch_once, cluster.admin, broker, place, isolation="read_committed")
    whole, offset = fetch(0), 0
    batches: list[Batch] = []
    aborted: set[tuple[int, int]] = set()
    while True:
        part = fetch(offset)
        returned = list(decode_batches(bytes(part.records or b"")))
        if not returned:
            return Fetched(batches, whole.high_watermark, whole.last_stable_offset, sorted(aborted))
        batches += [batch for batch in returned if batch.base_offset >= offset]
        aborted |= {(each.producer_id, each.first_offset) for each in part.aborted_transactions or []}
        offset = returned[-1].last_offset + 1


def wait_fetched(cluster: Cluster, broker: int, place: PartitionId, ends: EndOffsets) -> Fetched:
    """Wait until the replica has reached these end offsets, and then return the result of `fetched`."""

    def whole() -> list[Fetched]:
        found = fetched(cluster, broker, place)
        return [found] if EndOffsets(found.high_watermark, found.last_stable) == ends else []

    return wait_until(whole, 30, f"broker {broker} to reach the end offsets")[0]


def segments(cluster: Cluster, broker: int, place: PartitionId, scratch: object) -> int:
    return len(cluster.node(node_name(broker)).segments(f"{place[0]}-{place[1]}", scratch))  # type: ignore[arg-type]


def test_a_transaction_across_segments_is_the_same_on_every_replica_and_after_a_kill(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    """All replicas return the same batches and aborted transactions, even one that recovered its log."""
    topic = case.topic("t", [[1, 2, 3]], segment_bytes=str(SEGMENT_BYTES))
    place = (topic, 0)
    producer = case.producer(topic, payload=PAYLOAD, transaction_timeout_ms=60_000)
    assert producer.init().ok
    assert producer.whole({0: RECORDS}, commits=False).ok
    assert producer.whole({0: RECORDS}).ok
    case.wait_ended()
    producer.begin()
    assert producer.send(0, 5).ok
    ends = cluster.end_offsets(topic)[0]
    before = {broker: wait_fetched(cluster, broker, place, ends) for broker in BROKER_IDS}
    count = segments(cluster, 1, place, case.folder)

    with inject(cluster, Kill(), "kafka-1") as killed:
        pass
    log = cluster.node("kafka-1").log(4000)
    recovered = [line for line in log.splitlines() if topic in line and "ecover" in line]
    after = wait_fetched(cluster, 1, place, ends)
    assert producer.commit().ok
    case.wait_ended()
    judged = case.judge()
    evidence(
        segments=count,
        aborted=before[1].aborted,
        lso=ends,
        recovered=recovered[:2],
        bite=killed.bite,
        verdict=judged.verdict,
    )
    assert count >= 2 * RECORDS * PAYLOAD // SEGMENT_BYTES
    assert ends.last_stable == 2 * (RECORDS + 1)
    for answer in (*before.values(), after):
        assert answer == before[1]
        assert len(answer.aborted) == 1
        assert answer.last_stable == answer.batches[-1].last_offset + 1 == ends.last_stable
    assert recovered
    assert len(case.read(topic)[0]) == RECORDS + 5
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_topic_recreated_during_a_transaction_keeps_only_later_records(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    """Records before the deletion are lost although they are committed later; records after it remain."""
    topic = case.topic("t")
    producer = case.producer(topic)
    assert producer.init().ok
    producer.begin()
    assert producer.send(0, 3).ok
    cluster.delete_topics([topic])
    wait_until(partial(gone, cluster, topic), 20, f"{topic} to be gone")
    cluster.create_topic(topic, 3)
    second = producer.send(0, 2)
    committed = producer.commit()
    case.wait_ended()
    visible = {p: len(values) for p, values in case.read(topic).items()}
    ends = cluster.end_offsets(topic)
    judged = case.judge()
    evidence(second=second, committed=committed, visible=visible, found=judged.names())
    # A transaction registers partitions by name, so the new topic's partition is part of it.
    assert (second.name, committed.name) == ("ok", "ok")
    assert visible == {0: 2, 1: 0, 2: 0}
    assert all(end.last_stable == end.high_watermark for end in ends.values())
    # In the recreated topic, the offsets of the first sends belong to other records.
    assert set(judged.names()) == {"lost", "torn_transaction", "inconsistent_offset"}, text(judged)


def gone(cluster: Cluster, topic: str) -> bool:
    return all(
        topic not in {p.topic for p in cluster.admin.metadata(None, broker=broker).partitions}
        for broker in BROKER_IDS
    )
