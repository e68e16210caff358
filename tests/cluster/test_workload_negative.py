"""Negative controls: if a guarantee is switched off, its anomaly occurs and the checkers report its name."""

from __future__ import annotations

import pytest

from harness.base.waits import wait_until
from harness.clients.client_spec import IdempotentSpec, ReaderSpec
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.model import Expect, Pipeline
from harness.evidence.checkers.verdict import Judgement
from harness.faults import LoseResponse, inject
from tests.client_case import ClientCase, operations, text

pytestmark = pytest.mark.cluster


def permitted(judged: Judgement) -> set[str]:
    return {anomaly.name for result in judged.results for anomaly in result.permitted}


def high_watermarks(cluster: Cluster, topic: str) -> int:
    return sum(ends.high_watermark for ends in cluster.end_offsets(topic).values())


def test_without_idempotence_a_lost_answer_makes_duplicates(case: ClientCase, cluster: Cluster) -> None:
    topic = case.topic("t")
    client = case.start(IdempotentSpec, topic=topic, partitions=3, rate=5000, idempotence=False)

    wait_until(lambda: client.progress().acknowledged > 0, 30, "the first records")
    for _ in range(3):
        acknowledged = client.progress().acknowledged
        with inject(cluster, LoseResponse(), "all"):
            pass
        wait_until(
            lambda before=acknowledged: client.progress().acknowledged > before,  # type: ignore[misc]
            30,
            "the producer to continue",
        )
    assert client.stop() == 0

    judged = case.judge()
    # The settings allow duplicates, so the checkers list the duplicate as permitted and not as an anomaly.
    assert "duplicate" in permitted(judged), text(judged)
    assert "duplicate" not in judged.names()


def test_a_read_uncommitted_reader_sees_what_was_aborted(case: ClientCase) -> None:
    topic = case.topic("t")
    writer = case.transactional(topic, abort_share=0.5)
    reader = case.start(ReaderSpec, topics=[topic], isolation="read_uncommitted")
    wait_until(lambda: writer.progress().aborted > 3, 60, "aborted transactions")
    assert writer.stop() == 0
    total = writer.progress().sent
    wait_until(lambda: reader.progress().read >= total, 30, f"the reader to read {total} records")
    assert reader.stop() == 0

    assert "aborted_read" in case.judge().names()


def filled(case: ClientCase) -> str:
    """Return a source topic that contains a few transactions."""
    source = case.topic("source")
    writer = case.transactional(source, abort_share=0.0)
    case.wait_committed(writer, more_than=10)
    assert writer.stop() == 0
    return source


def test_without_transactions_a_kill_makes_outputs_twice(case: ClientCase, cluster: Cluster) -> None:
    source, sink = filled(case), case.topic("sink")
    # This worker commits its input offsets long after it has written its outputs. So the kill falls between
    # the outputs and the commit.
    first = case.pipeline(source, sink, transactional_id=None, records=(10**6, 10**6), linger=60.0)
    wait_until(lambda: high_watermarks(cluster, sink) > 0, 60, "outputs in the log")
    assert operations(first, "commit_offsets") == []
    first.kill()

    group = f"{case.name}-g"
    second = case.pipeline(source, sink, transactional_id=None, abort_share=0.0)
    case.wait_caught_up(source, group)
    assert second.stop() == 0

    judged = case.judge(expect=Expect(pipeline=Pipeline(group=group, inputs=[source])))
    assert "processed_twice" in judged.names(), text(judged)
