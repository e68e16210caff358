"""Control experiment for the delayed EndTxn: Kafka's Java client, with and without transaction version 2.

With transaction version 2 every transaction has its own epoch, so the coordinator refuses the late EndTxn.
The experiment then lowers the cluster's transaction version. Now a late EndTxn ends the next transaction of
the same client on the same brokers, as it does with the other client libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from harness.clients.scripted.java_client import NAME, running
from harness.cluster.layout import BROKER_IDS
from harness.evidence.step_report import WalkthroughStep
from harness.faults.feature_level import FeatureLevel
from harness.kafka import features
from harness.provision.kafka_versions import KafkaFeature
from harness.walkthroughs.delayed_endtxn import PLACEMENT, DelayedEnds
from harness.walkthroughs.endtxn_race import Case, Variant
from harness.walkthroughs.stage import Stage, Walkthrough

TITLES: Final = (
    "Transaction version 2: the late EndTxn is refused",
    "Transaction version 1: the same client is exposed",
    "Transaction version 0: the same client is exposed",
    "Transaction version 2 again",
)
DRAWN: Final = ("java-aC-1",)
VARIANTS: Final[tuple[Variant, ...]] = ("aC", "cA", "cC")
REFUSED: Final = "PRODUCER_FENCED"


def _steps(stage: Stage) -> Iterator[WalkthroughStep]:
    steps = WalkthroughStep.numbered(TITLES)
    race = DelayedEnds(stage, DRAWN)
    cases = [Case(NAME, variant) for variant in VARIANTS]
    with running():
        yield _show_refusal(steps[0], race, cases)
        for step, level in ((steps[1], 1), (steps[2], 0)):
            with stage.inject(FeatureLevel(level=level), "all") as lowered:
                step.show(level=lowered.bite)
                yield race.show_hazard(step, race.by_tap(cases))
        yield _show_refusal(steps[3], race, cases[:1])


def _show_refusal(step: WalkthroughStep, race: DelayedEnds, cases: Sequence[Case]) -> WalkthroughStep:
    admin = race.stage.cluster.admin
    levels = {b: features.levels(admin, b)[features.TRANSACTION_VERSION] for b in BROKER_IDS}
    attempts = race.by_tap(cases)
    refused = sum(a.consistent and a.late_answer == REFUSED for a in attempts)
    answers = ", ".join(sorted({a.late_answer for a in attempts}))
    step.prove(
        "each transaction has its own epoch: the late EndTxn is refused and has no effect",
        f"{refused} of {len(attempts)}; answer to the late EndTxn: {answers}; transaction version {levels}",
        refused == len(attempts),
    )
    race.show(step, attempts)
    return step


WALKTHROUGH: Final = Walkthrough(
    titles=TITLES,
    placement=PLACEMENT,
    drawn=DRAWN,
    steps=_steps,
    needs=frozenset({KafkaFeature.TRANSACTION_VERSION}),
)
