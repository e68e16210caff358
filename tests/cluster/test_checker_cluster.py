"""The checkers accept a real log, and report the right anomaly if a record is removed, doubled or swapped."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import KafkaError, Message, Producer

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.model import Evidence
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import HistoryWriter, history_files
from harness.evidence.ledger import fold
from harness.evidence.observation import Observation
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import Identity, LaneEncoder
from harness.witness.plain_consumer import observe_topics
from harness.witness.raw_log import fetch_logs, observe_raw

pytestmark = pytest.mark.cluster

RUN = "checker1"
LIMIT_S = 60
_numbers = itertools.count(1)


def produce(bootstrap: str, topic: str, directory: Path) -> None:
    """Write records with a transactional and an idempotent producer; every third transaction is aborted."""
    with HistoryWriter(directory / "p-1.jsonl", run=RUN, client="p-1", role="producer") as history:
        _transactional(bootstrap, topic, history)
    with HistoryWriter(directory / "p-2.jsonl", run=RUN, client="p-2", role="producer") as history:
        _idempotent(bootstrap, topic, history)


def _transactional(bootstrap: str, topic: str, history: HistoryWriter) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-x", "linger.ms": 0})
    history.producer(1, [(topic, 0), (topic, 1)], transactional_id=f"{topic}-x")
    init = history.invoke("init", producer=1)
    producer.init_transactions(LIMIT_S)
    history.ok(init)
    for txn in range(1, 10):
        outcome = "abort" if txn % 3 == 0 else "commit"
        first = (txn - 1) * 5
        history.invoke("begin", producer=1, txn=txn)
        producer.begin_transaction()
        for lane in (0, 1):
            for value in LaneEncoder(RUN, 1, lane).batch(first, 5, txn, outcome[0]):
                producer.produce(topic, value, partition=lane)
        producer.flush(LIMIT_S)
        sent = [(lane, first, first + 4) for lane in (0, 1)]
        op = history.invoke(outcome, producer=1, txn=txn, sent=sent)
        (producer.abort_transaction if outcome == "abort" else producer.commit_transaction)(LIMIT_S)
        history.ok(op)


def _idempotent(bootstrap: str, topic: str, history: HistoryWriter) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    history.producer(2, [(topic, 0)])
    op = history.invoke("send", producer=2, sent=[(0, 0, 299)])
    acked: list[tuple[int, int, int, int]] = []
    for seq, value in enumerate(LaneEncoder(RUN, 2, 0).batch(0, 300)):

        def delivered(error: KafkaError | None, message: Message, seq: int = seq) -> None:
            assert error is None
            acked.append((0, seq, seq, message.offset() or 0))

        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(LIMIT_S) == 0
    assert len(acked) == 300
    history.ok(op, acked=acked)


def expanded(observation: Observation) -> list[tuple[int, int, Identity]]:
    """Return the records of an observation one by one: partition index, offset and identity."""
    assert observation.runs is not None
    return [
        (partition, offset + i, Identity(RUN, producer, lane, seq + i))
        for partition, offset, producer, lane, seq, count in observation.runs.tolist()
        for i in range(count)
    ]


def again(observation: Observation, rows: list[tuple[int, int, Identity]]) -> Observation:
    records = Records()
    for row in rows:
        records.add(*row)
    return observe(msgspec.structs.replace(observation.meta), records)


def without_one(rows: list[tuple[int, int, Identity]]) -> list[tuple[int, int, Identity]]:
    return rows[:40] + rows[41:]


def with_one_doubled(rows: list[tuple[int, int, Identity]]) -> list[tuple[int, int, Identity]]:
    partition, _, identity = rows[40]
    last = max(offset for p, offset, _ in rows if p == partition)
    return [*rows, (partition, last + 1, identity)]


def with_two_swapped(rows: list[tuple[int, int, Identity]]) -> list[tuple[int, int, Identity]]:
    (p1, o1, one), (p2, o2, two) = rows[40], rows[41]
    assert p1 == p2
    return [*rows[:40], (p1, o1, two), (p2, o2, one), *rows[42:]]


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., Judgement]:
    return lambda *observations: judge(Evidence(fold(history_files(tmp_path)), list(observations)))


def test_a_real_log_is_valid_and_its_damage_is_found(
    cluster: Cluster, tmp_path: Path, judged: Callable[..., Judgement]
) -> None:
    bootstrap, topic = cluster.bootstrap("DIRECT"), f"checker-{next(_numbers)}"
    cluster.create_topic(topic, 2)
    produce(bootstrap, topic, tmp_path)
    # The marker of the last abort follows the answer to the producer.
    wait_until(
        lambda: all(end.last_stable == end.high_watermark for end in cluster.end_offsets(topic).values()),
        30,
        f"the last markers in {topic}",
    )
    reader = observe_topics(bootstrap, [topic], RUN)
    raw = observe_raw(fetch_logs(cluster.admin, reader.meta.windows), RUN)

    valid = judged(reader, raw)
    assert (valid.verdict, valid.names()) == ("valid", []), valid.encode().decode()
    assert next(r.compared for r in valid.results if r.property == "exactly_once") == 60 + 300
    assert raw.meta.epochs.compared > 0

    rows = expanded(reader)
    assert "lost" in judged(again(reader, without_one(rows))).names()
    assert "duplicate" in judged(again(reader, with_one_doubled(rows))).names()
    assert "reordered" in judged(again(reader, with_two_swapped(rows))).names()
    cluster.delete_topics([topic])
