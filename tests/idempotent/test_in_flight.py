"""Several batches in flight: order and exactly-once after a broken connection, a fatal error, a fail-over."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from harness.base.waits import wait_until
from harness.clients.scripted.idempotent_producer import IdempotentProducer, delivery_of
from harness.cluster.cluster import Cluster
from harness.faults import CutAfterFrame, Jitter, Kill, LoseResponseFrame, arm, inject
from harness.walkthroughs.broker_evidence import answers_to, leader_log, producer_ids, sent_batches
from tests.idempotent.idempotent_case import IdempotentCase, RawProducer
from tests.tapped import Evidence, Frames

pytestmark = pytest.mark.cluster

IN_FLIGHT = 5
# Send one record per batch without waiting, so that all batches are sent before the first response arrives.
ONE_EACH = {"batch_num_messages": 1, "linger_ms": 0}


def warm(case: IdempotentCase, **settings: object) -> IdempotentProducer:
    """Return a producer that has a producer id and a connection, and has sent sequence 0 to partition 0."""
    producer = case.producer(**ONE_EACH, **settings)
    producer.send(0)
    return producer


@pytest.mark.timing
@pytest.mark.parametrize("behind", [1, 3, 5, *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 4))])
def test_a_connection_cut_keeps_five_batches_in_flight_in_order(
    cluster: Cluster, case: IdempotentCase, frames: Frames, evidence: Evidence, behind: int
) -> None:
    producer = warm(case)
    fault = CutAfterFrame(api="Produce", topic=case.topic, partition=0, nth=behind)
    with inject(cluster, Jitter(latency_ms=300), "all"), arm(cluster, fault):
        delivery_of = producer.send(0, IN_FLIGHT)

    place, log = (case.topic, 0), frames()
    asked, answers = sent_batches(log, producer.name, place), answers_to(log, producer.name, place)
    conns = list(dict.fromkeys(s.conn for s in asked))
    before = [s.base_sequence for s in asked[1:] if s.conn == conns[0]]
    after = [s.base_sequence for s in asked if s.conn == conns[1]]
    raw = leader_log(cluster, place)
    judged = case.judge()
    evidence(
        cut_behind=behind,
        before=before,
        after=after,
        delivery_of=delivery_of,
        log=[b[:5] for b in raw],
        verdict=judged.verdict,
    )
    # Before the connection was cut, the client sent `behind` batches and got no responses. On the next
    # connection, it sent all batches in order, beginning with the first.
    assert before == list(range(1, behind + 1))
    answered = [a.mono for a in answers if a.conn == conns[0] and a.n > asked[0].n]
    assert all(mono > asked[behind].mono for mono in answered)
    assert after == list(range(1, IN_FLIGHT + 1))
    assert [b.base_sequence for b in raw] == list(range(IN_FLIGHT + 1))
    assert (delivery_of.offset, delivery_of.delivered, delivery_of.error) == (1, IN_FLIGHT, None)
    assert (judged.verdict, judged.names()) == ("valid", [])


def test_the_client_refuses_more_than_five_requests_in_flight(cluster: Cluster, evidence: Evidence) -> None:
    with pytest.raises(KafkaException) as refused:
        Producer(
            {
                "bootstrap.servers": cluster.bootstrap(),
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": IN_FLIGHT + 1,
            }
        )
    error = refused.value.args[0]
    evidence(error=error.name(), message=error.str())
    assert error.code() == KafkaError._INVALID_ARG
    assert "max.in.flight" in error.str()


@pytest.mark.timing
def test_a_fatal_error_of_one_batch_fails_every_batch_in_flight(
    cluster: Cluster, case: IdempotentCase, frames: Frames, evidence: Evidence
) -> None:
    """Use up the sequences of the batches in flight, so that the broker refuses all these batches.

    A hand-made batch has the producer's id and the next ten sequences, twice the number of batches in flight.
    So the broker refuses every batch in flight. With fewer sequences, the broker would accept the later
    batches. The client library would then conclude that the refused ones were written too: it assumes that no
    other client uses its producer id.
    """
    producer = warm(case, message_timeout_ms=8000)
    pid, epoch, _ = producer_ids(frames(), producer.name)[0]
    raw = RawProducer(cluster, case.topic)
    assert raw.send(pid, epoch, 1, 2 * IN_FLIGHT, b"a stranger's").code == 0
    end = raw.end()
    with inject(cluster, Jitter(latency_ms=300), "all"):
        bursts = [producer.hand_over(0) for _ in range(IN_FLIGHT)]
        wait_until(
            lambda: producer.serve(0.1) or not producer.in_flight, 30, "every batch to have its fate", every=0
        )

    fates = [delivery_of(burst) for burst in bursts]
    place = (case.topic, 0)
    sent = sent_batches(frames(), producer.name, place)[1:]
    answers = answers_to(frames(), producer.name, place)[1:]
    mine = [(b.base_sequence, b.base_offset) for b in raw.log() if b.base_offset >= end]
    with pytest.raises(KafkaException) as after:
        producer.producer._producer.produce(case.topic, b"after")
    evidence(
        fates=[(f.offset, f.error and f.error.name()) for f in fates],
        sent=[s.base_sequence for s in sent],
        answers=[(a.error, a.offset) for a in answers],
        log=mine,
        after=after.value.args[0].name(),
    )
    assert after.value.args[0].code() == KafkaError._FATAL
    assert [s.base_sequence for s in sent] == [1, 2, 3, 4, 5]  # all were in flight, and none was retried
    assert [a.error for a in answers] == ["OUT_OF_ORDER_SEQUENCE_NUMBER"] * IN_FLIGHT
    errors = [f.error.name() for f in fates if f.error]
    assert errors[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    # The client library reports the broker's error for the first batch only. It either purges the other
    # batches at once or lets them time out; the test accepts both.
    assert len(errors) == IN_FLIGHT
    assert set(errors[1:]) <= {"_PURGE_QUEUE", "_MSG_TIMED_OUT"}
    # The log has no batch after the hand-made one, so the broker wrote none of the producer's batches.
    assert mine == []
    assert raw.end() == end
    assert {"lost", "duplicate"}.isdisjoint(case.judge().names())


@pytest.mark.timing
def test_a_resent_batch_is_recognised_by_the_follower_that_became_leader(
    cluster: Cluster, case: IdempotentCase, frames: Frames, evidence: Evidence
) -> None:
    """Lose the leader's response to a batch, then kill the leader. The client library retries the batch."""
    producer = case.producer(socket_timeout_ms=60_000, request_timeout_ms=60_000)
    producer.send(0)
    before = cluster.partition(case.topic, 0)
    fault = LoseResponseFrame(api="Produce", topic=case.topic, partition=0, then="silence")
    with arm(cluster, fault) as injection:
        burst = producer.hand_over(0, 3)
        wait_until(lambda: producer.serve(0.05) or injection.wait("lost"), 20, "the answer to be lost")
        with inject(cluster, Kill(), f"leader_of({case.topic}, 0)"):
            producer.finish(30)
            after = cluster.partition(case.topic, 0)
            asked = sent_batches(frames(), producer.name, (case.topic, 0))[1:]
            answers = answers_to(frames(), producer.name, (case.topic, 0))[1:]
            log = case.log()
    evidence(
        leader=(before.leader, after.leader),
        epochs=(before.leader_epoch, after.leader_epoch),
        asked=asked,
        answers=answers,
        log=[b[:5] for b in log],
    )
    assert after.leader != before.leader
    assert after.leader_epoch > before.leader_epoch
    assert len({s.identity for s in asked}) == 1
    assert {s.broker for s in asked} >= {before.leader, after.leader}
    assert delivery_of(burst) == (1, 3, None)
    assert [(b.base_offset, b.base_sequence) for b in log] == [(0, 0), (1, 1)]
    assert case.judge().names() == []
