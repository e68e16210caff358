"""Walkthrough of a late marker for a group's positions: the marker of transaction A arrives in transaction B.

It ends B for the group: the group stays behind although B commits, or skips input although B aborts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.evidence.step_report import WalkthroughStep
from harness.faults import HoldFrame
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC
from harness.walkthroughs.endtxn_race import ENDS, Variant
from harness.walkthroughs.group_positions import FIRST, SECOND, GroupPositions
from harness.walkthroughs.late_marker import DAMAGE
from harness.walkthroughs.late_request import Attempt, Outcome, define_walkthrough
from harness.walkthroughs.stage import Stage

TITLES: Final = (
    "A aborts, its marker is late; B commits, and the group stays behind",
    "A commits, its marker is late; B aborts, and the group skips input",
    "Control: the late marker arrives between A and B",
)
STAYED_BEHIND: Final = Outcome("NONE", position=0, damage=tuple(DAMAGE["aC"]))
SKIPPED_INPUT: Final = Outcome("NONE", position=SECOND, damage=tuple(DAMAGE["cA"]))
HARMLESS: Final = Outcome("NONE", position=SECOND)


class LatePositionMarkers(GroupPositions):
    """Runner of attempts in which the marker of transaction A for the group's positions is late."""

    def by_tap(self, attempt: Attempt, variant: Variant, *, release_in_second: bool) -> None:
        """Commit positions in A and in B. The marker of A is released in B, or between A and B."""
        producer, base = attempt.producer, self.base
        first, second = ENDS[variant]
        self.commit_position(producer, base)
        producer.end("commit")
        self.wait_complete(attempt)
        fault = HoldFrame(
            api="WriteTxnMarkers",
            topic=OFFSETS_TOPIC,
            partition=self.positions_partition(),
            drop_client=True,
            listener="INTERNAL",
        )
        with self.stage.arm(fault) as held:
            self.commit_position(producer, base + FIRST, first)
            producer.end(first)
            if not release_in_second:
                self.wait_complete(attempt)
                self.release(attempt, held)
            self.commit_position(producer, base + SECOND, second)
            if release_in_second:
                self.release(attempt, held)
            producer.end(second)
        self.wait_complete(attempt)
        attempt.position = self.committed() - base


def _steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = LatePositionMarkers(stage), WalkthroughStep.numbered(TITLES)
    variants: tuple[tuple[Variant, Outcome], ...] = (("aC", STAYED_BEHIND), ("cA", SKIPPED_INPUT))
    with race.membership():
        for step, (variant, outcome) in zip(steps, variants, strict=False):
            yield race.show(
                step,
                (variant, f"the late marker ends B for the group: its position is {outcome.position}"),
                lambda a, v=variant: race.by_tap(a, v, release_in_second=True),  # type: ignore[misc]
                outcome,
            )
        yield race.show(
            steps[2],
            ("between", "before B has written its position, the late marker has no effect"),
            lambda a: race.by_tap(a, "aC", release_in_second=False),
            HARMLESS,
        )


WALKTHROUGH: Final = define_walkthrough(TITLES, "aC-1", _steps)
