"""The members of a consumer group and their partitions, as the coordinator describes them."""

from __future__ import annotations

from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from harness.base.partition_id import PartitionId
from harness.kafka.security import PLAINTEXT, Security

REQUEST_LIMIT_S = 5.0


def assigned_partitions(bootstrap: str, group: str, security: Security = PLAINTEXT) -> set[PartitionId]:
    """Return the partitions that the members of a stable group have.

    The set is empty if the group does not exist, is not stable, or if no coordinator answers.
    """
    described = _describe(bootstrap, group, security)
    if described is None or described.state is not ConsumerGroupState.STABLE:
        return set()
    return {
        (place.topic, place.partition)
        for member in described.members
        if member.assignment is not None
        for place in member.assignment.topic_partitions
    }


def group_members(bootstrap: str, group: str, security: Security = PLAINTEXT) -> dict[str, str]:
    """Return the client id of each member of a group, by member id.

    Raise ConnectionError if no coordinator answers: an empty group must not be confused with an unknown one.
    """
    described = _describe(bootstrap, group, security)
    if described is None:
        raise ConnectionError(f"no coordinator describes group {group}")
    return {member.member_id: member.client_id for member in described.members}


def _describe(bootstrap: str, group: str, security: Security) -> Any:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **security.client()})
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=REQUEST_LIMIT_S)
        return asked[group].result(REQUEST_LIMIT_S)
    except (KafkaException, TimeoutError):
        return None
