"""Membership of a group whose positions a scripted producer hands over. The member reads no records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from harness.base.waits import wait_until

JOIN_LIMIT_S: Final = 30.0


@contextmanager
def membership(bootstrap: str, group: str, topic: str) -> Iterator[Any]:
    """Yield a consumer of confluent-kafka that is a member of the group; it leaves the group at the end."""
    from confluent_kafka import Consumer

    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        member.subscribe([topic])
        wait_until(lambda: (member.poll(0.1), member.assignment())[1], JOIN_LIMIT_S, "an assignment")
        yield member
    finally:
        member.close()
