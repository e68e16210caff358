"""Kafka's error codes: their names, and the exception for an answer that contains one."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Error codes that the harness handles. Importing kafka-python's complete list would take 0.1 s."""

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
    """Return Kafka's name of an error code, such as PRODUCER_FENCED. The name of code 0 is NONE."""
    from kafka.errors import for_code

    return str(for_code(code).message) if code else ErrorCode.NONE.name


class KafkaAnswerError(OSError):
    """An error for an answer of a broker that contains an error code.

    It is an OSError, so `wait_until` tries again after it.
    """

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {error_name(code)} ({code})")
        self.code = code

    @property
    def denied(self) -> bool:
        """True if an ACL or a policy forbids the request, so that a retry is useless."""
        name = error_name(self.code)
        return name.endswith("_AUTHORIZATION_FAILED") or name == "POLICY_VIOLATION"


def check(what: str, code: int) -> None:
    """Raise KafkaAnswerError unless the error code is 0; `what` describes the request."""
    if code:
        raise KafkaAnswerError(what, code)
