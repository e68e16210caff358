"""Walkthrough of a late AddPartitionsToTxn or AddOffsetsToTxn: the request of transaction A arrives after A.

It opens a transaction that no client began. The time-out of this transaction fences the producer. The control
runs kafka-python and Kafka's Java client. With transaction version 2, the Java client has no such request,
because its Produce requests add the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from harness.base.waits import wait_until
from harness.clients.scripted.java_client import NAME, running
from harness.clients.scripted.library_producer import LibraryProducer
from harness.evidence.step_report import WalkthroughStep
from harness.faults.feature_level import FeatureLevel
from harness.faults.proxy_chain import ProxyChain
from harness.walkthroughs.group_positions import FIRST, GroupPositions
from harness.walkthroughs.late_request import (
    ABORTED,
    COMMITTED,
    CONFLUENT,
    EPOCH_REFUSED,
    KAFKA_PYTHON,
    LIMIT_S,
    Attempt,
    LateRequests,
    Outcome,
    define_walkthrough,
    overtake,
)
from harness.walkthroughs.stage import Stage

GHOST_TIMEOUT_MS: Final = 6_000
"""Transaction time-out of producers that meet a transaction that they did not begin.

Their own transaction, whose first request is repeated, must be faster also on a busy machine.
"""
PROXIES_TIMEOUT_MS: Final = 10_000
"""The same for two proxies. A record must be written in this time, although its first request is late."""
AT_ONCE: Final = 4
"""Number of attempts that run in parallel, because each waits for a time-out."""
TITLES: Final = (
    "The partition of A arrives after A: a transaction that no client began",
    "Control: the request of A never arrives",
    "Control: the request of A arrives in B, which has added the same partition",
    "The cure: a new producer with the same transactional id after A",
    "The group of A (AddOffsetsToTxn) arrives after A: a transaction that no client began",
    "Without the wire tap: two Toxiproxy proxies in series; A aborts",
)
CONTROL_TITLES: Final = (
    "Transaction version 2: the late request that adds a partition is refused",
    "Transaction version 1: the same client is exposed",
    "Transaction version 2 again",
    "kafka-python: the partition of A arrives after A",
)
FENCED: Final = Outcome("NONE", "_FENCED", damage=("ghost_transaction",))
GROUP_FENCED: Final = Outcome("NONE", "_FENCED", FIRST, damage=("ghost_transaction",))
BY_PROXIES: Final = Outcome(error="_FENCED", damage=("ghost_transaction",))
JAVA_FENCED: Final = Outcome("NONE", "ProducerFencedException", damage=("ghost_transaction",))
PYTHON_FENCED: Final = Outcome("NONE", "ProducerFencedError", damage=("ghost_transaction",))
WHOLE: Final = Outcome()
HARMLESS: Final = Outcome("NONE")
REFUSED: Final = Outcome(EPOCH_REFUSED)


class LatePartitions(LateRequests):
    """Runner of attempts in which the request of transaction A that adds a partition is late."""

    api = "AddPartitionsToTxn"

    def avoided(self) -> int:
        """Return the partition's leader, so that two proxies delay no record."""
        return self.stage.cluster.leader_of(self.stage.topic, 0)

    def show_after_first(
        self,
        step: WalkthroughStep,
        case: tuple[str, str],
        expected: Outcome,
        *,
        released: bool = True,
        reinit: bool = False,
        library: str = CONFLUENT,
        at_once: int = 1,
    ) -> WalkthroughStep:
        """Make attempts in which the request of A arrives after A, or never, and show them."""
        return self.show(
            step,
            case,
            partial(self.after_first, released=released, reinit=reinit),
            expected,
            library=library,
            timeout_ms=GHOST_TIMEOUT_MS,
            at_once=at_once,
        )

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
                _wait_ghost(self, attempt)
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

    def by_proxies(self, attempt: Attempt) -> None:
        """Let two proxies in series delay the request of A until A is complete. Then make B."""
        producer, cluster = attempt.producer, self.stage.cluster

        def make_transaction() -> None:
            producer.whole("commit", 0)
            self.wait_complete(attempt)

        with ProxyChain(cluster, journal=self.stage.journal) as proxies:
            coordinator = cluster.txn_coordinator(producer.transactional_id)
            delay_s = overtake(proxies, coordinator, make_transaction, lambda: self._begin(producer))
            producer.end("abort")
            _wait_ghost(self, attempt, [*COMMITTED, *ABORTED], delay_s)
        producer.whole("commit", 0)

    @staticmethod
    def _begin(producer: LibraryProducer) -> None:
        producer.begin()
        producer.send(0, "abort")


class LateGroups(GroupPositions):
    """Runner of attempts in which the request of transaction A that adds a group is late."""

    def after_first(self, attempt: Attempt) -> None:
        """Release the request of A after A is complete. Then make B."""
        producer, base = attempt.producer, self.base
        with self.hold("AddOffsetsToTxn", attempt) as held:
            self.commit_position(producer, base + FIRST)
            producer.end("commit")
            self.wait_complete(attempt)
            self.release(attempt, held)
            _wait_ghost(self, attempt)
        attempt.position = self.committed() - base
        producer.whole("commit", 0)


def _wait_ghost(
    race: LateRequests, attempt: Attempt, before: list[str] = COMMITTED, delay_s: float = 0
) -> None:
    """Wait until a transaction that the client did not begin has followed these states, and timed out."""
    wait_until(
        lambda: race.decided(attempt) == [*before, *ABORTED],
        delay_s + LIMIT_S,
        "the time-out of a transaction that the client did not begin",
        every=0.2,
    )


class LateProduces(LatePartitions):
    """Runner of attempts with transaction version 2, in which a Produce request adds the partition."""

    api = "Produce"


def _steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = LatePartitions(stage), WalkthroughStep.numbered(TITLES)
    fenced = "a late request opens a transaction; its time-out fences the client, which gets an error"
    whole = "without the late request, the next transaction is whole"
    refused = "a late request with an earlier epoch is refused"
    yield race.show_after_first(steps[0], ("late", fenced), FENCED, at_once=AT_ONCE)
    yield race.show_after_first(steps[1], ("never", whole), WHOLE, released=False)
    yield race.show(steps[2], ("in-b", "in B, the late request has no effect"), race.in_second, HARMLESS)
    yield race.show_after_first(steps[3], ("re-init", refused), REFUSED, reinit=True)
    groups = LateGroups(stage)
    with groups.membership():
        yield groups.show(
            steps[4], ("group", fenced), groups.after_first, GROUP_FENCED, timeout_ms=GHOST_TIMEOUT_MS
        )
    yield race.show(
        steps[5],
        ("two-proxies", fenced),
        race.by_proxies,
        BY_PROXIES,
        listener="PROXIED",
        timeout_ms=PROXIES_TIMEOUT_MS,
    )


def _control_steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, newer = LatePartitions(stage), LateProduces(stage)
    steps = WalkthroughStep.numbered(CONTROL_TITLES)
    refused = "each transaction has its own epoch: the late request is refused, and opens no transaction"
    fenced = "a late request opens a transaction; its time-out fences the client"
    with running():
        yield newer.show_after_first(steps[0], ("version-2", refused), REFUSED, library=NAME)
        with stage.inject(FeatureLevel(level=1), "all") as lowered:
            steps[1].show(level=lowered.bite)
            yield race.show_after_first(steps[1], ("version-1", fenced), JAVA_FENCED, library=NAME)
        yield newer.show_after_first(steps[2], ("again", refused), REFUSED, library=NAME)
        yield race.show_after_first(steps[3], ("kafka-python", fenced), PYTHON_FENCED, library=KAFKA_PYTHON)


WALKTHROUGH: Final = define_walkthrough(TITLES, "late-1", _steps)
CONTROL: Final = define_walkthrough(CONTROL_TITLES, "version-2-1", _control_steps)
