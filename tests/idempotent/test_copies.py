"""Causes of duplicate records in the log, with and without idempotence, as the checker reports them."""

from __future__ import annotations

import pytest

from harness.base.waits import wait_until
from harness.clients.client_process import ClientProcess
from harness.cluster.cluster import Cluster
from harness.faults import LoseResponseFrame, Zombie, arm, inject
from harness.walkthroughs.broker_evidence import SentBatch, answers_to, sent_batches
from tests.client_case import examples_of, values_of
from tests.idempotent.idempotent_case import IdempotentCase
from tests.tapped import Evidence, Frames

pytestmark = pytest.mark.cluster


def sent(frames: Frames, case: IdempotentCase, name: str) -> list[SentBatch]:
    return sent_batches(frames(), name, (case.topic, 0))


@pytest.mark.timing
@pytest.mark.parametrize("idempotence", [True, False], ids=["idempotent", "negative control"])
def test_a_lost_response_makes_a_copy_only_without_idempotence(
    cluster: Cluster, case: IdempotentCase, frames: Frames, evidence: Evidence, idempotence: bool
) -> None:
    producer = case.producer(idempotence=idempotence)
    producer.send(0)
    with arm(cluster, LoseResponseFrame(api="Produce", topic=case.topic, partition=0)):
        delivery = producer.send(0, 3)

    asked, log = sent(frames, case, producer.name), case.log()
    judged = case.judge()
    evidence(
        asked=[(*s.identity, s.fate) for s in asked],
        delivery=delivery,
        log=[b[:5] for b in log],
        verdict=judged.verdict,
        examples=examples_of(judged, "duplicate"),
    )
    assert [s.records for s in asked] == [1, 3, 3]
    if idempotence:
        assert asked[1].identity == asked[2].identity
        assert asked[1].identity[2] == 1
        assert [b.base_sequence for b in log] == [0, 1]
        assert delivery.offset == log[1].base_offset
        assert (judged.verdict, judged.names()) == ("valid", [])
    else:
        assert values_of(log)[1:4] == values_of(log)[4:7]
        assert delivery.offset == 4  # offset of the second copy; the first response was lost
        assert judged.names() == ["duplicate"]
        assert "no producer id" in " ".join(examples_of(judged, "duplicate"))


def test_a_restarted_producer_is_a_new_producer_to_kafka(case: IdempotentCase, evidence: Evidence) -> None:
    before = case.producer()
    before.send(0, 3)
    before.close()
    case.producer().send(0, 3)

    log, judged = case.log(), case.judge()
    first, again = (batch.producer_id for batch in log)
    examples = examples_of(judged, "duplicate")
    evidence(log=[b[:5] for b in log], verdict=judged.verdict, examples=examples)
    assert first != again
    assert [b.base_sequence for b in log] == [0, 0]
    assert "duplicate" in judged.names()
    assert f"new producer id: {first} wrote it first, {again} again" in " ".join(examples)


@pytest.mark.timing
def test_a_second_send_by_the_application_is_distinguished_from_a_retry(
    cluster: Cluster, case: IdempotentCase, frames: Frames, evidence: Evidence
) -> None:
    producer = case.producer()
    with arm(cluster, LoseResponseFrame(api="Produce", topic=case.topic, partition=0)):
        producer.send(0, 2)  # the client library retries, and the log contains the batch once
    producer.send_again(0, 2)

    asked, log = sent(frames, case, producer.name), case.log()
    judged = case.judge()
    examples = examples_of(judged, "duplicate")
    evidence(asked=[s.identity for s in asked], log=[b[:5] for b in log], examples=examples)
    pid = log[0].producer_id
    assert [s.identity for s in asked] == [(pid, 0, 0), (pid, 0, 0), (pid, 0, 2)]
    assert [b.base_sequence for b in log] == [0, 2]
    assert values_of(log)[:2] == values_of(log)[2:]
    assert "duplicate" in judged.names()
    assert f"producer id {pid}, base sequence 0 and then 2: the application sent it again" in " ".join(
        examples
    )


def test_the_report_names_both_producers_of_the_same_records(
    case: IdempotentCase, evidence: Evidence
) -> None:
    one, two = case.producer(), case.producer()
    for producer in (one, two, one, two):
        producer.send(0, 2)

    log, judged = case.log(), case.judge()
    examples = examples_of(judged, "duplicate")
    evidence(log=[b[:5] for b in log], examples=examples)
    pids = list(dict.fromkeys(b.producer_id for b in log))
    assert len(pids) == 2
    assert [(b.producer_id, b.base_sequence) for b in log] == [(p, s) for s in (0, 2) for p in pids]
    assert "duplicate" in judged.names()
    assert f"new producer id: {pids[0]} wrote it first, {pids[1]} again" in " ".join(examples)


@pytest.mark.timing
def test_a_replaced_producer_that_thaws_is_not_refused(
    cluster: Cluster, case: IdempotentCase, evidence: Evidence
) -> None:
    frozen = case.process(rate=500)
    wait_until(lambda: frozen.progress().acknowledged > 0, 30, "the first producer's first records")
    with inject(cluster, Zombie(), "client(frozen)", process=frozen):
        end_at_freeze = high_watermark(cluster, case)
        replacement = case.process(rate=2000)
        wait_until(
            lambda: replacement.progress().acknowledged > 2 * end_at_freeze + 1000,
            60,
            "the replacement to overtake",
        )
        assert replacement.stop() == 0
        overtaken = high_watermark(cluster, case)
    wait_until(lambda: frozen.progress().sent > end_at_freeze + 500, 30, "the frozen producer to continue")
    assert frozen.stop() == 0

    pids = {b.producer_id for p in range(3) for b in case.log(p)}
    after = {b.producer_id for p in range(3) for b in case.log(p)[-1:]}
    judged = case.judge()
    examples = examples_of(judged, "duplicate")
    evidence(
        frozen_at=end_at_freeze,
        overtaken_at=overtaken,
        pids=sorted(pids),
        last_written_by=sorted(after),
        examples=examples[:1],
    )
    assert len(pids) == 2
    assert "duplicate" in judged.names()
    assert any("new producer id" in what for what in examples)
    # The brokers did not refuse any batch of the thawed producer. So its old records are in the log after
    # those of its replacement.
    assert refusals(frozen) == []
    assert high_watermark(cluster, case) > overtaken


def high_watermark(cluster: Cluster, case: IdempotentCase) -> int:
    return sum(ends.high_watermark for ends in cluster.end_offsets(case.topic).values())


def refusals(client: ClientProcess) -> list[str]:
    """Return the lines of a client's log about errors that brokers returned."""
    return [
        line
        for line in client.log().splitlines()
        if "SEQUENCE" in line or "EPOCH" in line or "FENCED" in line
    ]


def test_the_response_to_a_retry_has_the_first_offset(
    cluster: Cluster, case: IdempotentCase, frames: Frames, evidence: Evidence
) -> None:
    """The client receives only the second response, so the test reads both from the frame log."""
    producer = case.producer()
    with arm(cluster, LoseResponseFrame(api="Produce", topic=case.topic, partition=0)):
        delivery = producer.send(0)
    answers = answers_to(frames(), producer.name, (case.topic, 0))
    evidence(answers=answers, delivery=delivery)
    assert [(a.error, a.offset) for a in answers] == [(None, 0), (None, 0)]
    assert answers[0].fate == "lost"
    assert delivery.offset == 0
