"""A database row written for every input: an abort of the Kafka transaction does not undo the write."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from harness.base.waits import wait_until
from harness.clients.client_settings import CLASSIC, settings
from harness.clients.poll_decoding import Given, given
from harness.clients.scripted.transactional_producer import TransactionalProducer
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.model import Expect, Pipeline
from harness.evidence.record import ABORT, COMMIT
from harness.witness.plain_consumer import group_positions
from tests.client_case import RUN, text
from tests.tapped import Evidence
from tests.transactional.transactional_case import TransactionalCase

pytestmark = pytest.mark.cluster

BATCH, INPUTS = 10, 60


def test_an_effect_outside_kafka_is_repeated_after_an_abort(
    cluster: Cluster, case: TransactionalCase, tmp_path: Path, evidence: Evidence
) -> None:
    """Abort and repeat every third transaction: its outputs are readable once, but it writes rows twice."""
    source, sink, group = case.topic("source", 1), case.topic("sink"), f"{case.name}-g"
    writer = case.producer(source)
    assert writer.init().ok
    assert writer.whole({0: INPUTS}).ok
    database = sqlite3.connect(tmp_path / "effects.db")
    database.execute("CREATE TABLE effects (input INTEGER)")
    consumer = Consumer(
        {
            **settings(CLASSIC),
            "bootstrap.servers": cluster.bootstrap("DIRECT"),
            "group.id": group,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([source])
    producer = case.producer(sink)
    assert producer.init().ok

    done, tries, aborted = 0, 0, set()
    while done < INPUTS:
        batch = taken(consumer)
        tries += 1
        commits = tries % 3 != 0
        producer.begin()
        process(producer, database, batch, commits=commits)
        last = batch[-1]
        metadata = consumer.consumer_group_metadata()
        assert producer.offsets(group, source, 0, last.offset + 1, metadata).ok
        if commits:
            assert producer.commit().ok
            done += len(batch)
        else:
            assert producer.abort().ok
            aborted |= {record.offset for record in batch}
            # A consumer does not rewind by itself after an abort. Without this call, the aborted inputs would
            # be lost.
            rewind(consumer)
    positions = group_positions(cluster.bootstrap("DIRECT"), group)
    consumer.close()
    doubled = {
        row[0] for row in database.execute("SELECT input FROM effects GROUP BY input HAVING count(*) > 1")
    }
    rows = database.execute("SELECT count(*), count(DISTINCT input) FROM effects").fetchone()
    database.close()
    case.wait_ended()
    judged = case.judge(source, sink, expect=Expect(pipeline=Pipeline(group=group, inputs=[source])))
    evidence(
        tries=tries,
        rows=rows,
        doubled=len(doubled),
        explained=doubled == aborted,
        position=list(positions.values()),
        verdict=judged.verdict,
    )
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
    assert doubled
    assert doubled == aborted
    assert rows == (INPUTS + len(aborted), INPUTS)


def taken(consumer: Consumer) -> list[Given]:
    """Poll until all inputs of the next transaction have arrived, and return them."""
    batch: list[Given] = []

    def full() -> bool:
        batch.extend(given(consumer.consume(BATCH - len(batch), timeout=0.1), RUN))
        return len(batch) == BATCH

    wait_until(full, 30, f"{BATCH} inputs")
    return batch


def process(
    producer: TransactionalProducer, database: sqlite3.Connection, batch: list[Given], *, commits: bool
) -> None:
    """Write a row and an output for each input of a transaction."""
    for record in batch:
        database.execute("INSERT INTO effects VALUES (?)", (record.offset,))
    assert producer.hand_over_outputs(0, batch, COMMIT if commits else ABORT).ok
    database.commit()
    assert producer.flush().ok


def rewind(consumer: Consumer) -> None:
    """Seek to the group's committed offsets."""
    for place in consumer.committed(consumer.assignment(), timeout=10):
        place.offset = max(place.offset, 0)
        consumer.seek(place)
