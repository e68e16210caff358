"""Kafka's error codes: their names, and the exception for an answer that carries one."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The codes that the harness handles. kafka-python has all of them, but takes 0.1 s to import."""

    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    TOPIC_ALREADY_EXISTS = 36
    NOT_CONTROLLER = 41
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    ELECTION_NOT_NEEDED = 84


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, such as PRODUCER_FENCED; NONE for 0."""
    from kafka.errors import for_code

    return str(for_code(code).message) if code else ErrorCode.NONE.name


class KafkaAnswerError(OSError):
    """A broker answered with an error code. It is an OSError so that `wait_until` retries."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {error_name(code)} ({code})")
        self.code = code

    @property
    def denied(self) -> bool:
        """Whether an ACL or a policy forbids the request, so that a retry is useless."""
        name = error_name(self.code)
        return name.endswith("_AUTHORIZATION_FAILED") or name == "POLICY_VIOLATION"


def check(what: str, code: int) -> None:
    """Raise KafkaAnswerError unless the code is 0."""
    if code:
        raise KafkaAnswerError(what, code)
