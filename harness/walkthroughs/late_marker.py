"""Walkthrough of a late marker that ends records of the next transaction.

A coordinator ends a transaction in a partition with the request WriteTxnMarkers, which it sends to the
leader. If the answer does not arrive, it sends the request again on a new connection. The walkthrough holds
the first request in the wire tap between the brokers, and releases it while the next transaction of the same
producer is open in this partition. No request or answer of a client is touched.

Without transaction version 2, both transactions have the same producer id and epoch. Therefore the leader
cannot distinguish a late marker of one transaction from the marker of the open one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from harness.clients.scripted.java_client import NAME, running
from harness.cluster.layout import BROKER_IDS
from harness.evidence.step_report import WalkthroughStep
from harness.faults.feature_level import FeatureLevel
from harness.faults.frame_faults import HoldFrame
from harness.provision.kafka_versions import KafkaFeature
from harness.tap.frame_lines import Frame
from harness.walkthroughs.delayed_endtxn import CLIENTS, PLACEMENT, DelayedEnds
from harness.walkthroughs.endtxn_race import EARLY, ENDS, STATES, Attempt, Case, Race, Variant
from harness.walkthroughs.stage import Stage, Walkthrough

TITLES: Final = (
    "confluent-kafka, aC: A aborts, its marker is late; B commits",
    "confluent-kafka, cA: A commits, its marker is late; B aborts",
    "confluent-kafka, cC and aA: both end the same way",
    "kafka-python: all four variants",
    "Control: the late marker arrives between A and B",
    "The cure: a new producer with the same transactional id before every transaction",
)
CONTROL_TITLES: Final = (
    "Transaction version 2: the late marker is refused",
    "Transaction version 1: the same client is exposed",
    "Transaction version 2 again",
)
DRAWN: Final = ("confluent-kafka-aC-1",)
CONTROL_DRAWN: Final = ("java-aC-1",)
REFUSED: Final = "INVALID_PRODUCER_EPOCH"
DAMAGE: Final[dict[Variant, list[str]]] = {
    "aC": ["records_lost"],
    "cA": ["aborted_readable"],
    "cC": ["early_commit"],
    "aA": ["early_abort"],
}
"""What a search of the logs must find in each variant."""


@dataclass
class MarkerAttempt(Attempt):
    """One attempt at the late marker, with its result."""

    @property
    def split(self) -> bool:
        """Whether the coordinator decided only the client's two transactions, and the log has damage."""
        first, second = (STATES[end] for end in ENDS[self.case.variant])
        return self.decided == [*first, *second] and self.damage == DAMAGE[self.case.variant]

    @property
    def consistent(self) -> bool:
        """Whether both transactions ended as the client reported, and no search finds any damage."""
        return super().consistent and not self.damage


class MarkerRace(Race):
    """Runner of attempts. Transaction A and the first part of B are in the same partition."""

    attempt_type = MarkerAttempt
    frame = "WriteTxnMarkers"
    effect = "records of the transaction that is open"
    first_lane = EARLY

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._turns = {broker: Lock() for broker in BROKER_IDS}

    def _attempt_by_tap(self, attempt: Attempt) -> None:
        """Run an attempt, while no other attempt uses the same coordinator.

        A coordinator sends all markers that are due for one broker in one request. A request with the markers
        of two attempts would be held for one of them, and be late for the other one too.
        """
        with self._turns[self._stage.cluster.txn_coordinator(attempt.producers[0].transactional_id)]:
            super()._attempt_by_tap(attempt)
            self._final_states(attempt)

    def _fault(self, attempt: Attempt) -> HoldFrame:
        partition = attempt.producers[0].partitions[EARLY]
        return HoldFrame(
            api=self.frame,
            topic=self._stage.topic,
            partition=partition,
            drop_client=True,
            listener="INTERNAL",
        )

    def evidence(self, attempts: Sequence[Attempt]) -> dict[str, Any]:
        """Return the frames that carry markers for the attempts' partitions.

        The columns are sender, connection, side, tap action, markers, partitions and error.
        """
        wanted = {(self._stage.topic, a.producers[0].partitions[EARLY]) for a in attempts}
        return {
            "markers": [
                [
                    line.client_id,
                    line.conn,
                    line.side,
                    line.fate,
                    [f"{m.decision} of {m.producer_id} epoch {m.epoch}" for m in line.facts.markers],
                    [f"{p.topic}-{p.partition}" for p in line.facts.partitions],
                    line.facts.refusals,
                ]
                for line in self._stage.internal_frames()
                if isinstance(line, Frame) and line.api == self.frame and line.facts
                if wanted & {(p.topic, p.partition) for p in line.facts.partitions}
            ]
        }


def _steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race = DelayedEnds(stage, DRAWN, MarkerRace(stage))
    steps = WalkthroughStep.numbered(TITLES)
    first, second = CLIENTS
    yield race.show_hazard(steps[0], race.by_tap([Case(first, "aC")]))
    yield race.show_hazard(steps[1], race.by_tap([Case(first, "cA")]))
    yield race.show_hazard(steps[2], race.by_tap([Case(first, "cC"), Case(first, "aA")]))
    yield race.show_hazard(steps[3], race.by_tap([Case(second, variant) for variant in ENDS]))
    yield _show_harmless(steps[4], race)
    yield race.show_cure(steps[5], "re-init")


def _show_harmless(step: WalkthroughStep, race: DelayedEnds) -> WalkthroughStep:
    """Show that the same late marker has no effect if no record was written since the first one."""
    cases = [Case(client, variant, harmless=True) for client in CLIENTS for variant in ("aC", "cA")]
    attempts = race.by_tap(cases)
    consistent = sum(a.consistent and a.late_answer == "NONE" for a in attempts)
    step.prove(
        "a late marker is accepted and has no effect while its producer has no record in the partition",
        f"{consistent} of {len(attempts)}",
        consistent == len(attempts),
    )
    race.show(step, attempts)
    return step


def _control_steps(stage: Stage) -> Iterator[WalkthroughStep]:
    steps = WalkthroughStep.numbered(CONTROL_TITLES)
    race = DelayedEnds(stage, CONTROL_DRAWN, MarkerRace(stage))
    cases = [Case(NAME, variant) for variant in ("aC", "cA", "cC")]
    with running():
        yield _show_refusal(steps[0], race, cases)
        with stage.inject(FeatureLevel(level=1), "all") as lowered:
            steps[1].show(level=lowered.bite)
            yield race.show_hazard(steps[1], race.by_tap(cases))
        yield _show_refusal(steps[2], race, cases[:1])


def _show_refusal(step: WalkthroughStep, race: DelayedEnds, cases: Sequence[Case]) -> WalkthroughStep:
    attempts = race.by_tap(cases)
    refused = sum(a.consistent and a.late_answer == REFUSED for a in attempts)
    answers = ", ".join(sorted({a.late_answer for a in attempts}))
    step.prove(
        "each transaction has its own epoch: the late marker is refused and has no effect",
        f"{refused} of {len(attempts)}; answer to the late marker: {answers}",
        refused == len(attempts),
    )
    race.show(step, attempts)
    return step


EVERY_VARIANT: Final = Walkthrough(titles=TITLES, placement=PLACEMENT, drawn=DRAWN, steps=_steps)
CONTROL: Final = Walkthrough(
    titles=CONTROL_TITLES,
    placement=PLACEMENT,
    drawn=CONTROL_DRAWN,
    steps=_control_steps,
    needs=frozenset({KafkaFeature.TRANSACTION_VERSION}),
)
