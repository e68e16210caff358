"""Walkthrough of a late AddPartitionsToTxn: the request of transaction A arrives after A.

It opens a transaction that no client began. The time-out of this transaction fences the producer. The control
runs Kafka's Java client: with transaction version 2 it has no such request, because its Produce requests add
the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.base.waits import wait_until
from harness.clients.scripted.java_client import NAME, running
from harness.evidence.step_report import WalkthroughStep
from harness.faults.feature_level import FeatureLevel
from harness.walkthroughs.late_request import (
    ABORTED,
    COMMITTED,
    EPOCH_REFUSED,
    LIMIT_S,
    Attempt,
    LateRequests,
    Outcome,
    define_walkthrough,
)
from harness.walkthroughs.stage import Stage

GHOST_TIMEOUT_MS: Final = 3_000
"""Transaction time-out of producers that meet a transaction that they did not begin."""
TITLES: Final = (
    "The partition of A arrives after A: a transaction that no client began",
    "Control: the request of A never arrives",
    "Control: the request of A arrives in B, which has added the same partition",
    "The cure: a new producer with the same transactional id after A",
)
CONTROL_TITLES: Final = (
    "Transaction version 2: the late request that adds a partition is refused",
    "Transaction version 1: the same client is exposed",
    "Transaction version 2 again",
)
FENCED: Final = Outcome("NONE", "_FENCED", damage=("ghost_transaction",))
JAVA_FENCED: Final = Outcome("NONE", "ProducerFencedException", damage=("ghost_transaction",))
WHOLE: Final = Outcome()
HARMLESS: Final = Outcome("NONE")
REFUSED: Final = Outcome(EPOCH_REFUSED)


class LatePartitions(LateRequests):
    """Runner of attempts in which the request of transaction A that adds a partition is late."""

    api = "AddPartitionsToTxn"

    def after_first(self, attempt: Attempt, *, released: bool, reinit: bool = False) -> None:
        """Release the request of A after A is complete, or never. Then make B."""
        producer = attempt.producer
        with self.hold(self.api, attempt) as held:
            producer.whole("commit", 0)
            self.wait_complete(attempt)
            if reinit:
                producer.init()
            if released:
                self.release(attempt, held)
            if attempt.late_answer == "NONE":
                ended = [*COMMITTED, *ABORTED]
                wait_until(
                    lambda: self.decided(attempt) == ended,
                    LIMIT_S,
                    "the time-out of a transaction that the client did not begin",
                )
        producer.whole("commit", 0)

    def in_second(self, attempt: Attempt) -> None:
        """Release the request of A while B is open."""
        producer = attempt.producer
        with self.hold(self.api, attempt) as held:
            producer.whole("commit", 0)
            self.wait_complete(attempt)
            producer.begin()
            producer.send(0, "commit")
            self.release(attempt, held)
            producer.end("commit")


class LateProduces(LatePartitions):
    """Runner of attempts with transaction version 2, in which a Produce request adds the partition."""

    api = "Produce"


def _steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = LatePartitions(stage), WalkthroughStep.numbered(TITLES)
    yield race.show(
        steps[0],
        ("late", "a late request opens a transaction; its time-out fences the client, which gets an error"),
        lambda a: race.after_first(a, released=True),
        FENCED,
        timeout_ms=GHOST_TIMEOUT_MS,
    )
    yield race.show(
        steps[1],
        ("never", "without the late request, the next transaction is whole"),
        lambda a: race.after_first(a, released=False),
        WHOLE,
        timeout_ms=GHOST_TIMEOUT_MS,
    )
    yield race.show(steps[2], ("in-b", "in B, the late request has no effect"), race.in_second, HARMLESS)
    yield race.show(
        steps[3],
        ("re-init", "a late request with an earlier epoch is refused"),
        lambda a: race.after_first(a, released=True, reinit=True),
        REFUSED,
        timeout_ms=GHOST_TIMEOUT_MS,
    )


def _control_steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, newer = LatePartitions(stage), LateProduces(stage)
    steps = WalkthroughStep.numbered(CONTROL_TITLES)
    refused = "each transaction has its own epoch: the late request is refused, and opens no transaction"
    with running():
        yield newer.show(
            steps[0],
            ("version-2", refused),
            lambda a: newer.after_first(a, released=True),
            REFUSED,
            library=NAME,
            timeout_ms=GHOST_TIMEOUT_MS,
        )
        with stage.inject(FeatureLevel(level=1), "all") as lowered:
            steps[1].show(level=lowered.bite)
            yield race.show(
                steps[1],
                ("version-1", "a late request opens a transaction; its time-out fences the client"),
                lambda a: race.after_first(a, released=True),
                JAVA_FENCED,
                library=NAME,
                timeout_ms=GHOST_TIMEOUT_MS,
            )
        yield newer.show(
            steps[2],
            ("again", refused),
            lambda a: newer.after_first(a, released=True),
            REFUSED,
            library=NAME,
            timeout_ms=GHOST_TIMEOUT_MS,
        )


WALKTHROUGH: Final = define_walkthrough(TITLES, "late-1", _steps)
CONTROL: Final = define_walkthrough(CONTROL_TITLES, "version-2-1", _control_steps)
