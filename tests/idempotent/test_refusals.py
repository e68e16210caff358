"""Requests that an authoriser refuses: a producer with few rights on a single broker with ACLs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, ResourceType

from harness.clients.client import library_error
from harness.cluster.cluster import Cluster
from tests.single_broker import OneBroker, one_broker
from tests.tapped import Evidence

pytestmark = pytest.mark.cluster

IDEMPOTENT = {"enable.idempotence": True}


@pytest.fixture(scope="module")
def guarded(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:  # noqa: ARG001
    with one_broker(tmp_path_factory.mktemp("guarded")) as made:
        for topic in ("none", "seen", "written", "enough"):
            made.topic(topic)
        yield made


def outcome(producer: Producer, topic: str) -> str:
    """Send one record; return `delivered` or the name of the client library's error."""
    delivered: list[KafkaError | None] = []
    try:
        producer.produce(topic, b"record", partition=0, on_delivery=lambda error, _: delivered.append(error))
        producer.flush(10)
    except (KafkaException, SystemError) as exception:
        error = library_error(exception)
        if error is None:
            raise
        return error.name()
    finally:
        producer.close()
    return "delivered" if delivered[0] is None else str(delivered[0].name())


def test_the_right_to_write_a_topic_is_needed_to_send(guarded: OneBroker, evidence: Evidence) -> None:
    """Give the producer more rights step by step: it can send only with WRITE on the topic.

    WRITE on the topic includes the right to a producer id. IDEMPOTENT_WRITE alone is not enough.
    """

    def attempt(topic: str) -> tuple[set[str], int]:
        errors: list[str] = []
        delivered = outcome(
            Producer(guarded.as_alice | IDEMPOTENT | {"error_cb": lambda e: errors.append(e.name())}), topic
        )
        return {delivered, *errors}, guarded.written(topic)

    nothing = attempt("none")
    guarded.allow(ResourceType.TOPIC, "seen", AclOperation.DESCRIBE)
    seen = attempt("seen")
    guarded.allow(ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE)
    with_id = attempt("seen")
    guarded.allow(ResourceType.TOPIC, "written", AclOperation.WRITE)
    with_write = attempt("written")
    evidence(nothing=nothing, seen=seen, with_id=with_id, with_write=with_write)
    assert "TOPIC_AUTHORIZATION_FAILED" in nothing[0]
    assert "CLUSTER_AUTHORIZATION_FAILED" in seen[0]
    assert "TOPIC_AUTHORIZATION_FAILED" in with_id[0]
    assert [nothing[1], seen[1], with_id[1]] == [0, 0, 0]
    assert "delivered" in with_write[0]
    assert not [text for text in with_write[0] if "AUTHORIZATION" in text]
    assert with_write[1] == 1


def test_the_right_to_write_a_topic_is_enough(guarded: OneBroker, evidence: Evidence) -> None:
    """Send with WRITE on the topic and without IDEMPOTENT_WRITE, which is not needed since Kafka 2.8."""
    guarded.allow(ResourceType.TOPIC, "enough", AclOperation.WRITE)
    guarded.forbid(ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE)
    delivered = outcome(Producer(guarded.as_alice | IDEMPOTENT), "enough")
    evidence(delivered=delivered, written=guarded.written("enough"))
    assert delivered == "delivered"
    assert guarded.written("enough") == 1
