"""Walkthrough of a late TxnOffsetCommit: the request of transaction A arrives in transaction B.

B commits, and the group has the position of A. No client gets an error. The control runs kafka-python, and
Kafka's Java client with and without transaction version 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.base.waits import wait_until
from harness.clients.scripted.java_client import NAME, running
from harness.evidence.step_report import WalkthroughStep
from harness.faults.feature_level import FeatureLevel
from harness.faults.proxy_chain import ProxyChain
from harness.kafka.log.audit_tables import read_tables
from harness.walkthroughs.endtxn_race import ENDS, Variant
from harness.walkthroughs.group_positions import FIRST, SECOND, GroupPositions
from harness.walkthroughs.late_request import (
    EPOCH_REFUSED,
    KAFKA_PYTHON,
    LIMIT_S,
    Attempt,
    Outcome,
    define_walkthrough,
    overtake,
)
from harness.walkthroughs.stage import Stage

TITLES: Final = (
    "The position of A arrives in B: the group goes back",
    "Control: the position of A arrives after the end of B",
    "The cure: a new producer with the same transactional id before B",
    "Without the wire tap: two Toxiproxy proxies in series",
    "A aborts, and B commits: the group gets the position that A has aborted",
    "A commits, and B aborts: the late position is aborted with B",
    "Both abort: the late position is aborted with B",
)
CONTROL_TITLES: Final = (
    "Transaction version 2: the late position is refused",
    "Transaction version 1: the same client is exposed",
    "Transaction version 1: after the end of B, the late position is refused",
    "Transaction version 2 again",
    "kafka-python: the position of A arrives in B",
)
WENT_BACK: Final = Outcome("NONE", position=FIRST, damage=("position_went_back",))
REFUSED_AFTERWARDS: Final = Outcome("INVALID_TXN_STATE", position=SECOND)
JAVA_REFUSED_AFTERWARDS: Final = Outcome("TRANSACTION_ABORTABLE", position=SECOND)
"""The Java client uses a newer version of the request, for which a broker has another error."""
REFUSED: Final = Outcome(EPOCH_REFUSED, position=SECOND)
ABORTED_WITH_B: Final[dict[Variant, Outcome]] = {
    "cA": Outcome("NONE", position=FIRST),
    "aA": Outcome("NONE", position=0),
}
BY_PROXIES: Final = Outcome(position=FIRST, damage=("position_went_back",))
TWICE: Final = 2


class LatePositions(GroupPositions):
    """Runner of attempts in which the position of transaction A is late."""

    def by_tap(
        self,
        attempt: Attempt,
        *,
        variant: Variant = "cC",
        release_in_second: bool = True,
        reinit: bool = False,
    ) -> None:
        """Send a position in A and one in B. The request of A is released in B, or after B's end."""
        producer, base = attempt.producer, self.base
        first, second = ENDS[variant]
        if first == "abort":
            self.commit_position(producer, base)
            producer.end("commit")
            self.wait_complete(attempt)
        with self.hold("TxnOffsetCommit", attempt) as held:
            self.commit_position(producer, base + FIRST, first)
            producer.end(first)
            if reinit:
                producer.init()
            self.commit_position(producer, base + SECOND, second)
            if release_in_second:
                self.release(attempt, held)
            producer.end(second)
            if not release_in_second:
                self.wait_complete(attempt)
                self.release(attempt, held)
        self.wait_complete(attempt)
        attempt.position = self.committed() - base

    def by_proxies(self, attempt: Attempt) -> None:
        """Commit a position in A and one in B. Two proxies in series make the request of A late."""
        producer, base = attempt.producer, self.base
        cluster = self.stage.cluster

        def begin_first() -> None:
            self.commit_position(producer, base)
            producer.end("commit")
            producer.begin()
            producer.send(0, "commit")

        with ProxyChain(cluster, journal=self.stage.journal) as proxies:
            delay_s = overtake(
                proxies,
                cluster.group_coordinator(self.group),
                begin_first,
                lambda: self.send_offset(producer, base + FIRST),
            )
            producer.end("commit")
            self.commit_position(producer, base + SECOND)
            limit_s = delay_s + LIMIT_S
            wait_until(
                lambda: self._count(base + FIRST) == TWICE, limit_s, "the late position to arrive", every=0.2
            )
            producer.end("commit")
        self.wait_complete(attempt)
        attempt.position = self.committed() - base

    def _count(self, position: int) -> int:
        """Return how often a position was written for the group, in whichever transaction."""
        written = [p for log in read_tables(self.stage.cluster.admin, []).partitions for p in log.positions]
        return sum((p.group, p.position) == (self.group, position) for p in written)


def _steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = LatePositions(stage), WalkthroughStep.numbered(TITLES)
    with race.membership():
        yield race.show(
            steps[0],
            ("in-b", "a late position of A is accepted in B, and replaces that of B"),
            race.by_tap,
            WENT_BACK,
        )
        yield race.show(
            steps[1],
            ("after-b", "without an open transaction, a late position is refused"),
            lambda a: race.by_tap(a, release_in_second=False),
            REFUSED_AFTERWARDS,
        )
        yield race.show(
            steps[2],
            ("re-init", "a late position with an earlier epoch is refused"),
            lambda a: race.by_tap(a, reinit=True),
            REFUSED,
        )
        yield race.show(
            steps[3],
            ("two-proxies", "a late position of A is accepted in B, and replaces that of B"),
            race.by_proxies,
            BY_PROXIES,
            listener="PROXIED",
        )
        yield race.show(
            steps[4],
            ("aC", "a late position of A is accepted in B, and replaces that of B"),
            lambda a: race.by_tap(a, variant="aC"),
            WENT_BACK,
        )
        for step, (variant, outcome) in zip(steps[5:], ABORTED_WITH_B.items(), strict=True):
            yield race.show(
                step,
                (variant, "a late position of A is accepted in B, and has no effect, because B aborts"),
                lambda a, v=variant: race.by_tap(a, variant=v),  # type: ignore[misc]
                outcome,
            )


def _control_steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = LatePositions(stage), WalkthroughStep.numbered(CONTROL_TITLES)
    refused = "each transaction has its own epoch: the late position is refused and has no effect"
    replaced = "a late position of A is accepted in B, and replaces that of B"
    with running(), race.membership():
        yield race.show(steps[0], ("version-2", refused), race.by_tap, REFUSED, library=NAME)
        with stage.inject(FeatureLevel(level=1), "all") as lowered:
            steps[1].show(level=lowered.bite)
            yield race.show(steps[1], ("version-1", replaced), race.by_tap, WENT_BACK, library=NAME)
            yield race.show(
                steps[2],
                ("after-b", "without an open transaction, a late position is refused"),
                lambda a: race.by_tap(a, release_in_second=False),
                JAVA_REFUSED_AFTERWARDS,
                library=NAME,
            )
        yield race.show(steps[3], ("again", refused), race.by_tap, REFUSED, library=NAME)
        yield race.show(steps[4], ("kafka-python", replaced), race.by_tap, WENT_BACK, library=KAFKA_PYTHON)


WALKTHROUGH: Final = define_walkthrough(TITLES, "in-b-1", _steps)
CONTROL: Final = define_walkthrough(CONTROL_TITLES, "version-2-1", _control_steps)
