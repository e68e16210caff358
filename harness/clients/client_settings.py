"""Client settings and time limits, in one table with their derivation.

Some defaults of confluent-kafka wait forever, and a harness that waits forever proves nothing. All limits
derive from the longest time a partition may be unavailable:

    F   4.5 s  fail-over: the broker session (3 s) and half of it again
    Q   5 s    request time-out: longer than F would hide a lost answer
    T  60 s    delivery time-out: an outage of all brokers and their restart, several Q long
    X  20 s    transaction time-out at the coordinator: longer than F + Q, shorter than T
    P  10 s    one call of the transactional interface, 2 Q; then it returns and is retried
    E  30 s    interval before an end is requested again, X + P: after X the coordinator has decided
    S   6 s    group session: longer than F, or every fail-over would cause a rebalance
    M 120 s    maximum poll interval, 2 E + T: offsets, end and a new producer fit between two polls
    B 0.1 s    retry back-off; librdkafka varies it by a fifth, so no retry comes before 0.8 B
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

REQUEST_LIMIT_S: Final = 5.0
DELIVERY_LIMIT_S: Final = 60.0
TRANSACTION_LIMIT_S: Final = 20.0
ATTEMPT_LIMIT_S: Final = 2 * REQUEST_LIMIT_S
GRACE_S: Final = 1.0
"""Extra time for a call to return on its own after its limit."""
END_LIMIT_S: Final = TRANSACTION_LIMIT_S + ATTEMPT_LIMIT_S
INIT_LIMIT_S: Final = DELIVERY_LIMIT_S
SESSION_LIMIT_S: Final = 6.0
POLL_LIMIT_S: Final = 2 * END_LIMIT_S + INIT_LIMIT_S
RETRY_BACKOFF_S: Final = 0.1
QUICKEST_RETRY_S: Final = 0.8 * RETRY_BACKOFF_S
"""A call that took less time cannot contain a retried request."""
STATISTICS_S: Final = 0.1
"""Statistics interval of a transactional client, and the wait after a slow end of a transaction."""
STATISTICS_LIMIT_S: Final = 2.0
"""Twenty intervals: without statistics within this time, the end of the transaction is in doubt."""
# Limit of a blocking call: one delivery, plus one request for its answer.
CALL_LIMIT_S: Final = DELIVERY_LIMIT_S + REQUEST_LIMIT_S
# After SIGTERM: one delivery for what is in flight; P for a call that has started and for leaving the group.
FINISH_LIMIT_S: Final = CALL_LIMIT_S
STOP_LIMIT_S: Final = FINISH_LIMIT_S + 2 * ATTEMPT_LIMIT_S

Value = str | int | float | bool
Config = dict[str, Value]


class ClientSetting(NamedTuple):
    """One client setting, its value and why it is not the default."""

    name: str
    value: Value
    why: str


COMMON: Final = (
    ClientSetting(
        "socket.timeout.ms", int(REQUEST_LIMIT_S * 1000), "Q: a request without an answer is sent again"
    ),
    ClientSetting("reconnect.backoff.ms", 50, "a severed link is tried again at once"),
    ClientSetting(
        "reconnect.backoff.max.ms", 500, "10 s by default: the client would sleep through a recovery"
    ),
    ClientSetting("retry.backoff.ms", int(RETRY_BACKOFF_S * 1000), "B: a moved leader is asked soon"),
    ClientSetting("retry.backoff.max.ms", 500, "and then not too often"),
    ClientSetting(
        "topic.metadata.refresh.interval.ms", 10_000, "a moved leader is noticed without an error too"
    ),
    ClientSetting(
        "metadata.recovery.strategy", "none", "a new bootstrap would set the counters of requests to zero"
    ),
    ClientSetting("socket.nagle.disable", "true", "small requests are not held back by the operating system"),
    ClientSetting("log_level", 4, "warnings and errors: the client's log is part of a run"),
)
PRODUCER: Final = (
    *COMMON,
    ClientSetting("message.timeout.ms", int(DELIVERY_LIMIT_S * 1000), "T: a record is given up"),
    ClientSetting(
        "request.timeout.ms", int(REQUEST_LIMIT_S * 1000), "Q: how long a leader waits for its followers"
    ),
    ClientSetting("linger.ms", 5, "batches of several records, as in production"),
    ClientSetting("acks", "all", "what exactly-once needs"),
    ClientSetting("enable.idempotence", "true", "what exactly-once needs"),
    ClientSetting(
        "statistics.interval.ms", 1000, "the producer id and its epoch stand in the statistics only"
    ),
)
TRANSACTIONS: Final = (
    *PRODUCER,
    ClientSetting(
        "statistics.interval.ms", int(STATISTICS_S * 1000), "a request that was sent twice is noticed"
    ),
)
CONSUMER: Final = (
    *COMMON,
    ClientSetting("enable.auto.commit", False, "positions are committed with the outputs, or not at all"),
    ClientSetting("auto.offset.reset", "earliest", "a group without a position has processed nothing"),
    ClientSetting("fetch.wait.max.ms", 100, "half a second by default: a poll would come back that late"),
    ClientSetting("fetch.error.backoff.ms", 100, "a moved leader is asked soon"),
    ClientSetting(
        "queued.min.messages", 2000, "100,000 a partition by default: what is behind holds that much"
    ),
    ClientSetting("queued.max.messages.kbytes", 1024, "64 MB a partition by default, and more to keep it in"),
    ClientSetting(
        "fetch.queue.backoff.ms", 10, "1 s by default: a queue that was full would run empty meanwhile"
    ),
    ClientSetting("check.crcs", True, "damage on the way is an error and not a record"),
    ClientSetting("max.poll.interval.ms", int(POLL_LIMIT_S * 1000), "M: five minutes by default"),
)
CLASSIC: Final = (
    *CONSUMER,
    ClientSetting("session.timeout.ms", int(SESSION_LIMIT_S * 1000), "S: 45 s by default"),
    ClientSetting("heartbeat.interval.ms", 1000, "six heartbeats in a session"),
)
NEXT_GENERATION: Final = (
    *CONSUMER,
    # With the KIP-848 protocol, session timeout and heartbeat are broker settings: S and a sixth of S.
    ClientSetting(
        "group.protocol", "consumer", "the broker assigns; a session limit of the client's own is refused"
    ),
)

GROUP: Final[dict[str, tuple[ClientSetting, ...]]] = {"classic": CLASSIC, "consumer": NEXT_GENERATION}
Protocol = Literal["classic", "consumer"]


def settings(table: tuple[ClientSetting, ...], **overrides: Value) -> Config:
    """Return a confluent-kafka configuration from a table, with the scenario's overrides."""
    config: Config = {s.name: s.value for s in table}
    return config | {name.replace("_", "."): value for name, value in overrides.items()}


def transaction_settings(transactional_id: str, timeout_ms: int, overrides: Config) -> Config:
    """Return the configuration of a transactional producer; no limit exceeds the transaction time-out."""
    config = settings(TRANSACTIONS) | {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
    }
    for name in ("message.timeout.ms", "socket.timeout.ms", "request.timeout.ms"):
        config[name] = min(int(config[name]), timeout_ms)
    return config | overrides
