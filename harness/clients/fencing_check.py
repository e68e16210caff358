"""Who fenced a producer: a successor with its transactional id, or the coordinator's own time-out.

librdkafka says _FENCED to both. A client that takes the id back from a living successor fights it for ever,
one that gives up after every time-out stops for nothing; so the coordinator is asked what it knows:

    the epoch one up, an aborted transaction that began while ours was young      its time-out
    anything else: more epochs, another producer id, a state without an abort     a successor
"""

from __future__ import annotations

from typing import Final, NamedTuple

from harness.base.waits import wait_until
from harness.kafka.connection import KafkaAnswerError, RawConnection
from harness.kafka.security import PLAINTEXT, Security

CALL_S: Final = 3.0
DECIDED_S: Final = 20.0
"""As long as a transaction may last: how long its markers may be on their way."""


class Known(NamedTuple):
    """What a transaction coordinator knows of a transactional id."""

    state: str
    producer_id: int
    epoch: int
    started_ms: int


class Ours(NamedTuple):
    """What a producer knows of itself: its id and epoch, and its open transaction."""

    identity: tuple[int, int] | None
    began_ms: int
    timeout_ms: int
    age_s: float


def timed_out(bootstrap: str, transactional_id: str, ours: Ours, security: Security = PLAINTEXT) -> bool:
    """Whether it was the coordinator's time-out, and nobody took the transactional id over."""
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
    """Ask the coordinator of a transactional id what it knows, through the first broker that answers."""
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

    said = []
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            with RawConnection(host, int(port), CALL_S, security) as connection:
                request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id], version=4)
                found = connection.call(request).coordinators[0]
        except (OSError, EOFError) as error:
            said.append(f"{address}: {error}")
            continue
        if found.error_code:
            raise KafkaAnswerError(f"coordinator of {transactional_id}", found.error_code)
        return str(found.host), int(found.port)
    raise ConnectionError("no broker answered: " + "; ".join(said))
