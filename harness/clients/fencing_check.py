"""Who fenced a producer: a successor with its transactional id, or the coordinator's own time-out.

librdkafka says _FENCED to both. A client that takes the id back from a living successor fights it for ever,
one that gives up after every time-out stops for nothing; so the coordinator is asked what it knows:

    the epoch one up, an aborted transaction that began while ours was young      its time-out
    anything else: more epochs, another producer id, a state without an abort     a successor
"""

from __future__ import annotations

from typing import Final, NamedTuple

from harness.base.waits import wait_until
from harness.kafka.admin import admin_at
from harness.kafka.security import PLAINTEXT, Security
from harness.kafka.transactions import describe_transactions

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
    """Return the coordinator's state of a transactional id."""
    admin = admin_at(bootstrap, security, CALL_S)
    coordinator = admin.coordinator("transaction", transactional_id)
    (state,) = describe_transactions(admin, coordinator, [transactional_id])
    return Known(state.state, state.producer_id, state.epoch, state.started_ms)
