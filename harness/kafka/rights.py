"""Operations that the brokers deny to this user, learned from requests that change nothing.

The names need not exist. Brokers do not report all operations in this way: nothing shows whether a user may
write to or delete a topic that does not exist, or write transactions of an id that is not in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from harness.kafka.admin import Admin
from harness.kafka.brokers import describe_producers
from harness.kafka.errors import KafkaAnswerError
from harness.kafka.transactions import describe_transactions

_OPERATIONS: Final = {"Describe": 8, "Read": 3, "Delete": 6}
"""Operations on a group that a run needs, with Kafka's codes."""


def denied_on_topic(admin: Admin, broker: int, topic: str) -> list[str]:
    """Return which of the operations Describe and Read on a topic are denied to this user."""
    requests: dict[str, Callable[[], object]] = {
        "Describe": lambda: admin.metadata([topic]),
        "Read": lambda: describe_producers(admin, broker, (topic, 0)),
    }
    return [operation for operation, request in requests.items() if _is_denied(request)]


def denied_on_transactional_id(admin: Admin, broker: int, transactional_id: str) -> list[str]:
    """Return Describe if this operation on a transactional id is denied to this user."""
    is_denied = _is_denied(lambda: describe_transactions(admin, broker, [transactional_id]))
    return ["Describe"] if is_denied else []


def denied_on_group(admin: Admin, brokers: Iterable[int], group: str) -> list[str]:
    """Return which of the operations Describe, Read and Delete on a group are denied to this user.

    Only the coordinator of the group reports them. If no broker is the coordinator yet, return none.
    """
    from kafka.protocol.admin import DescribeGroupsRequest

    for broker in brokers:
        request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True, version=5)
        answer = admin.call(broker, request).groups[0]
        if answer.error_code == 0:
            allowed: set[int] | None = answer.authorized_operations  # None: the broker does not report them
            return [name for name, code in _OPERATIONS.items() if allowed is not None and code not in allowed]
        if KafkaAnswerError(f"group {group}", answer.error_code).denied:
            return list(_OPERATIONS)  # a right to read or to delete includes the right to describe
    return []


def _is_denied(request: Callable[[], object]) -> bool:
    """Return whether a broker answers that this user lacks a right.

    Other errors, such as that of a name that does not exist, do not show a missing right.
    """
    try:
        request()
    except KafkaAnswerError as error:
        return error.denied
    return False
