"""Producer ids: a broker gets them in blocks, which never overlap; an id may also expire."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, HOST
from harness.evidence.record import LaneEncoder
from harness.faults import Restart, inject
from harness.kafka.brokers import change_settings, setting
from harness.kafka.raw_produce import encode_batch, new_producer_ids, produce
from harness.tap.coordinator_entries import PRODUCER_ID_BLOCK
from harness.walkthroughs.broker_evidence import blocks, overlapping
from tests.broker_requests import active_producers
from tests.client_case import examples_of
from tests.idempotent.idempotent_case import RUN, IdempotentCase, RawProducer
from tests.tapped import Evidence

pytestmark = pytest.mark.cluster


def test_a_used_up_block_is_followed_by_another(cluster: Cluster, evidence: Evidence) -> None:
    given = new_producer_ids((HOST, cluster.ports.direct(2)), PRODUCER_ID_BLOCK + 1)
    found = blocks(cluster)
    used = [block for block in found if any(pid in block for pid in given)]
    evidence(first=given[0], last=given[-1], blocks=used)
    assert len(set(given)) == PRODUCER_ID_BLOCK + 1
    assert {block.broker for block in used} == {2}
    assert len(used) == 2
    # The broker first assigned the remaining ids of the first block, and then the first ids of the second
    # block.
    ends = [pid for pid in given if pid in used[0]]
    assert ends == list(range(given[0], used[0].first + PRODUCER_ID_BLOCK))
    assert given[len(ends) :] == list(range(used[1].first, used[1].first + len(given) - len(ends)))
    assert overlapping(found) == []


def test_a_restarted_broker_takes_another_block(cluster: Cluster, evidence: Evidence) -> None:
    before = new_producer_ids((HOST, cluster.ports.direct(3)), 1)[0]
    with inject(cluster, Restart(), "kafka-3"):
        pass
    after = new_producer_ids((HOST, cluster.ports.direct(3)), 1)[0]
    found = blocks(cluster)
    old = next(block for block in found if before in block)
    new = next(block for block in found if after in block)
    evidence(before=before, after=after, blocks=(old, new), unused=old.first + PRODUCER_ID_BLOCK - before - 1)
    assert old.broker == new.broker == 3
    assert new.first >= old.first + PRODUCER_ID_BLOCK
    assert after == new.first
    assert overlapping(found) == []


@pytest.fixture
def expiring(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Yield a function that makes producer ids expire after a second without a batch, for this test."""
    name = "producer.id.expiration.ms"

    def lower() -> None:
        for broker in BROKER_IDS:
            change_settings(cluster.admin, broker, {name: "1000"})

    yield lower
    for broker in BROKER_IDS:
        change_settings(cluster.admin, broker, {name: None})
    for broker in BROKER_IDS:
        wait_until(lambda b=broker: setting(cluster.admin, b, name) == "86400000", 10, f"{name} to be back")  # type: ignore[misc]


def known_producers(cluster: Cluster, case: IdempotentCase) -> list[int]:
    """Return the producer ids for which the leader has state."""
    place = (case.topic, 0)
    return [p.producer_id for p in active_producers(cluster.admin, cluster.leader_of(*place), place)]


def test_a_late_retry_is_written_again_after_its_producer_id_has_expired(
    cluster: Cluster, case: IdempotentCase, expiring: Callable[[], None], evidence: Evidence
) -> None:
    producer = case.producer()
    producer.send(0, 2)
    producer.send(0, 2)
    batch = case.log()[-1]
    values = [value for _, value in batch.values if value is not None]
    raw = RawProducer(cluster, case.topic)
    again = encode_batch(batch.producer_id, batch.epoch, batch.base_sequence, values)

    recognised = produce(raw.leader, raw.place, again)
    known = known_producers(cluster, case)
    expiring()
    wait_until(lambda: not known_producers(cluster, case), 30, "the producer id to expire")
    accepted = produce(raw.leader, raw.place, again)

    judged = case.judge()
    examples = examples_of(judged, "duplicate")
    evidence(known=known, recognised=recognised, accepted=accepted, examples=examples)
    assert batch.producer_id in known
    assert (recognised.code, recognised.offset) == (0, 2)
    assert (accepted.code, accepted.offset) == (0, 4)
    assert "duplicate" in judged.names()
    assert "the broker no longer kept the first" in " ".join(examples)


def test_a_producer_continues_after_its_id_has_expired(
    cluster: Cluster, case: IdempotentCase, expiring: Callable[[], None], evidence: Evidence
) -> None:
    """The leader no longer has state of the idle producer, and accepts its next sequence."""
    producer = case.producer()
    producer.send(0, 3)
    expiring()
    wait_until(lambda: not known_producers(cluster, case), 30, "the producer id to expire")
    delivery = producer.send(0, 3)
    log = case.log()
    evidence(delivery=delivery, log=[b[:5] for b in log])
    assert (delivery.offset, delivery.error) == (3, None)
    assert [(b.producer_id, b.base_sequence) for b in log] == [
        (log[0].producer_id, 0),
        (log[0].producer_id, 3),
    ]
    assert case.judge().names() == []


def test_the_producer_writes_the_record_format_that_the_check_reads(case: IdempotentCase) -> None:
    """The check for duplicates relies on this format; in another format, it would find none."""
    case.producer().send(0, 2)
    assert [v for b in case.log() for _, v in b.values] == LaneEncoder(RUN, 1, 0).batch(0, 2)
