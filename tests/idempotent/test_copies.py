"""Where a record comes to stand twice, with idempotence or without, and what the report says of the cause."""

from __future__ import annotations

import pytest

from harness.base.waits import wait_until
from harness.clients.client_process import ClientProcess
from harness.cluster.cluster import Cluster
from harness.faults import LoseResponseFrame, Zombie, arm, inject
from harness.walkthroughs.broker_evidence import SentBatch, answers_to, sent_batches
from tests.idempotent.bench import Bench
from tests.rig import said_of, values_of
from tests.tapped import Evidence, Frames

pytestmark = pytest.mark.cluster


def sent(frames: Frames, bench: Bench, name: str) -> list[SentBatch]:
    return sent_batches(frames(), name, (bench.topic, 0))


@pytest.mark.timing
@pytest.mark.parametrize("idempotence", [True, False], ids=["idempotent", "negative control"])
def test_a_lost_answer(
    cluster: Cluster, bench: Bench, frames: Frames, evidence: Evidence, idempotence: bool
) -> None:
    actor = bench.actor(idempotence=idempotence)
    actor.send(0)
    with arm(cluster, LoseResponseFrame(api="Produce", topic=bench.topic, partition=0)):
        told = actor.send(0, 3)

    asked, log = sent(frames, bench, actor.name), bench.log()
    judged = bench.judge()
    evidence(
        asked=[(*s.identity, s.fate) for s in asked],
        told=told,
        log=[b[:5] for b in log],
        verdict=judged.verdict,
        said=said_of(judged, "duplicate"),
    )
    assert [s.records for s in asked] == [1, 3, 3]
    if idempotence:
        assert asked[1].identity == asked[2].identity
        assert asked[1].identity[2] == 1
        assert [b.base_sequence for b in log] == [0, 1]
        assert told.offset == log[1].base_offset
        assert (judged.verdict, judged.names()) == ("valid", [])
    else:
        assert values_of(log)[1:4] == values_of(log)[4:7]
        assert told.offset == 4  # that of the second copy: the first one's answer was lost
        assert judged.names() == ["duplicate"]
        assert "no producer id" in " ".join(said_of(judged, "duplicate"))


def test_a_producer_that_is_started_again_and_resends_is_another_one_to_kafka(
    bench: Bench, evidence: Evidence
) -> None:
    before = bench.actor()
    before.send(0, 3)
    before.close()
    bench.actor().send(0, 3)

    log, judged = bench.log(), bench.judge()
    first, again = (batch.producer_id for batch in log)
    said = said_of(judged, "duplicate")
    evidence(log=[b[:5] for b in log], verdict=judged.verdict, said=said)
    assert first != again
    assert [b.base_sequence for b in log] == [0, 0]
    assert "duplicate" in judged.names()
    assert f"new producer id: {first} wrote it first, {again} again" in " ".join(said)


@pytest.mark.timing
def test_an_application_that_sends_a_record_twice_is_told_from_a_retry(
    cluster: Cluster, bench: Bench, frames: Frames, evidence: Evidence
) -> None:
    actor = bench.actor()
    with arm(cluster, LoseResponseFrame(api="Produce", topic=bench.topic, partition=0)):
        actor.send(0, 2)  # sent twice by the client library, and written once
    actor.send_again(0, 2)

    asked, log = sent(frames, bench, actor.name), bench.log()
    judged = bench.judge()
    said = said_of(judged, "duplicate")
    evidence(asked=[s.identity for s in asked], log=[b[:5] for b in log], said=said)
    pid = log[0].producer_id
    assert [s.identity for s in asked] == [(pid, 0, 0), (pid, 0, 0), (pid, 0, 2)]
    assert [b.base_sequence for b in log] == [0, 2]
    assert values_of(log)[:2] == values_of(log)[2:]
    assert "duplicate" in judged.names()
    assert f"producer id {pid}, base sequence 0 and then 2: the application sent it again" in " ".join(said)


def test_two_instances_that_send_the_same_source_are_both_named(bench: Bench, evidence: Evidence) -> None:
    one, two = bench.actor(), bench.actor()
    for actor in (one, two, one, two):
        actor.send(0, 2)

    log, judged = bench.log(), bench.judge()
    said = said_of(judged, "duplicate")
    evidence(log=[b[:5] for b in log], said=said)
    pids = list(dict.fromkeys(b.producer_id for b in log))
    assert len(pids) == 2
    assert [(b.producer_id, b.base_sequence) for b in log] == [(p, s) for s in (0, 2) for p in pids]
    assert "duplicate" in judged.names()
    assert f"new producer id: {pids[0]} wrote it first, {pids[1]} again" in " ".join(said)


@pytest.mark.timing
def test_a_frozen_producer_that_is_replaced_and_comes_back_is_no_zombie_to_kafka(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    frozen = bench.client(rate=500)
    wait_until(lambda: frozen.progress().acknowledged > 0, 30, "the first producer's first records")
    with inject(cluster, Zombie(), "client(frozen)", process=frozen):
        stood = high_watermark(cluster, bench)
        replacement = bench.client(rate=2000)
        wait_until(
            lambda: replacement.progress().acknowledged > 2 * stood + 1000, 60, "the replacement to overtake"
        )
        assert replacement.stop() == 0
        overtaken = high_watermark(cluster, bench)
    wait_until(lambda: frozen.progress().sent > stood + 500, 30, "the one that was frozen to go on")
    assert frozen.stop() == 0

    pids = {b.producer_id for p in range(3) for b in bench.log(p)}
    after = {b.producer_id for p in range(3) for b in bench.log(p)[-1:]}
    judged = bench.judge()
    said = said_of(judged, "duplicate")
    evidence(
        frozen_at=stood,
        overtaken_at=overtaken,
        pids=sorted(pids),
        last_written_by=sorted(after),
        said=said[:1],
    )
    assert len(pids) == 2
    assert "duplicate" in judged.names()
    assert any("new producer id" in what for what in said)
    # The one that was frozen was not refused: what it did not know to be old stands behind the other's.
    assert refusals(frozen) == []
    assert high_watermark(cluster, bench) > overtaken


def high_watermark(cluster: Cluster, bench: Bench) -> int:
    return sum(ends.high_watermark for ends in cluster.end_offsets(bench.topic).values())


def refusals(client: ClientProcess) -> list[str]:
    """What the client library complained of that a broker had said."""
    return [
        line
        for line in client.log().splitlines()
        if "SEQUENCE" in line or "EPOCH" in line or "FENCED" in line
    ]


def test_the_answer_to_a_repeat_names_the_first_offset(
    cluster: Cluster, bench: Bench, frames: Frames, evidence: Evidence
) -> None:
    """Both answers are seen in the frames alone: the client is only told of the second."""
    actor = bench.actor()
    with arm(cluster, LoseResponseFrame(api="Produce", topic=bench.topic, partition=0)):
        told = actor.send(0)
    answers = answers_to(frames(), actor.name, (bench.topic, 0))
    evidence(answers=answers, told=told)
    assert [(a.error, a.offset) for a in answers] == [(None, 0), (None, 0)]
    assert answers[0].fate == "lost"
    assert told.offset == 0
