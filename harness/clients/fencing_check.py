"""Check of what fenced a producer: a successor with its transactional id, or the transaction time-out.

librdkafka reports _FENCED in both cases. If a successor runs, the client must not take the id back, because
both would then fence each other forever. After a time-out, the client need not stop. The client decides by
the state that the coordinator reports for the transactional id:

    time-out    The producer id is the same, and the epoch is one higher. The last transaction was aborted,
                and it began before the time-out of the client's own transaction had passed.
    successor   Any other state, for example an epoch that is two higher, another producer id, or a
                transaction that was not aborted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from harness.base.waits import wait_until
from harness.kafka.admin import admin_at
from harness.kafka.security import PLAINTEXT, Security
from harness.kafka.transactions import describe_transactions

CALL_S: Final = 3.0
DECIDED_S: Final = 20.0
"""Seconds to wait until the coordinator has written the markers of a decided transaction."""


class Known(NamedTuple):
    """State of a transactional id, as its coordinator reports it."""

    state: str
    producer_id: int
    epoch: int
    started_ms: int


class Ours(NamedTuple):
    """State of this client's producer: its id and epoch, and when its open transaction began."""

    identity: tuple[int, int] | None
    began_ms: int
    timeout_ms: int
    age_s: float


def timed_out(bootstrap: str, transactional_id: str, ours: Ours, security: Security = PLAINTEXT) -> bool:
    """Return whether the transaction time-out fenced the producer, and not a successor."""
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
    """Return the coordinator's state of a transactional id."""
    admin = admin_at(bootstrap, security, CALL_S)
    coordinator = admin.coordinator("transaction", transactional_id)
    (state,) = describe_transactions(admin, coordinator, [transactional_id])
    return Known(state.state, state.producer_id, state.epoch, state.started_ms)
