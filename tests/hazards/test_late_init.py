"""A late InitProducerId fences the producer that sent it. Nothing is lost, and the client gets an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.base.waits import wait_until
from harness.clients.client import library_error
from harness.cluster.cluster import Cluster
from harness.faults import HoldFrame, arm
from harness.tap.tap_client import ensure_tap
from tests.hazards.conftest import CHANGED

pytestmark = pytest.mark.cluster

LIMIT_S = 30.0


@pytest.mark.parametrize("released", [True, False], ids=["late", "never"])
def test_a_late_init_fences_the_producer_that_sent_it(
    cluster: Cluster, evidence: Callable[..., None], *, released: bool
) -> None:
    from confluent_kafka import KafkaException, Producer

    topic = f"late-init-{released}".lower()
    cluster.create_topic(topic, 1)
    ensure_tap(cluster)
    config = {"bootstrap.servers": cluster.bootstrap("TAPPED"), "transactional.id": topic, "log_level": 0}
    with arm(cluster, HoldFrame(api="InitProducerId", transactional_id=topic, drop_client=True)) as held:
        producer = Producer(config)
        producer.init_transactions(LIMIT_S)
        answer = ""
        if released:
            held.release()
            answer = wait_until(lambda: held.wait().hits[0].answer or "", LIMIT_S, "an answer")
    error = ""
    producer.begin_transaction()
    producer.produce(topic, b"A", partition=0)
    try:
        producer.commit_transaction(LIMIT_S)
    except (KafkaException, SystemError) as raised:
        found = library_error(raised)
        error = found.name() if found else repr(raised)
    evidence(answer=answer, error=error)
    cluster.delete_topics([topic])
    assert (answer, error) == (("NONE", "_FENCED") if released else ("", "")), CHANGED
