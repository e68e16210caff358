"""Walkthrough of a late EndTxn that ends the next transaction.

The walkthrough compares two client libraries and four variants. In each variant, two transactions A and B
commit or abort. The EndTxn of A is delayed in two ways: by the wire tap, and by two Toxiproxy proxies in
series. The walkthrough also shows two cures. A cure is what an application can do when it is unclear how A
ended.

A client without transaction version 2 uses one producer id and epoch for all its transactions. Therefore the
coordinator cannot distinguish a late EndTxn of one transaction from an EndTxn of the open one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final

from harness.cluster.layout import BROKER_IDS
from harness.evidence.checkers.model import Example
from harness.evidence.history import HistoryFile
from harness.evidence.log_audit import audit
from harness.evidence.step_report import WalkthroughStep
from harness.kafka.log.audit_tables import read_tables
from harness.tap.frame_lines import Frame
from harness.walkthroughs.endtxn_race import ENDS, LANES, Attempt, Case, Cure, Race, Variant, judge_part
from harness.walkthroughs.stage import Stage, Walkthrough
from harness.witness.plain_consumer import observe_topics

CLIENTS: Final = ("confluent-kafka", "kafka-python")
SLOTS: Final = 8
"""Number of attempts that run in parallel."""
MOST_REPEATS: Final = 3
TITLES: Final = (
    "confluent-kafka, aC: A aborts, its EndTxn is held; B commits",
    "confluent-kafka, cA: A commits, its EndTxn is held; B aborts",
    "confluent-kafka, cC and aA: both end the same way",
    "kafka-python: all four variants",
    "Without the wire tap: two Toxiproxy proxies in series",
    "The cure: a new producer with the same transactional id after the unclear end",
    "The cheaper cure: a standby producer with its own transactional id",
)
_RING: Final = (*BROKER_IDS, *BROKER_IDS)
PLACEMENT: Final[Sequence[Sequence[int]]] = [_RING[i % 3 : i % 3 + 3] for i in range(SLOTS * LANES)]
DRAWN: Final = ("confluent-kafka-aC-1",)
CLIENT_VIEW: Final[dict[Variant, str]] = {
    "aC": "B committed: all of it can be read",
    "cA": "B aborted: nothing of it can be read",
    "cC": "B can be read when it is committed, and not before",
    "aA": "both aborted: nothing can be read",
}


def _steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race = DelayedEnds(stage, DRAWN)
    steps = WalkthroughStep.numbered(TITLES)
    first, second = CLIENTS
    yield race.show_hazard(steps[0], race.by_tap([Case(first, "aC")]))
    yield race.show_hazard(steps[1], race.by_tap([Case(first, "cA")]))
    yield race.show_hazard(steps[2], race.by_tap([Case(first, "cC"), Case(first, "aA")]))
    yield race.show_hazard(steps[3], race.by_tap([Case(second, variant) for variant in ENDS]))
    every = [Case(client, variant) for client in CLIENTS for variant in ENDS]
    yield race.show_hazard(steps[4], race.by_proxies(every))
    yield race.show_cure(steps[5], "re-init")
    yield race.show_cure(steps[6], "standby")


class DelayedEnds:
    """Runner of the attempts of one walkthrough.

    It checks each attempt separately, and adds the results of several attempts to a step.
    """

    def __init__(self, stage: Stage, drawn: Sequence[str], race: Race | None = None) -> None:
        self.stage = stage
        self.race = race or Race(stage)
        self._drawn = drawn
        self._hung: list[str] = []

    def by_tap(self, cases: Sequence[Case]) -> list[Attempt]:
        """Run as many attempts of each case as the scenario requires. The wire tap delays the EndTxn."""
        return self._attempt(self.race.by_tap, cases)

    def by_proxies(self, cases: Sequence[Case]) -> list[Attempt]:
        """Run as many attempts of each case as the scenario requires. Two proxies delay the EndTxn."""
        return self._attempt(self.race.by_proxies, cases, second_means=True)

    def _attempt(
        self,
        make: Callable[[Sequence[Case]], list[Attempt]],
        cases: Sequence[Case],
        *,
        second_means: bool = False,
    ) -> list[Attempt]:
        """Make attempts of each case with `make`, and check what the broker did in each attempt.

        An attempt is repeated, at most MOST_REPEATS times, if a call of its client library never returned.
        """
        stage, attempts = self.stage, list[Attempt]()
        others = {case for case in cases if second_means or case.control}
        tries = {case: stage.control_tries if case in others else stage.tries for case in cases}
        planned = [case for number in range(max(tries.values())) for case in cases if number < tries[case]]
        for repeats_left in reversed(range(MOST_REPEATS + 1)):
            made = [
                attempt
                for first in range(0, len(planned), SLOTS)
                for attempt in make(planned[first : first + SLOTS])
            ]
            hung = [attempt for attempt in made if attempt.hung and repeats_left]
            self._hung += [attempt.name for attempt in hung]
            attempts += [attempt for attempt in made if attempt not in hung]
            planned = [attempt.case for attempt in hung]
        return self._judge(attempts)

    def _judge(self, attempts: list[Attempt]) -> list[Attempt]:
        """Check each attempt's records, as a reader receives them, against the histories of its clients."""
        stage = self.stage
        observation = observe_topics(stage.cluster.bootstrap("DIRECT"), [stage.topic], stage.run)
        tables = read_tables(stage.cluster.admin, [stage.topic], positions=False)
        damage = audit(tables.partitions, tables.coordinators).findings
        for attempt in attempts:
            histories = [producer.history for producer in attempt.producers]
            histories += [HistoryFile(attempt.reader.path)] if attempt.reader else []
            numbers = [producer.number for producer in attempt.producers]
            ident = attempt.producers[0].transactional_id
            attempt.damage = [finding.kind for finding in damage if finding.transactional_id == ident]
            attempt.judgement = judge_part(histories, [observation], numbers)
            if attempt.name in self._drawn:
                stage.transactional_ids.append(attempt.producers[0].transactional_id)
        return attempts

    def show_hazard(self, step: WalkthroughStep, attempts: list[Attempt]) -> WalkthroughStep:
        """Add two claims to the step for each library and variant.

        The first claim states what the client library reports. The second claim is that the hazard occurs in
        every attempt. The hazard is that a late frame of one transaction ends the next transaction.
        """
        for library, variant in dict.fromkeys((a.case.library, a.case.variant) for a in attempts):
            of_case = [a for a in attempts if (a.case.library, a.case.variant) == (library, variant)]
            found, succeeded = sum(a.found for a in of_case), sum(not a.error for a in of_case)
            step.compare(
                f"{variant}: {library} reports that {CLIENT_VIEW[variant]}",
                f"no error in {succeeded} of {len(of_case)}; hazard found in {found}: {_anomalies(of_case)}",
                variant == "aA" and not any(a.anomalies for a in of_case),
            )
            step.prove(
                f"a late {self.race.frame} ends {self.race.effect}",
                f"{library} {variant}: {found} of {len(of_case)}; the transaction log: "
                f"{' '.join(of_case[0].decided)}{self._answers(of_case)}",
                found == len(of_case),
            )
        self.show(step, attempts)
        return step

    def show_cure(self, step: WalkthroughStep, cure: Cure) -> WalkthroughStep:
        """Run attempts with a cure, and add their results to the step.

        The claim is that both transactions end as their client reports. The result includes the time that the
        cure takes. A cure is what the application does when it is unclear how transaction A ended. `re-init`
        creates a new producer with the same transactional id. `standby` continues with a producer that has
        another transactional id.
        """
        variants: tuple[Variant, ...] = ("aC", "cA")
        attempts = self.by_tap([Case(client, variant, cure) for client in CLIENTS for variant in variants])
        for library in CLIENTS:
            of_library = [a for a in attempts if a.case.library == library]
            consistent = sum(a.consistent for a in of_library)
            costs = [a.cure_ms for a in of_library]
            step.prove(
                "both transactions end as their client reports",
                f"{library}: {consistent} of {len(of_library)}{self._answers(of_library)}; it delays B by "
                f"{median(costs):.0f} ms ({min(costs):.0f} to {max(costs):.0f})",
                consistent == len(of_library),
            )
        self.show(step, attempts)
        return step

    def show(self, step: WalkthroughStep, attempts: list[Attempt]) -> None:
        """Add the data of the attempts to the step: results, repeated attempts, and proof of the anomalies.

        Also add the EndTxn and InitProducerId frames of the first four attempts.
        """
        step.show(
            tries=[
                {
                    "name": a.name,
                    "decided": a.decided,
                    "late_answer": a.late_answer,
                    "error": a.error,
                    "found": sorted(a.anomalies),
                    "seconds": round(a.seconds, 2),
                    "cure_ms": a.cure_ms,
                    "damage": a.damage,
                }
                for a in attempts
            ],
            hung=self._hung,
            proof=_proof(attempts),
            frames=self._frames({a.name for a in attempts[:4]}),
            **self.race.evidence(attempts[:4]),
        )

    def _answers(self, attempts: list[Attempt]) -> str:
        answers = sorted({a.late_answer for a in attempts if a.late_answer})
        errors = sorted({a.error for a in attempts if a.error})
        text = f"; answer to the late {self.race.frame}: {', '.join(answers)}" if answers else ""
        return text + (f"; refused: {', '.join(errors)}" if errors else "")

    def _frames(self, names: set[str]) -> list[list[object]]:
        """Return the EndTxn and InitProducerId frames of these clients, one row per frame.

        The columns are client id, connection, API and side (request or response), version, tap action, and
        error.
        """
        return [
            [x.client_id, x.conn, f"{x.api} {x.side}", x.version, x.fate, x.facts.error if x.facts else None]
            for x in self.stage.frames()
            if isinstance(x, Frame) and x.client_id in names and x.api in ("EndTxn", "InitProducerId")
        ]


def _anomalies(attempts: list[Attempt]) -> str:
    return ", ".join(sorted({name for a in attempts for name in a.anomalies})) or "no anomaly"


def _proof(attempts: list[Attempt]) -> list[str]:
    """Describe the anomalies of the first attempt of each case.

    Each description names the lines of the histories and the offsets that prove the anomaly.
    """
    first_of_case = {a.case: a for a in reversed(attempts)}
    found: list[tuple[str, str, Example]] = [
        (a.name, anomaly.name, anomaly.examples[0])
        for a in first_of_case.values()
        for result in (a.judgement.results if a.judgement else [])
        for anomaly in result.anomalies
        if anomaly.examples
    ]
    return [
        f"{name}: {anomaly}: {example.what}; "
        + ", ".join(
            [f"history/{ref.client}.jsonl:{ref.line}" for ref in example.lines]
            + [f"{ref.topic}-{ref.partition} offsets {ref.first}-{ref.last}" for ref in example.offsets]
        )
        for name, anomaly, example in found
    ]


WALKTHROUGH: Final = Walkthrough(titles=TITLES, placement=PLACEMENT, drawn=DRAWN, steps=_steps)
