"""Replicas that a reassignment removed stay in the ELR, and their partition never gets a leader again.

This hazard was found during the work on the skipped marker (test_skipped_marker.py): the partitions of that
work also have few replicas.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST
from harness.kafka.connection import answers
from harness.kafka.errors import KafkaAnswerError
from harness.walkthroughs.broker_evidence import leader_log
from harness.walkthroughs.skipped_marker import wait_leaderless
from tests.hazards.conftest import CHANGED

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

RECORDS = 5
WATCHED_S = 6.0
UNKNOWN_SERVER_ERROR = -1


def eligible(cluster: Cluster, topic: str) -> tuple[list[int], list[int], list[int]]:
    """Return a partition's replicas, its eligible leaders outside the ISR (ELR), and its last known ELR."""
    from kafka.protocol.admin import DescribeTopicPartitionsRequest

    asked = DescribeTopicPartitionsRequest.TopicRequest
    request = DescribeTopicPartitionsRequest(
        topics=[asked(name=topic)], response_partition_limit=10, cursor=None, version=0
    )
    found: Any = cluster.admin.call(1, request).topics[0].partitions[0]
    return (
        sorted(found.replica_nodes),
        sorted(found.eligible_leader_replicas or []),
        sorted(found.last_known_elr or []),
    )


def sent(cluster: Cluster, topic: str) -> list[int]:
    """Send records with acks=all to a partition with one replica; return their offsets."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap("DIRECT"), "acks": "all", "log_level": 2})
    for number in range(RECORDS):
        producer.produce(
            topic, b"%d" % number, partition=0, on_delivery=lambda _, m: offsets.append(m.offset())
        )
    assert producer.flush(20) == 0
    producer.close()
    return offsets


def elect_uncleanly(cluster: Cluster, topic: str) -> None:
    """Start an unclean leader election."""
    from kafka.protocol.admin import ElectLeadersRequest

    asked = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        election_type=1, topic_partitions=[asked(topic=topic, partitions=[0])], timeout_ms=5000, version=2
    )
    answer = cluster.admin.call_any(request).replica_election_results[0].partition_result[0]
    assert answer.error_code == 0, answer.error_message


def test_a_partition_gets_no_leader_although_its_only_replica_is_up(
    cluster: Cluster, make_topic: Callable[..., str], evidence: Callable[..., None]
) -> None:
    """The two removed replicas are still eligible, so the controller does not elect the remaining one."""
    topic = make_topic([[3, 1, 2]])
    cluster.reassign(topic, {0: (3,)})
    offsets = sent(cluster, topic)
    cluster.node("kafka-3").kill()
    wait_leaderless(cluster, (topic, 0), (1, 2))
    cluster.node("kafka-3").start()
    wait_until(
        lambda: answers(HOST, cluster.ports.direct(3)) and 3 in cluster.admin.metadata().brokers,
        30,
        "broker 3 to be back",
    )
    back = time.monotonic()
    leaders = set()

    def watched() -> bool:
        leaders.add(cluster.partition(topic, 0).leader)
        return time.monotonic() > back + WATCHED_S

    wait_until(watched, WATCHED_S + 10, "the watch to be over", every=0.2)
    waiting = eligible(cluster, topic)
    with pytest.raises(KafkaAnswerError) as refused:  # the usual remedy for too few replicas fails
        cluster.admin.reassign(topic, {0: (3, 1, 2)})
    elect_uncleanly(cluster, topic)
    leader = cluster.leader_of(topic, 0)
    left = [value for batch in leader_log(cluster, (topic, 0)) for _, value in batch.values]
    evidence(waiting=waiting, leaders=sorted(leaders), refused=str(refused.value), left=len(left))
    assert waiting == ([3], [1, 2], [3]), CHANGED
    assert leaders == {-1}, f"its only replica is up and leads: {CHANGED}"
    assert refused.value.code == UNKNOWN_SERVER_ERROR, CHANGED
    assert leader == 3
    assert len(left) == len(offsets) == RECORDS, "nothing was lost: the log was there all the time"
