"""What one broker coordinates: groups and transactional ids, as far as the asker may see them."""

from __future__ import annotations

from typing import Final

from harness.kafka.admin import Admin
from harness.kafka.connection import KafkaAnswerError

_NO_GROUP: Final = 69


def coordinated_groups(admin: Admin, broker: int) -> list[str]:
    """The groups whose coordinator this broker is."""
    from kafka.protocol.admin import ListGroupsRequest

    answer = admin.call(broker, ListGroupsRequest(version=2))
    if answer.error_code:
        raise KafkaAnswerError(f"groups of broker {broker}", answer.error_code)
    return sorted(group.group_id for group in answer.groups)


def coordinated_transactions(admin: Admin, broker: int) -> list[str]:
    """The transactional ids whose coordinator this broker is."""
    from kafka.protocol.admin import ListTransactionsRequest

    answer = admin.call(broker, ListTransactionsRequest(state_filters=[], producer_id_filters=[], version=0))
    if answer.error_code:
        raise KafkaAnswerError(f"transactional ids of broker {broker}", answer.error_code)
    return sorted(state.transactional_id for state in answer.transaction_states)


def delete_group(admin: Admin, group: str) -> None:
    """Forget the committed positions of a group that nobody is in; one that is not there is forgotten."""
    from kafka.protocol.admin import DeleteGroupsRequest

    request = DeleteGroupsRequest(groups_names=[group], version=1)
    for answer in admin.call(admin.coordinator("group", group), request).results:
        if answer.error_code not in (0, _NO_GROUP):
            raise KafkaAnswerError(f"deletion of group {group}", answer.error_code)
