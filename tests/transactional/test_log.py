"""Transactions in the log: across segments, after a kill, on followers, in a topic that is made anew."""

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
from tests.rig import text
from tests.tapped import Evidence
from tests.transactional.bench import Bench

pytestmark = pytest.mark.cluster

SEGMENT_BYTES = 1 << 20
PAYLOAD = 20_000
RECORDS = 150
"""Of one transaction: three megabytes, so at least three segments."""


class Fetched(NamedTuple):
    """What one broker handed out of a partition, with the bounds that it named."""

    batches: list[Batch]
    high_watermark: int
    last_stable: int
    aborted: list[tuple[int, int]]
    """Producer id and first offset of each aborted transaction: what a reader has to leave out."""


def fetched(cluster: Cluster, broker: int, place: PartitionId) -> Fetched:
    """Everything that a replica hands to a read_committed reader."""
    fetch = partial(fetch_once, cluster.admin, broker, place, isolation="read_committed")
    whole, offset = fetch(0), 0
    batches: list[Batch] = []
    aborted: set[tuple[int, int]] = set()
    while True:
        part = fetch(offset)
        handed_out = list(decode_batches(bytes(part.records or b"")))
        if not handed_out:
            return Fetched(batches, whole.high_watermark, whole.last_stable_offset, sorted(aborted))
        batches += [batch for batch in handed_out if batch.base_offset >= offset]
        aborted |= {(each.producer_id, each.first_offset) for each in part.aborted_transactions or []}
        offset = handed_out[-1].last_offset + 1


def wait_fetched(cluster: Cluster, broker: int, place: PartitionId, ends: EndOffsets) -> Fetched:
    """The same, once the replica knows that it has everything."""

    def whole() -> list[Fetched]:
        found = fetched(cluster, broker, place)
        return [found] if EndOffsets(found.high_watermark, found.last_stable) == ends else []

    return wait_until(whole, 30, f"broker {broker} to know of everything")[0]


def segments(cluster: Cluster, broker: int, place: PartitionId, scratch: object) -> int:
    return len(cluster.node(node_name(broker)).segments(f"{place[0]}-{place[1]}", scratch))  # type: ignore[arg-type]


def test_a_transaction_across_segments_and_its_index_after_a_kill(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    """Aborted, committed, open: all replicas tell them apart, and so does the one that had to look again."""
    topic = bench.topic("t", [[1, 2, 3]], segment_bytes=str(SEGMENT_BYTES))
    place = (topic, 0)
    told = bench.told(topic, payload=PAYLOAD, transaction_timeout_ms=60_000)
    assert told.init().said == "ok"
    assert told.whole({0: RECORDS}, commits=False).said == "ok"
    assert told.whole({0: RECORDS}).said == "ok"
    bench.ended()
    told.begin()
    assert told.send(0, 5).said == "ok"
    ends = cluster.end_offsets(topic)[0]
    before = {broker: wait_fetched(cluster, broker, place, ends) for broker in BROKER_IDS}
    count = segments(cluster, 1, place, bench.folder)

    with inject(cluster, Kill(), "kafka-1") as killed:
        pass
    log = cluster.node("kafka-1").log(4000)
    recovered = [line for line in log.splitlines() if topic in line and "ecover" in line]
    after = wait_fetched(cluster, 1, place, ends)
    assert told.commit().said == "ok"
    bench.ended()
    judged = bench.judge()
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
    assert len(bench.read(topic)[0]) == RECORDS + 5
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_topic_that_is_made_anew_in_a_transaction(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    """What the deletion took is gone although it is then committed; what came after it stands."""
    topic = bench.topic("t")
    told = bench.told(topic)
    assert told.init().said == "ok"
    told.begin()
    assert told.send(0, 3).said == "ok"
    cluster.delete_topics([topic])
    wait_until(partial(gone, cluster, topic), 20, f"{topic} to be gone")
    cluster.create_topic(topic, 3)
    second = told.send(0, 2)
    committed = told.commit()
    bench.ended()
    visible = {p: len(values) for p, values in bench.read(topic).items()}
    ends = cluster.end_offsets(topic)
    judged = bench.judge()
    evidence(second=second, committed=committed, visible=visible, found=judged.names())
    # The name is what was registered: the new topic's partition is in the transaction of the old one's.
    assert (second.said, committed.said) == ("ok", "ok")
    assert visible == {0: 2, 1: 0, 2: 0}
    assert all(end.last_stable == end.high_watermark for end in ends.values())
    # The offsets that the first sends were told are those of other records now.
    assert set(judged.names()) == {"lost", "torn_transaction", "inconsistent_offset"}, text(judged)


def gone(cluster: Cluster, topic: str) -> bool:
    return all(
        topic not in {p.topic for p in cluster.admin.metadata(None, broker=broker).partitions}
        for broker in BROKER_IDS
    )
