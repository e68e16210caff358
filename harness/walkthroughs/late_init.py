"""Walkthrough of a late InitProducerId: it arrives after its own retry, and fences its producer.

Nothing is lost, and the client gets an error. A new producer sends this request itself, so a new
producer does not protect from it. The control runs Kafka's Java client with and without transaction
version 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from harness.clients.scripted.java_client import NAME, running
from harness.evidence.step_report import WalkthroughStep
from harness.faults.feature_level import FeatureLevel
from harness.walkthroughs.late_request import KAFKA_PYTHON, Attempt, LateRequests, Outcome, define_walkthrough
from harness.walkthroughs.stage import Stage

TITLES: Final = (
    "The request of a producer arrives after its retry: the producer is fenced",
    "Control: the request never arrives",
    "The request arrives in the first transaction: the transaction is aborted, and the producer is fenced",
    "kafka-python: the request arrives after its retry",
)
CONTROL_TITLES: Final = (
    "Kafka's Java client with transaction version 2: the request arrives after its retry",
    "Kafka's Java client with transaction version 1: the request arrives after its retry",
    "Control: Kafka's Java client, and the request never arrives",
)
FENCED: Final = Outcome("NONE", "_FENCED")
ABORTED: Final = Outcome("CONCURRENT_TRANSACTIONS", "_FENCED")
WHOLE: Final = Outcome()
WITHOUT: Final = "without the late request, the transaction is whole"
PYTHON_FENCED: Final = Outcome("NONE", "ProducerFencedError")
JAVA_FENCED: Final = Outcome("NONE", "InvalidProducerEpochException")
OLDER_JAVA_FENCED: Final = Outcome("NONE", "ProducerFencedException")
"""The Java client has another error with transaction version 1."""


class LateInits(LateRequests):
    """Runner of attempts in which the InitProducerId of a producer is late."""

    def initialise(self, attempt: Attempt) -> None:
        """Do nothing: each attempt initialises its producer while it holds the request."""

    def make(self, attempt: Attempt, *, released: bool, in_first: bool = False) -> None:
        """Release the request after its retry, in the first transaction, or never. Make a transaction."""
        producer = attempt.producer
        with self.hold("InitProducerId", attempt) as held:
            producer.init()
            if in_first:
                producer.begin()
                producer.send(0, "commit")
            if released:
                self.release(attempt, held)
        if in_first:
            producer.end("commit")
        else:
            producer.whole("commit", 0)


def _steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = LateInits(stage), WalkthroughStep.numbered(TITLES)
    late = partial(race.make, released=True)
    fenced = "a late request raises the epoch; the producer is fenced, and nothing is lost"
    aborted = "a late request aborts the open transaction; the producer is fenced"
    in_first = partial(race.make, released=True, in_first=True)
    yield race.show(steps[0], ("late", fenced), late, FENCED)
    yield race.show(steps[1], ("never", WITHOUT), partial(race.make, released=False), WHOLE)
    yield race.show(steps[2], ("in-first", aborted), in_first, ABORTED)
    yield race.show(steps[3], ("kafka-python", fenced), late, PYTHON_FENCED, library=KAFKA_PYTHON)


def _control_steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = LateInits(stage), WalkthroughStep.numbered(CONTROL_TITLES)
    late = partial(race.make, released=True)
    fenced = "a late request raises the epoch; the producer is fenced, and nothing is lost"
    with running():
        yield race.show(steps[0], ("version-2", fenced), late, JAVA_FENCED, library=NAME)
        with stage.inject(FeatureLevel(level=1), "all") as lowered:
            steps[1].show(level=lowered.bite)
            yield race.show(steps[1], ("version-1", fenced), late, OLDER_JAVA_FENCED, library=NAME)
        never = partial(race.make, released=False)
        yield race.show(steps[2], ("never", WITHOUT), never, WHOLE, library=NAME)


WALKTHROUGH: Final = define_walkthrough(TITLES, "late-1", _steps)
CONTROL: Final = define_walkthrough(CONTROL_TITLES, "version-2-1", _control_steps)
