"""Planted cases: witnesses that are missing or disagree, ends that went back, and faults that met no work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.observation import Observation
from tests.planted.cases_records import PLAIN, THREE
from tests.planted.tiny import SECOND, Tiny

Change = Callable[[Observation], None]
BOTH = Expect(witnesses=["reader-all", "spark"])
TEN = {"a": "p1:0-9 . p1:10-19 . p1:20-29 ."}


@dataclass
class Pair(Tiny):
    """A case with a second witness, `spark`, which reads another log, or the same log with a change.

    `started` is the second at which the first witness, `reader-all`, froze its ends. `changes` are applied to
    the observation of spark.
    """

    spark: dict[str, str] | None = None
    spark_hw: dict[str, int] = field(default_factory=dict)
    spark_finished: int = 0
    frozen: int = 0
    changes: tuple[Change, ...] = ()
    runs: bool = False
    expect: Expect = field(default_factory=lambda: BOTH)

    def evidence(self) -> Evidence:
        evidence = super().evidence()
        reader = next(view for view in evidence.observations if view.meta.witness == "reader-all")
        second = Tiny(
            self.history, self.log if self.spark is None else self.spark, self.settings, hw=self.spark_hw
        )
        spark = second._observe("all", None)
        spark.meta.witness, spark.meta.kind = "spark", "spark"
        spark.runs = spark.runs if self.runs else None
        spark.meta.finished = self.spark_finished * SECOND
        reader.meta.frozen = self.frozen * SECOND
        for change in self.changes:
            change(spark)
        return Evidence(evidence.ledger, [*evidence.observations, spark], evidence.expect)


def meta(**fields: object) -> Change:
    """Return a change that sets fields of the observation's metadata."""

    def apply(view: Observation) -> None:
        for name, value in fields.items():
            setattr(view.meta, name, value)

    return apply


def words(**columns: int) -> Change:
    """Return a change that adds numbers to columns of the first word."""

    def apply(view: Observation) -> None:
        for name, more in columns.items():
            view.words[name][:1] += more

    return apply


def finding(name: str, **fields: object) -> Change:
    """Return a change that sets fields of one kind of findings."""

    def apply(view: Observation) -> None:
        for key, value in fields.items():
            setattr(getattr(view.meta, name), key, value)

    return apply


def without_partition(view: Observation) -> None:
    """Remove the last window, with its words."""
    last = len(view.meta.windows) - 1
    view.meta.windows.pop()
    view.words = view.words[view.words["partition"] < last]
    view.meta.records = int(view.words["n"].sum())


TWO = {"a": "p1:0-4 .", "b": "p1:0-4 ."}
IN_TWO = "p1 commit ok a:0-4 b:0-4"
LONG = "p2 send ok a:0-599"

UNKNOWN: dict[str, Tiny] = {
    # Frozen ends
    "one witness read further than the other": Pair(
        "p1 commit ok a:0-4\n p1 commit info a:5-9", {"a": "p1:0-4"}, spark={"a": "p1:0-9"}
    ),
    "one witness read only one marker further": Pair(THREE, TEN, spark={"a": TEN["a"] + " ."}),
    "different ends in the second partition": Pair(IN_TWO, TWO, spark={**TWO, "b": "p1:0-4 . ."}),
    "different ends, and a difference in the common part": Pair(
        "p1 commit info a:0-4", {"a": ". . . . ."}, spark={"a": "p1:0-4 . ."}
    ),
    # Promises
    "a promised witness did not finish": Pair(THREE, TEN, changes=(meta(complete=False),)),
    "a promised witness did not read a used partition": Pair(IN_TWO, TWO, changes=(without_partition,)),
    "a promised witness read only the consumed part": Pair(
        THREE, TEN, changes=(meta(purpose="consumed", group="g"),)
    ),
    "a promised witness read uncommitted records": Pair(
        THREE, TEN, changes=(meta(isolation="read_uncommitted"),)
    ),
    "a live reader with the name of a promised witness": Tiny(
        THREE + "\n r1 read a@0 p1:0-9", TEN, expect=Expect(witnesses=["r1"])
    ),
    # Agreement
    "the same records at other offsets": Pair(THREE, TEN, changes=(words(lo=3, hi=3),)),
    "one end of a word differs": Pair(THREE, TEN, changes=(words(hi=-1),)),
    "a record in one partition, and in the other one for the other witness": Pair(
        "p2 send info a:0-4\n p1 commit ok a:0-0 b:0-0",
        {"a": "p1:0 . p2:0", "b": "p1:0 . ."},
        PLAIN,
        spark={"a": "p1:0 . .", "b": "p1:0 . ."},
    ),
    "an unclear record in the second partition that only one witness read": Pair(
        "p2 send ok a:0-4\n p2 send info b:0-4",
        {"a": "p2:0-4", "b": "p2:0-4"},
        PLAIN,
        spark={"a": "p2:0-4", "b": "p2:0-3 ."},
    ),
    "a record at another offset inside its word, seen by two witnesses with runs": Pair(
        "p2 send ok a:0-2", {"a": "p2:0 p2:1 . p2:2"}, PLAIN, spark={"a": "p2:0 . p2:1 p2:2"}, runs=True
    ),
    "the second word differs": Pair(
        LONG,
        {"a": "p2:0-599"},
        PLAIN,
        changes=(lambda view: view.words["lo"].__setitem__(1, view.words["lo"][1] - 1),),
    ),
    "only one witness counted late records": Pair(THREE, TEN, changes=(finding("late", count=2),)),
    "only one witness counted repeats": Pair(THREE, TEN, changes=(finding("repeats", by_producer=[(1, 1)]),)),
    "outputs of other inputs": Pair(
        "p9 commit ok o:0-1",
        {"o": "p9:0<p1:4 p9:1<p1:5 ."},
        changes=(lambda view: view.origins["bits"].__setitem__((0, 0), np.uint64(1)),),
    ),
    "the words contain no record, but the witness reports some": Pair(
        "p1 commit info a:0-4", {"a": ". . . . ."}, changes=(meta(records=5),), expect=Expect()
    ),
    # Faults
    "a fault after the last operation": Tiny(
        THREE + "\n @50 fault f1 intent\n @51 fault f1 bite\n @52 fault f1 healed", TEN
    ),
    "a fault before the first operation": Tiny(
        "@1 fault f1 intent\n @2 fault f1 bite\n @3 fault f1 healed\n @9 p1 commit ok a:0-4",
        {"a": "p1:0-4 ."},
    ),
    "a fault between two operations": Tiny(
        "@1-2 p1 commit ok a:0-4\n @3 fault f1 intent\n @4 fault f1 bite\n @5 fault f1 healed\n"
        "@9 p1 commit ok a:5-9",
        {"a": "p1:0-4 . p1:5-9 ."},
    ),
    "a fault that met only the init of a producer that never sent, and ended before it": Tiny(
        "@1 p2 send ok a:0-4\n @10 fault f1 intent\n @11 fault f1 bite\n @12 fault f1 healed\n@13 p1 init ok",
        {"a": "p2:0-4"},
        PLAIN,
    ),
    "a fault long after a killed client's last request": Tiny(
        "@1 p1 commit ok a:0-4\n @2 p1 commit none a:5-9\n @500 fault f1 intent\n @501 fault f1 bite\n"
        "@502 fault f1 healed",
        {"a": "p1:0-4 ."},
    ),
    "a fault after its client had ended with an unanswered request": Tiny(
        "@1 p1 commit ok a:0-4\n @2 p1 commit none a:5-9\n @3 p1 close\n @5 fault f1 intent\n"
        "@6 fault f1 bite\n @7 fault f1 healed",
        {"a": "p1:0-4 ."},
    ),
    "two faults, and only the first met work": Tiny(
        "@1 fault f1 intent\n @2 fault f1 bite\n @2-3 p1 commit ok a:0-4\n @4 fault f1 healed\n"
        "@10 fault f2 intent\n @11 fault f2 bite\n @12 fault f2 healed",
        {"a": "p1:0-4 ."},
    ),
    "a fault whose times are those of another clock": Tiny(
        "@1 fault f1 intent\n @2 fault f1 bite\n @2-3 p1 commit ok a:0-4\n @4 fault f1 healed",
        {"a": "p1:0-4 ."},
        {"oracle": {"clock": "elsewhere"}},
    ),
}
NEAR_MISSES: dict[str, dict[str, Tiny]] = {
    "witnesses and faults": {
        "two equal witnesses": Pair(THREE, TEN),
        "two equal witnesses of two partitions": Pair(IN_TWO, TWO),
        "a witness that was not promised and did not finish": Pair(
            THREE, TEN, changes=(meta(complete=False),), expect=Expect(witnesses=["reader-all"])
        ),
        "the same pipeline outputs": Pair("p9 commit ok o:0-1", {"o": "p9:0<p1:4 p9:1<p1:5 ."}),
        "an unused partition that only one witness read": Pair(
            "p1 commit ok a:0-4", {"a": "p1:0-4 .", "b": ""}, spark={"a": "p1:0-4 ."}
        ),
        "a fault that met an open transaction": Tiny(
            "@1 p1 begin\n @2 fault f1 intent\n @3 fault f1 bite\n @4 fault f1 healed\n"
            "@5-6 p1 commit ok a:0-4",
            {"a": "p1:0-4 ."},
        ),
        "a fault that met an unanswered request of a killed client": Tiny(
            "@1 p1 commit none a:0-4\n @2 fault f1 intent\n @3 fault f1 bite\n @4 fault f1 healed\n"
            "@5 p3 commit ok a:0-4",
            {"a": "p3:0-4 ."},
        ),
        "a fault that met the init of a producer": Tiny(
            "@1 fault f1 intent\n @2-4 p1 init ok\n @3 fault f1 bite\n @5 fault f1 healed\n"
            "@6 p1 commit ok a:0-4",
            {"a": "p1:0-4 ."},
        ),
        "a fault that met the poll of a reader": Tiny(
            "@1 p1 commit ok a:0-4\n @3 fault f1 intent\n @4 r1 read a@0 p1:0-4\n @5 fault f1 bite\n"
            "@6 fault f1 healed",
            {"a": "p1:0-4 ."},
        ),
    }
}
"""Near misses of disagreement and of idle faults: their verdict is valid."""
