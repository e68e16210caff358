"""The control: Kafka's own Java client tells its transactions apart, as long as the cluster lets it.

With transaction version 2 every transaction has an epoch of its own, and the late EndTxn is refused. The same
client on the same brokers is as exposed as the others once the feature is taken down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from harness.clients.scripted.java_client import NAME, running
from harness.cluster.layout import BROKER_IDS
from harness.evidence.step_report import WalkthroughStep
from harness.faults.feature_level import FeatureLevel
from harness.kafka import features
from harness.walkthroughs.delayed_endtxn import PLACEMENT as _PLACEMENT
from harness.walkthroughs.delayed_endtxn import DelayedEnds
from harness.walkthroughs.endtxn_race import Case, Variant
from harness.walkthroughs.stage import Stage

TITLES: Final = (
    "Transaction version 2: the late EndTxn is refused",
    "Transaction version 1: the same client is exposed",
    "Transaction version 0: the same client is exposed",
    "Transaction version 2 again",
)
PLACEMENT: Final[Sequence[Sequence[int]]] = _PLACEMENT
DRAWN: Final = ("java-aC-1",)
VARIANTS: Final[tuple[Variant, ...]] = ("aC", "cA", "cC")
REFUSED: Final = "PRODUCER_FENCED"


def steps(stage: Stage) -> Iterator[WalkthroughStep]:
    """Carry out the four steps."""
    made = WalkthroughStep.numbered(TITLES)
    ends = DelayedEnds(stage, DRAWN)
    cases = [Case(NAME, variant) for variant in VARIANTS]
    with running():
        yield _held(made[0], stage, ends, cases)
        for step, level in ((made[1], 1), (made[2], 0)):
            with stage.inject(FeatureLevel(level=level), "all") as lowered:
                step.show(level=lowered.bite)
                yield ends.hazard(step, ends.tapped(cases))
        yield _held(made[3], stage, ends, cases[:1])


def _held(step: WalkthroughStep, stage: Stage, ends: DelayedEnds, cases: Sequence[Case]) -> WalkthroughStep:
    levels = {b: features.levels(stage.cluster.admin, b)[features.TRANSACTION_VERSION] for b in BROKER_IDS}
    tries = ends.tapped(cases)
    held = sum(t.consistent and t.late_answer == REFUSED for t in tries)
    answers = ", ".join(sorted({t.late_answer for t in tries}))
    step.prove(
        "an epoch for each transaction: the late EndTxn is refused, and nothing else happens",
        f"{held} of {len(tries)}; answer to the late EndTxn: {answers}; transaction version {levels}",
        held == len(tries),
    )
    ends.show(step, tries)
    return step
