"""A late EndTxn decides the next transaction: every variant, two clients, two ways to be late, and two cures.

A client that speaks no transaction version 2 gives all its transactions one producer id and epoch. So nothing
tells the coordinator an EndTxn that comes late from one of the transaction that is open meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from statistics import median
from typing import Final

from harness.cluster.layout import BROKER_IDS
from harness.evidence.checkers.model import Example
from harness.evidence.history import HistoryFile
from harness.evidence.step_report import WalkthroughStep
from harness.tap.frame_lines import Frame
from harness.walkthroughs.endtxn_race import ENDS, LANES, Case, Cure, Tries, Try, Variant, rounds
from harness.walkthroughs.partial_verdict import judge_part
from harness.walkthroughs.stage import Stage
from harness.witness.plain_consumer import observe_topics

CLIENTS: Final = ("confluent-kafka", "kafka-python")
SLOTS: Final = 8
"""Tries side by side."""
MOST_AGAIN: Final = 3
TITLES: Final = (
    "confluent-kafka, aC: A aborts, its EndTxn is held; B commits",
    "confluent-kafka, cA: A commits, its EndTxn is held; B aborts",
    "confluent-kafka, cC and aA: both end alike",
    "kafka-python: all four",
    "Without the wire tap: two Toxiproxy proxies in series",
    "The cure: a new producer with the same transactional id after the unclear end",
    "The cheaper cure: a second producer stands by, with a transactional id of its own",
)
_RING: Final = (*BROKER_IDS, *BROKER_IDS)
PLACEMENT: Final[Sequence[Sequence[int]]] = [_RING[i % 3 : i % 3 + 3] for i in range(SLOTS * LANES)]
DRAWN: Final = ("confluent-kafka-aC-1",)
TOLD: Final[dict[Variant, str]] = {
    "aC": "B committed: all of it can be read",
    "cA": "B aborted: nothing of it can be read",
    "cC": "B can be read when it is committed, and not before",
    "aA": "both aborted: nothing can be read",
}


def steps(stage: Stage) -> Iterator[WalkthroughStep]:
    """Carry out the seven steps."""
    ends = DelayedEnds(stage, DRAWN)
    made = WalkthroughStep.numbered(TITLES)
    first, second = CLIENTS
    yield ends.hazard(made[0], ends.tapped([Case(first, "aC")]))
    yield ends.hazard(made[1], ends.tapped([Case(first, "cA")]))
    yield ends.hazard(made[2], ends.tapped([Case(first, "cC"), Case(first, "aA")]))
    yield ends.hazard(made[3], ends.tapped([Case(second, variant) for variant in ENDS]))
    every = [Case(client, variant) for client in CLIENTS for variant in ENDS]
    yield ends.hazard(made[4], ends.proxied(every))
    yield ends.cured(made[5], "re-init")
    yield ends.cured(made[6], "standby")


class DelayedEnds:
    """Tries on a stage, judged one by one and told as steps."""

    def __init__(self, stage: Stage, drawn: Sequence[str]) -> None:
        self.stage = stage
        self.tries = Tries(stage)
        self._drawn = drawn
        self._hung: list[str] = []

    def tapped(self, cases: Sequence[Case]) -> list[Try]:
        """Every case as often as the scenario wants it, each frame held by the wire tap."""
        return self._made(self.tries.by_tap, cases)

    def proxied(self, cases: Sequence[Case]) -> list[Try]:
        """The same without the wire tap, by two proxies in series."""
        return self._made(self.tries.by_proxies, cases)

    def _made(self, way: Callable[[Sequence[Case]], list[Try]], cases: Sequence[Case]) -> list[Try]:
        """Every case as often as is wanted; what a client never came back from was no try, and is told."""
        planned, made = list(cases) * self.stage.tries, list[Try]()
        for again in reversed(range(MOST_AGAIN + 1)):
            found = list(chain.from_iterable(way(some) for some in rounds(planned, SLOTS)))
            hung = [one for one in found if one.hung and again]
            self._hung += [one.name for one in hung]
            made += [one for one in found if one not in hung]
            planned = [one.case for one in hung]
        return self._judged(made)

    def _judged(self, tries: list[Try]) -> list[Try]:
        """Every try for itself: its clients' histories, and what a reader sees of their records."""
        stage = self.stage
        seen = observe_topics(stage.cluster.bootstrap("DIRECT"), [stage.topic], stage.run)
        for one in tries:
            histories = [actor.history for actor in one.actors]
            histories += [HistoryFile(one.reader.path)] if one.reader else []
            one.judged = judge_part(histories, [seen], [actor.number for actor in one.actors])
            if one.name in self._drawn:
                stage.transactional_ids.append(one.actors[0].transactional_id)
        return tries

    def hazard(self, step: WalkthroughStep, tries: list[Try]) -> WalkthroughStep:
        """The hazard is found in every try; what an application may rely on does not hold."""
        for library, variant in dict.fromkeys((t.case.library, t.case.variant) for t in tries):
            mine = [t for t in tries if (t.case.library, t.case.variant) == (library, variant)]
            found, told = sum(t.found for t in mine), sum(not t.error for t in mine)
            step.compare(
                f"{variant}, {library} is told that {TOLD[variant]}",
                f"told in {told} of {len(mine)} tries; found in {found}: {_names(mine)}",
                variant == "aA" and not any(t.anomalies for t in mine),
            )
            step.prove(
                "a late EndTxn is taken for the end of the transaction that is open",
                f"{library} {variant}: {found} of {len(mine)}; {_decided(mine[0])}{_answers(mine)}",
                found == len(mine),
            )
        self.show(step, tries)
        return step

    def cured(self, step: WalkthroughStep, cure: Cure) -> WalkthroughStep:
        """With the cure no try shows the hazard; what the cure costs is measured."""
        variants: tuple[Variant, ...] = ("aC", "cA")
        tries = self.tapped([Case(client, variant, cure) for client in CLIENTS for variant in variants])
        for library in CLIENTS:
            mine = [t for t in tries if t.case.library == library]
            held = sum(t.consistent for t in mine)
            costs = [t.cure_ms for t in mine]
            step.prove(
                "both transactions end as their client is told",
                f"{library}: {held} of {len(mine)}{_answers(mine)}; B begins {median(costs):.0f} ms "
                f"later for it ({min(costs):.0f} to {max(costs):.0f})",
                held == len(mine),
            )
        self.show(step, tries)
        return step

    def show(self, step: WalkthroughStep, tries: list[Try]) -> None:
        """The tries in full, the findings with their history lines and offsets, the frames."""
        step.show(
            tries=[
                {
                    "name": t.name,
                    "decided": t.decided,
                    "late_answer": t.late_answer,
                    "error": t.error,
                    "found": sorted(t.anomalies),
                    "seconds": round(t.seconds, 2),
                    "cure_ms": t.cure_ms,
                }
                for t in tries
            ],
            hung=self._hung,
            proof=_proof(tries),
            frames=self._frames({t.name for t in tries[:4]}),
        )

    def _frames(self, names: set[str]) -> list[list[object]]:
        """Client, connection, api, version, what the tap did, the broker's error: of every EndTxn."""
        return [
            [x.client_id, x.conn, f"{x.api} {x.side}", x.version, x.fate, x.facts.error if x.facts else None]
            for x in self.stage.frames()
            if isinstance(x, Frame) and x.client_id in names and x.api in ("EndTxn", "InitProducerId")
        ]


def _names(tries: list[Try]) -> str:
    names = sorted({name for t in tries for name in t.anomalies})
    return ", ".join(names) if names else "nothing wrong to read"


def _decided(one: Try) -> str:
    return f"the transaction log: {' '.join(one.decided)}"


def _answers(tries: list[Try]) -> str:
    answers = sorted({t.late_answer for t in tries if t.late_answer})
    errors = sorted({t.error for t in tries if t.error})
    said = f"; answer to the late EndTxn: {', '.join(answers)}" if answers else ""
    return said + (f"; refused: {', '.join(errors)}" if errors else "")


def _proof(tries: list[Try]) -> list[str]:
    """Of the first try of each variant: what was found, with history lines and offsets."""
    first = {t.case: t for t in reversed(tries)}
    found: list[tuple[str, str, Example]] = [
        (t.name, anomaly.name, anomaly.examples[0])
        for t in first.values()
        for result in (t.judged.results if t.judged else [])
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
