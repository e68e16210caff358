"""Client settings and every time limit of a client, in one table with its derivation.

The defaults of confluent-kafka wait for ever in places; a harness that waits for ever proves nothing. All
limits follow from how long the cluster may be away from a partition:

    F  4.5 s   a fail-over: the broker session (3 s) and half of it again
    Q  5 s     a request is given up and sent again: longer than F would hide a lost answer behind it
    T  60 s    a record is given up: room for an outage of all brokers and their restart, several Q long
    X  20 s    a transaction is aborted by its coordinator: longer than F + Q, shorter than T
"""

from __future__ import annotations

from typing import NamedTuple

REQUEST_LIMIT_S = 5.0
DELIVERY_LIMIT_S = 60.0
TRANSACTION_LIMIT_S = 20.0
# What is asked of a client call that blocks: one delivery, and one request on top for its answer.
CALL_LIMIT_S = DELIVERY_LIMIT_S + REQUEST_LIMIT_S


class Setting(NamedTuple):
    """One client setting, its value and why it is not the default."""

    name: str
    value: str | int
    why: str


COMMON = (
    Setting("socket.timeout.ms", int(REQUEST_LIMIT_S * 1000), "Q: a request without an answer is sent again"),
    Setting("reconnect.backoff.ms", 50, "a severed link is tried again at once"),
    Setting("reconnect.backoff.max.ms", 500, "10 s by default: the client would sleep through a recovery"),
    Setting("retry.backoff.ms", 50, "a moved leader is asked soon"),
    Setting("retry.backoff.max.ms", 500, "and then not too often"),
    Setting("topic.metadata.refresh.interval.ms", 10_000, "a moved leader is noticed without an error too"),
    Setting("socket.nagle.disable", "true", "small requests are not held back by the operating system"),
    Setting("log_level", 4, "warnings and errors: the client's log is part of a run"),
)
PRODUCER = (
    *COMMON,
    Setting("message.timeout.ms", int(DELIVERY_LIMIT_S * 1000), "T: a record is given up"),
    Setting(
        "request.timeout.ms", int(REQUEST_LIMIT_S * 1000), "Q: how long a leader waits for its followers"
    ),
    Setting("linger.ms", 5, "batches of several records, as in production"),
    Setting("acks", "all", "what exactly-once needs"),
    Setting("enable.idempotence", "true", "what exactly-once needs"),
)


def settings(table: tuple[Setting, ...], **overrides: str | int) -> dict[str, str | int | float | bool]:
    """A configuration for confluent-kafka out of the table, with what a scenario changes."""
    config: dict[str, str | int | float | bool] = {s.name: s.value for s in table}
    return config | {name.replace("_", "."): value for name, value in overrides.items()}
