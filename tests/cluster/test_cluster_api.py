"""Topics, placement, current roles, offsets and reassignment on a real cluster."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from harness.base.errors import UsageError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, CONTROLLER_IDS
from harness.kafka.admin import EndOffsets
from harness.kafka.coordinators import java_hash
from harness.kafka.errors import KafkaAnswerError

pytestmark = pytest.mark.cluster


def partition_of(cluster: Cluster, topic: str, key: str) -> int:
    """Return the partition of __transaction_state or __consumer_offsets to which the id `key` belongs."""
    return java_hash(key) % len(cluster.admin.metadata([topic]).partitions)


def test_a_topic_is_placed_as_requested(cluster: Cluster) -> None:
    cluster.create_topic("placed", [[2, 3], [3, 1], [3, 2]], {"min.insync.replicas": "1"})

    found = cluster.admin.metadata(["placed"]).partitions

    assert [(p.leader, p.replicas) for p in found] == [(2, (2, 3)), (3, (3, 1)), (3, (3, 2))]
    cluster.delete_topics(["placed"])


def test_creating_an_existing_topic_is_an_error(cluster: Cluster, topic: str) -> None:
    with pytest.raises(KafkaAnswerError, match=f"creation of topic {topic}: TOPIC_ALREADY_EXISTS"):
        cluster.create_topic(topic)


def test_coordinators_lead_the_partition_that_their_key_hashes_to(cluster: Cluster) -> None:
    for key in ("my-txn-app", "orders", "x" * 40):
        for topic, coordinator in (
            ("__transaction_state", cluster.txn_coordinator),
            ("__consumer_offsets", cluster.group_coordinator),
        ):
            assert coordinator(key) == cluster.leader_of(topic, partition_of(cluster, topic, key))


def test_the_quorum_has_its_three_voters_and_a_leader_among_them(cluster: Cluster) -> None:
    quorum = cluster.admin.quorum()

    assert sorted(quorum.voter_log_ends) == list(CONTROLLER_IDS)
    assert cluster.active_controller() == quorum.leader
    assert quorum.leader in CONTROLLER_IDS


def test_an_open_transaction_holds_the_last_stable_offset_back(cluster: Cluster, topic: str) -> None:
    config = {"bootstrap.servers": cluster.bootstrap("DIRECT"), "transactional.id": "api-test"}
    producer = Producer(config)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"one", partition=0)
    producer.flush(20)

    assert cluster.end_offsets(topic)[0] == EndOffsets(high_watermark=1, last_stable=0)

    producer.commit_transaction(20)
    # The coordinator acknowledges the commit before the marker is written. The marker takes an offset of its
    # own, so both values become 2.
    done = EndOffsets(high_watermark=2, last_stable=2)
    wait_until(lambda: cluster.end_offsets(topic)[0] == done, 10, "the commit marker")


def test_replicas_are_reassigned(cluster: Cluster) -> None:
    cluster.create_topic("moving", [[1, 2]])

    cluster.reassign("moving", {0: [3, 2]})

    assert cluster.partition("moving", 0).replicas == (3, 2)
    wait_until(lambda: cluster.partition("moving", 0).leader in (2, 3), 10, "a leader among the new replicas")
    cluster.delete_topics(["moving"])


@pytest.mark.parametrize("listener", ["PROXIED", "DIRECT"])
def test_a_client_works_through_each_listener(cluster: Cluster, topic: str, listener: str) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap(listener)})
    for partition in range(3):
        producer.produce(topic, b"x", partition=partition, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(20) == 0
    assert failed == [None] * 3


def test_the_listener_between_brokers_is_refused(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="for brokers only"):
        cluster.bootstrap("INTERNAL")


def test_the_error_of_an_unhealthy_cluster_names_its_ailments(cluster: Cluster) -> None:
    cluster.node("kafka-2").pause()
    with pytest.raises(WaitTimeoutError, match="kafka-2 is paused"):
        cluster.wait_healthy(limit=0.3)
    cluster.node("kafka-2").resume()
    cluster.wait_healthy()


def test_every_broker_runs_with_the_settings_of_the_table(cluster: Cluster) -> None:
    from kafka.protocol.admin import DescribeConfigsRequest

    from harness.cluster.broker_settings import settings_for

    resource = DescribeConfigsRequest.DescribeConfigsResource
    for broker in BROKER_IDS:
        request = DescribeConfigsRequest(
            resources=[resource(resource_type=4, resource_name=str(broker), configuration_keys=None)],
            include_synonyms=False,
            include_documentation=False,
            version=4,
        )
        answer = cluster.admin.call(broker, request).results[0]
        found = {config.name: config.value for config in answer.configs}
        assert {name: found[name] for name in settings_for("broker")} == settings_for("broker")
