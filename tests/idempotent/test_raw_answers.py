"""A broker's response to each kind of batch, sent by raw requests, and the log afterwards."""

from __future__ import annotations

import pytest

from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST
from harness.kafka.raw_produce import MAX_SEQUENCE, ProduceResult, new_producer_ids
from tests.idempotent.idempotent_case import RawProducer
from tests.tapped import Evidence

pytestmark = pytest.mark.cluster

NONE, OUT_OF_ORDER, INVALID_EPOCH = 0, 45, 47


@pytest.fixture
def raw(cluster: Cluster, topic: str) -> RawProducer:
    return RawProducer(cluster, topic)


@pytest.fixture
def pid(cluster: Cluster) -> int:
    return new_producer_ids((HOST, cluster.ports.direct(1)), 1)[0]


def written(raw: RawProducer) -> list[tuple[int, int, int, int]]:
    """Return first offset, epoch, base sequence and number of records of each batch in the log."""
    return [(b.base_offset, b.epoch, b.base_sequence, len(b.values)) for b in raw.log()]


def six_batches(raw: RawProducer, pid: int, epoch: int = 0) -> None:
    """Send six batches of two records each, at offsets and sequences 0, 2, 4, 6, 8, 10."""
    for sequence in range(0, 12, 2):
        assert raw.send(pid, epoch, sequence, 2) == ProduceResult(NONE, "NONE", sequence)


def refused(raw: RawProducer, answer: ProduceResult, code: int) -> None:
    """Assert that the response has this error code, and that the log still has only the first six batches."""
    assert answer.code == code, answer
    assert answer.offset == -1
    assert written(raw) == [(s, 0, s, 2) for s in range(0, 12, 2)]


@pytest.mark.parametrize("back", [1, 2, 3, 4, 5])
def test_a_retry_of_one_of_the_last_five_batches_gets_its_old_offset_and_is_not_written(
    raw: RawProducer, pid: int, evidence: Evidence, back: int
) -> None:
    six_batches(raw, pid)
    sequence = 12 - 2 * back
    answer = raw.send(pid, 0, sequence, 2)
    evidence(pid=pid, repeated=sequence, answer=answer, log=written(raw))
    assert answer == ProduceResult(NONE, "NONE", sequence)
    assert written(raw) == [(s, 0, s, 2) for s in range(0, 12, 2)]


@pytest.mark.parametrize(
    ("sequence", "count"),
    [(0, 2), (9, 2), (10, 3), (10, 1), (27, 1)],
    ids=[
        "older than the last five",
        "overlaps two",
        "begins like one and is longer",
        "is half of one",
        "gap",
    ],
)
def test_any_other_sequence_than_the_next_is_out_of_order_and_not_written(
    raw: RawProducer, pid: int, evidence: Evidence, sequence: int, count: int
) -> None:
    six_batches(raw, pid)
    answer = raw.send(pid, 0, sequence, count)
    evidence(pid=pid, sent=(sequence, count), answer=answer, end=raw.end())
    refused(raw, answer, OUT_OF_ORDER)
    # After these refusals, the broker still accepts the producer's next sequence.
    assert raw.send(pid, 0, 12).offset == 12


def test_a_stale_epoch_is_refused(raw: RawProducer, pid: int, evidence: Evidence) -> None:
    assert raw.send(pid, 1, 0).code == NONE
    answer = raw.send(pid, 0, 1)
    evidence(pid=pid, answer=answer, log=written(raw))
    assert answer.code == INVALID_EPOCH
    assert written(raw) == [(0, 1, 0, 1)]


def test_a_higher_epoch_must_start_at_sequence_zero(raw: RawProducer, pid: int, evidence: Evidence) -> None:
    six_batches(raw, pid)
    answer = raw.send(pid, 1, 12)
    refused(raw, answer, OUT_OF_ORDER)
    taken = raw.send(pid, 1, 0)
    evidence(pid=pid, not_zero=answer, zero=taken, log=written(raw)[-1])
    assert taken == ProduceResult(NONE, "NONE", 12)


def test_sequences_wrap_to_zero_and_are_still_recognised(
    raw: RawProducer, pid: int, evidence: Evidence
) -> None:
    assert raw.send(pid, 0, MAX_SEQUENCE - 1, 2) == ProduceResult(NONE, "NONE", 0)
    assert raw.send(pid, 0, 0, 3) == ProduceResult(NONE, "NONE", 2)
    again = [raw.send(pid, 0, MAX_SEQUENCE - 1, 2), raw.send(pid, 0, 0, 3)]
    evidence(pid=pid, again=again, log=written(raw))
    assert again == [ProduceResult(NONE, "NONE", 0), ProduceResult(NONE, "NONE", 2)]
    assert written(raw) == [(0, 0, MAX_SEQUENCE - 1, 2), (2, 0, 0, 3)]


def test_a_batch_may_span_the_wrap(raw: RawProducer, pid: int, evidence: Evidence) -> None:
    first = [raw.send(pid, 0, MAX_SEQUENCE - 1, 4) for _ in range(2)]
    after = raw.send(pid, 0, 2)
    evidence(pid=pid, twice=first, next=after, log=written(raw))
    assert first == [ProduceResult(NONE, "NONE", 0)] * 2
    assert after == ProduceResult(NONE, "NONE", 4)


def test_an_unknown_producer_id_is_accepted_with_any_sequence(
    raw: RawProducer, pid: int, evidence: Evidence
) -> None:
    never_given = pid + 5_000_000
    answers = [raw.send(never_given, 0, 5), raw.send(pid, 3, 7)]
    evidence(never_given=never_given, answers=answers, log=written(raw))
    assert answers == [ProduceResult(NONE, "NONE", 0), ProduceResult(NONE, "NONE", 1)]
    assert written(raw) == [(0, 0, 5, 1), (1, 3, 7, 1)]


def test_sequences_are_counted_for_each_partition_and_producer_id(
    cluster: Cluster, topic: str, evidence: Evidence
) -> None:
    first, second = new_producer_ids((HOST, cluster.ports.direct(1)), 2)
    a, b = RawProducer(cluster, topic, 0), RawProducer(cluster, topic, 1)
    answers = [a.send(first, 0, 0, 3), b.send(second, 0, 0, 2), b.send(first, 0, 0), b.send(second, 0, 2)]
    evidence(pids=(first, second), answers=answers, b=[x[:6] for x in b.log()])
    assert [x.offset for x in answers] == [0, 0, 2, 3]
    assert [(x.producer_id, x.base_sequence) for x in b.log()] == [(second, 0), (first, 0), (second, 2)]
