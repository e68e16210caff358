"""Requests about groups and transactional ids of a coordinator, and the hash that selects a coordinator."""

from __future__ import annotations

import struct

from harness.kafka.admin import Admin
from harness.kafka.errors import ErrorCode, check


def coordinated_groups(admin: Admin, broker: int) -> list[str]:
    """Return the ids of the consumer groups that this broker coordinates."""
    from kafka.protocol.admin import ListGroupsRequest

    answer = admin.call(broker, ListGroupsRequest(version=2))
    check(f"groups of broker {broker}", answer.error_code)
    return sorted(group.group_id for group in answer.groups)


def coordinated_transactions(admin: Admin, broker: int, producer_ids: list[int] | None = None) -> list[str]:
    """Return the transactional ids that this broker coordinates.

    With `producer_ids`, return only the transactional ids that have one of these producer ids.
    """
    from kafka.protocol.admin import ListTransactionsRequest

    request = ListTransactionsRequest(state_filters=[], producer_id_filters=producer_ids or [], version=0)
    answer = admin.call(broker, request)
    check(f"transactional ids of broker {broker}", answer.error_code)
    return sorted(state.transactional_id for state in answer.transaction_states)


def delete_group(admin: Admin, group: str) -> None:
    """Delete an empty consumer group and its offsets. A group that does not exist is not an error."""
    from kafka.protocol.admin import DeleteGroupsRequest

    request = DeleteGroupsRequest(groups_names=[group], version=1)
    for answer in admin.call(admin.coordinator("group", group), request).results:
        if answer.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(f"deletion of group {group}", answer.error_code)


def java_hash(text: str) -> int:
    """Return the absolute value of Java's hash code of a string.

    Kafka takes this number modulo the partition count of a coordinator topic (__transaction_state or
    __consumer_offsets). The leader of the resulting partition coordinates the transactional id or group.
    """
    data = text.encode("utf-16-be")
    value = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        value = (31 * value + unit) & 0xFFFFFFFF
    if value == 1 << 31:
        return 0  # -2**31 has no positive counterpart in 32 bits; Kafka uses zero
    return value if value < 1 << 31 else (1 << 32) - value
