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


@pytest.mark.parametrize("tries", [3, pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.parametrize("released", [True, False], ids=["late", "never"])
def test_a_late_init_fences_the_producer_that_sent_it(
    cluster: Cluster, evidence: Callable[..., None], *, released: bool, tries: int
) -> None:
    topic = f"late-init-{released}-{tries}".lower()
    cluster.create_topic(topic, 1)
    ensure_tap(cluster)
    results = [attempt(cluster, topic, f"{topic}-{number}", released=released) for number in range(tries)]
    evidence(results=results)
    cluster.delete_topics([topic])
    assert results == [("NONE", "_FENCED") if released else ("", "")] * tries, CHANGED


def attempt(cluster: Cluster, topic: str, ident: str, *, released: bool) -> tuple[str, str]:
    """Hold the first InitProducerId of a producer, and release it after its retry was answered, or never.

    Return the broker's answer to the late request, and the error of the producer's transaction.
    """
    from confluent_kafka import KafkaException, Producer

    config = {"bootstrap.servers": cluster.bootstrap("TAPPED"), "transactional.id": ident, "log_level": 0}
    with arm(cluster, HoldFrame(api="InitProducerId", transactional_id=ident, drop_client=True)) as held:
        producer = Producer(config)
        producer.init_transactions(LIMIT_S)
        answer = ""
        if released:
            held.release()
            answer = wait_until(lambda: held.wait().hits[0].answer or "", LIMIT_S, "an answer")
    producer.begin_transaction()
    producer.produce(topic, b"A", partition=0)
    try:
        producer.commit_transaction(LIMIT_S)
    except (KafkaException, SystemError) as raised:
        found = library_error(raised)
        return answer, found.name() if found else repr(raised)
    return answer, ""
