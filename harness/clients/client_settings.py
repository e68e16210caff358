"""Client settings and time limits, in one table with their derivation.

Some calls of confluent-kafka wait forever by default, so the harness sets a limit for each of them. All
limits derive from F, the longest time for which a partition may be unavailable:

    F   4.5 s  fail-over: 1.5 times the session time-out of a broker (3 s)
    Q   5 s    request time-out: about F; a much longer one would delay the reaction to a lost answer
    T  60 s    delivery time-out: several times Q, to last through an outage of all brokers and their restart
    X  20 s    transaction time-out at the coordinator: longer than F + Q, shorter than T
    P  10 s    limit of one call of the transactional interface: 2 Q; after it, the client repeats the call
    E  30 s    limit of all retries of a commit or abort: X + P; after X the coordinator has decided the
               transaction
    S   6 s    session time-out of a group: longer than F, or every fail-over would cause a rebalance
    M 120 s    maximum poll interval, 2 E + T: between two polls a worker may send offsets (E), commit or
               abort (E), and create a new producer (T)
    B 0.1 s    retry back-off; librdkafka varies it by a fifth, so no retry comes before 0.8 B
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

REQUEST_LIMIT_S: Final = 5.0
DELIVERY_LIMIT_S: Final = 60.0
TRANSACTION_LIMIT_S: Final = 20.0
ATTEMPT_LIMIT_S: Final = 2 * REQUEST_LIMIT_S
GRACE_S: Final = 1.0
"""Extra time, after a call's limit, for the call to return by itself."""
END_LIMIT_S: Final = TRANSACTION_LIMIT_S + ATTEMPT_LIMIT_S
INIT_LIMIT_S: Final = DELIVERY_LIMIT_S
CATCH_UP_LIMIT_S: Final = END_LIMIT_S
"""Time in which a reader reads to the end of its partitions after a stop request."""
SESSION_LIMIT_S: Final = 6.0
POLL_LIMIT_S: Final = 2 * END_LIMIT_S + INIT_LIMIT_S
RETRY_BACKOFF_S: Final = 0.1
QUICKEST_RETRY_S: Final = 0.8 * RETRY_BACKOFF_S
"""A call that took less time than this cannot contain a retried request."""
STATISTICS_S: Final = 0.1
"""Statistics interval of a transactional client. After a slow commit or abort, the client waits for the next
statistics.
"""
STATISTICS_LIMIT_S: Final = 2.0
"""Time limit for statistics to arrive (20 intervals). If none arrive, the end of the transaction is in
doubt.
"""
# Time limit of a blocking call: the delivery time-out of a record plus one request time-out.
CALL_LIMIT_S: Final = DELIVERY_LIMIT_S + REQUEST_LIMIT_S
# After SIGTERM, a client has FINISH_LIMIT_S to deliver the records in flight. STOP_LIMIT_S adds
# ATTEMPT_LIMIT_S twice: once for a call that has already started, and once for leaving the group.
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
    ClientSetting("socket.timeout.ms", int(REQUEST_LIMIT_S * 1000), "Q: retry a request without an answer"),
    ClientSetting("reconnect.backoff.ms", 50, "reconnect at once after a cut"),
    ClientSetting("reconnect.backoff.max.ms", 500, "default 10 s: the client would miss a recovery"),
    ClientSetting("retry.backoff.ms", int(RETRY_BACKOFF_S * 1000), "B: find a new leader soon"),
    ClientSetting("retry.backoff.max.ms", 500, "but do not flood it"),
    ClientSetting("topic.metadata.refresh.interval.ms", 10_000, "find a new leader even without an error"),
    ClientSetting("metadata.recovery.strategy", "none", "a rebootstrap would reset the request counters"),
    ClientSetting("socket.nagle.disable", "true", "send small requests without delay"),
    ClientSetting("log_level", 4, "log warnings and errors: the log is part of a run"),
)
PRODUCER: Final = (
    *COMMON,
    ClientSetting("message.timeout.ms", int(DELIVERY_LIMIT_S * 1000), "T: give up on a record"),
    ClientSetting(
        "request.timeout.ms", int(REQUEST_LIMIT_S * 1000), "Q: time a leader waits for its followers"
    ),
    ClientSetting("linger.ms", 5, "batches of several records, as in production"),
    ClientSetting("acks", "all", "required for exactly-once"),
    ClientSetting("enable.idempotence", "true", "required for exactly-once"),
    ClientSetting("statistics.interval.ms", 1000, "producer id and epoch are only in the statistics"),
)
TRANSACTIONS: Final = (
    *PRODUCER,
    ClientSetting("statistics.interval.ms", int(STATISTICS_S * 1000), "detect a retried request"),
)
CONSUMER: Final = (
    *COMMON,
    ClientSetting("enable.auto.commit", False, "commit positions together with outputs only"),
    ClientSetting("auto.offset.reset", "earliest", "a group without positions has processed nothing"),
    ClientSetting("fetch.wait.max.ms", 100, "default 0.5 s: a poll would return that late"),
    ClientSetting("fetch.error.backoff.ms", 100, "find a new leader soon"),
    ClientSetting("queued.min.messages", 2000, "default 100,000 a partition: memory of a lagging client"),
    ClientSetting("queued.max.messages.kbytes", 1024, "default 64 MB a partition, plus overhead"),
    ClientSetting("fetch.queue.backoff.ms", 10, "default 1 s: a full queue would run empty in that time"),
    ClientSetting("check.crcs", True, "report corrupted records as errors"),
    ClientSetting("max.poll.interval.ms", int(POLL_LIMIT_S * 1000), "M: default five minutes"),
)
CLASSIC: Final = (
    *CONSUMER,
    ClientSetting("session.timeout.ms", int(SESSION_LIMIT_S * 1000), "S: default 45 s"),
    ClientSetting("heartbeat.interval.ms", 1000, "six heartbeats in a session"),
)
NEXT_GENERATION: Final = (
    *CONSUMER,
    # With the KIP-848 protocol, session time-out and heartbeat interval are settings of the broker. The
    # harness sets them there to 6 s and 1 s, as for the classic protocol.
    ClientSetting("group.protocol", "consumer", "the broker assigns; a client session timeout is rejected"),
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
