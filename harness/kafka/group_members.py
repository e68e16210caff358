"""The members of a consumer group and their partitions, as the coordinator describes them."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from harness.base.partition_id import PartitionId
from harness.kafka.security import PLAINTEXT, Security

REQUEST_LIMIT_S = 5.0


def assigned_partitions(bootstrap: str, group: str, security: Security = PLAINTEXT) -> set[PartitionId]:
    """Return the partitions that the members of a stable group have.

    The set is empty if the group does not exist, is not stable, or if no coordinator answers.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **security.client()})
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=REQUEST_LIMIT_S)
        described = asked[group].result(REQUEST_LIMIT_S)
    except (KafkaException, TimeoutError):
        return set()
    if described.state is not ConsumerGroupState.STABLE:
        return set()
    return {
        (place.topic, place.partition)
        for member in described.members
        if member.assignment is not None
        for place in member.assignment.topic_partitions
    }
