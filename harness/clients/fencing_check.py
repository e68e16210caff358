"""Finds out what fenced a producer: a successor with its transactional id, or the transaction time-out.

librdkafka reports _FENCED in both cases. A client that takes the id back from a living successor fights it
forever; a client that gives up after a time-out stops without need. The coordinator's state decides:

    epoch one higher, and an aborted transaction that began while ours was young      time-out
    anything else: more epochs, another producer id, a state without an abort          successor
"""

from __future__ import annotations

from typing import Final, NamedTuple

from harness.base.waits import wait_until
from harness.kafka.connection import KafkaAnswerError, RawConnection
from harness.kafka.security import PLAINTEXT, Security

CALL_S: Final = 3.0
DECIDED_S: Final = 20.0
"""Longest time for the markers of a decided transaction to be written: one transaction time-out."""


class Known(NamedTuple):
    """State of a transactional id at its coordinator."""

    state: str
    producer_id: int
    epoch: int
    started_ms: int


class Ours(NamedTuple):
    """State of the producer: its id and epoch, and when its open transaction began."""

    identity: tuple[int, int] | None
    began_ms: int
    timeout_ms: int
    age_s: float


def timed_out(bootstrap: str, transactional_id: str, ours: Ours, security: Security = PLAINTEXT) -> bool:
    """Return whether the transaction time-out fenced the producer, and no successor took its id."""
    if ours.identity is None or ours.age_s * 1000 < ours.timeout_ms:
        return False
    known = wait_until(
        lambda: (
            found
            if not (found := ask(bootstrap, transactional_id, security)).state.startswith("Prepare")
            else None
        ),
        DECIDED_S,
        f"the transaction of {transactional_id} to be decided",
    )
    producer_id, epoch = ours.identity
    return (
        known is not None
        and (known.producer_id, known.epoch, known.state) == (producer_id, epoch + 1, "CompleteAbort")
        and known.started_ms < ours.began_ms + ours.timeout_ms
    )


def ask(bootstrap: str, transactional_id: str, security: Security = PLAINTEXT) -> Known:
    """Return the coordinator's state of a transactional id, through the first broker that answers."""
    from kafka.protocol.admin import DescribeTransactionsRequest

    host, port = _coordinator(bootstrap, transactional_id, security)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id], version=0)
    with RawConnection(host, port, CALL_S, security) as connection:
        state = connection.call(request).transaction_states[0]
    if state.error_code:
        raise KafkaAnswerError(f"state of {transactional_id}", state.error_code)
    return Known(
        state.transaction_state, state.producer_id, state.producer_epoch, state.transaction_start_time_ms
    )


def _coordinator(bootstrap: str, transactional_id: str, security: Security) -> tuple[str, int]:
    from kafka.protocol.metadata import FindCoordinatorRequest

    errors = []
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            with RawConnection(host, int(port), CALL_S, security) as connection:
                request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id], version=4)
                found = connection.call(request).coordinators[0]
        except (OSError, EOFError) as error:
            errors.append(f"{address}: {error}")
            continue
        if found.error_code:
            raise KafkaAnswerError(f"coordinator of {transactional_id}", found.error_code)
        return str(found.host), int(found.port)
    raise ConnectionError("no broker answered: " + "; ".join(errors))
