"""Planted cases: witnesses that are missing or disagree, ends that went back, and faults that met no work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.observation import Observation
from tests.planted.cases_records import PLAIN, THREE
from tests.planted.tiny import SECOND, ChangedLines, Tiny, pipeline

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


@dataclass
class Alone(Tiny):
    """A case in which the only witness recorded no runs of consecutive records, as Spark in a large run."""

    def evidence(self) -> Evidence:
        evidence = super().evidence()
        for view in evidence.observations:
            view.runs = None
        return evidence


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

FIVE_OF_TEN = "p9:0<p1:0 p9:1<p1:1 p9:2<p1:2 p9:3<p1:3 p9:4<p1:4 ."
TEN_OF_TEN = FIVE_OF_TEN + " p9:5<p1:5 p9:6<p1:6 p9:7<p1:7 p9:8<p1:8 p9:9<p1:9 ."
STEPS = "@1-2 p1 commit ok i:0-9\n @3 p9 offsets i:5\n @4-5 p9 commit ok o:0-4\n "
MORE = "@10 p9 offsets i:10\n @11-12 p9 commit ok o:5-9\n "


def piped(
    history: str, outputs: str = TEN_OF_TEN, consumed: int = 10, change: ChangedLines | None = None
) -> Tiny:
    """Return a case of a pipeline with ten inputs, whose group has the position `consumed` at the end."""
    log = {"i": "p1:0-9 .", "o": outputs}
    return Tiny(STEPS + history, log, expect=pipeline(), consumed=consumed, change=change)


FIVE = {"a": "p1:0-4 ."}
SENT = "@1-2 p1 commit ok a:0-4\n "
FAULT = "@20 fault f1 intent\n @21 fault f1 bite\n @21-22 p1 commit info a:5-9\n @30 fault f1 healed\n "
OTHER_CLOCK = {"oracle": {"clock": "elsewhere"}}

CAUGHT: dict[str, dict[str, Tiny | tuple[Tiny, set[str]]]] = {
    "log_truncated": {
        "the frozen end is below an earlier sample": Tiny(SENT + "@5 look a 31/31", FIVE),
        "by one offset": Tiny(SENT + "@5 look a 7/7", FIVE),
        "in the second partition only": Tiny(
            IN_TWO + "\n @5 look a 6/6\n @6 look b 9/9\n @7 look b 3/9", {"a": "p1:0-4 .", "b": "p1:0-4 ."}
        ),
        "between two samples of a partition that no witness read": Tiny(
            SENT + "@5 look b 100/100\n @9 look b 6/6", FIVE
        ),
        "a live reader got records beyond the end": (
            Tiny("p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-9", {"a": "p2:0-4"}, PLAIN),
            {"log_truncated", "lost"},
        ),
        "a live reader got one record beyond the end": (
            Tiny("p2 send ok a:0-4\n p2 send info a:5\n r1 read a@5 p2:5", {"a": "p2:0-4"}, PLAIN),
            {"log_truncated", "lost"},
        ),
        "an acknowledged record of an unclear transaction is beyond the end": Tiny(
            "p1 commit ok a:0-4\n p1 commit info a:5-9>20", FIVE
        ),
        "an acknowledged record is gone, and the witness did not finish": Tiny(
            "p2 send ok a:0-9>0", {"a": "p2:0-4"}, PLAIN, complete=False
        ),
        "a witness had read further before the other one froze its ends": Pair(
            "p1 commit ok a:0-4\n p1 commit info a:5-9",
            FIVE,
            spark={"a": "p1:0-4 . p1:5-9"},
            spark_finished=50,
            frozen=60,
            finished=61,
        ),
        "a stream had read beyond the end that was frozen then": Pair(
            "p1 commit ok a:0-4\n p1 commit info a:5-9",
            FIVE,
            spark={"a": "p1:0-4 . p1:5-9"},
            changes=(lambda view: setattr(view.meta.windows[0], "lso", 6),),
        ),
        "a sample before the witness froze its ends": Pair(
            SENT + "@5 look a 31/31", FIVE, frozen=60, finished=61, spark_finished=58
        ),
    }
}

CAUGHT["inconsistent_offset"] = {
    "the whole word was acknowledged, but at another first offset": Alone(
        "p2 send ok a:0-3>1", {"a": "p2:0 p2:1 p2:2 . p2:3"}, PLAIN
    ),
    "the halves of a word were acknowledged the wrong way round": Alone(
        "p2 send ok a:0-4>5\n p2 send ok a:5-9>0", {"a": "p2:0-9"}, PLAIN
    ),
    "too near to the end for the records after it": Alone(
        "p2 send ok a:0-4>3\n p2 send ok a:5-9", {"a": "p2:0-9"}, PLAIN
    ),
    "the first record of a word, acknowledged one offset behind its beginning": Alone(
        "p2 send info a:0-9 +a:0-3>1", {"a": "p2:0-4 . . p2:5-9"}, PLAIN
    ),
    "the last record of a word, acknowledged one offset before its end": Alone(
        "p2 send info a:0-9 +a:8-9>9", {"a": "p2:0-4 . . p2:5-9"}, PLAIN
    ),
    "another producer wrote late, and this one in order": Alone(
        "p2 send ok a:0-4>3\n p2 send ok a:5-9\n p3 send info b:0-1",
        {"a": "p2:0-9", "b": "p3:1 p3:0"},
        {**PLAIN, "p3": {"transactional_id": None, "idempotent": False, "acks": "1"}},
    ),
    "at the end of the first word of a long acknowledgement": Alone(
        "p2 send ok a:0-299>1", {"a": "p2:0-255 . . p2:256-299 ."}, PLAIN
    ),
}
CAUGHT["lost"] = {
    "acknowledged at the end of the log, and gone": (
        Tiny("p2 send ok a:0-9>0", {"a": "p2:0-4"}, PLAIN),
        {"lost"},
    )
}
CAUGHT["offset_drift"] = {
    "the group is far beyond the end of the input": piped(MORE + "@20 group i:1000"),
    "the group is one beyond the end of the input": piped(MORE + "@20 group i:12\n @21 group i:10"),
    "moved by an outsider to a position that no client wrote": piped(
        "@6 group i:5\n @7 group i:7\n" + MORE + "@20 group i:10"
    ),
    "back to a position that was written long before": piped(
        "@6 group i:5\n" + MORE + "@20 group i:10\n @21 group i:5\n @22 group i:10"
    ),
    "behind what a committed transaction wrote": piped(MORE + "@20 group i:5"),
    "behind what a sample showed, and not written after it": piped(
        MORE.replace("ok", "info") + "@20 group i:10\n @21 group i:5"
    ),
    "a position before its commit was requested": piped("@6 group i:5\n @9 group i:10\n" + MORE),
    "a position of an aborted transaction": piped(
        "@6 p9 offsets i:8\n @7 p9 abort ok o:10-12\n @9 group i:8\n" + MORE
    ),
    "the group of a reader, which is beyond the end of the log": Tiny(
        "p1 commit ok a:0-4\n @5 group a:1000", {"a": "p1:0-4 ."}
    ),
    "the group of a reader, in the second of its partitions": Tiny(
        "p1 commit ok a:0-4 b:0-4\n @5 group a:6 b:7", {"a": "p1:0-4 .", "b": "p1:0-4 ."}
    ),
    "a group whose only writer lists its positions, and an outsider moved it": Tiny(
        "p1 commit ok a:0-9\n @5 p9 offsets a:5\n @6 p9 commit ok b:0-0\n @9 group a:7",
        {"a": "p1:0-9 .", "b": "p9:0 ."},
    ),
    "moved in a fault, and it stays": piped(
        MORE + "@13 fault f1 intent\n @14 fault f1 bite\n @14-15 p9 abort ok o:10-11\n @16 fault f1 healed\n"
        "@20 group i:10\n @21 group i:5",
        consumed=5,
    ),
}

UNKNOWN: dict[str, Tiny] = {
    # Ends that went back
    "only the sampled high watermark is above the frozen one": Tiny(
        SENT + "@5 look a 6/9\n @6 look a 6/6", FIVE
    ),
    "a lower end, but the sample has another clock": Tiny(
        SENT + "@5 look a 31/31", FIVE, OTHER_CLOCK, finished=60
    ),
    "a dip although no fault was injected": Tiny(
        SENT + "@5 look a 6/6\n @6 look a 4/4\n @7 look a 6/6", FIVE
    ),
    "the log went back and grew again": Tiny(
        SENT + FAULT + "@31 look a 9/9\n @32 look a 2/2\n @33 look a 5/5\n @34 look a 12/12",
        {"a": "p1:0-4 . . . . . . ."},
    ),
    "the high watermark of an unread partition stays low after a fail-over": Tiny(
        SENT + FAULT + "@31 look b 4/9\n @32 look b 4/4", FIVE
    ),
    "the high watermark of an unread partition stays low": Tiny(
        SENT + "@5 look b 0/0\n @6 look b 4/9\n @7 look b 4/4", FIVE
    ),
    # Frozen ends
    "one witness read further than the other": Pair(
        "p1 commit ok a:0-4\n p1 commit info a:5-9", {"a": "p1:0-4"}, spark={"a": "p1:0-9"}
    ),
    "one witness read only one marker further": Pair(THREE, TEN, spark={"a": TEN["a"] + " ."}),
    "one witness captured a higher high watermark at the same end": Pair(
        "p1 commit ok a:0-4", {"a": "p1:0-4 ."}, spark_hw={"a": 9}
    ),
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
    "the same records at other offsets in the second partition": Pair(
        IN_TWO, TWO, changes=(lambda view: view.words["lo"].__setitem__(1, 1),)
    ),
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
    "more copies of an output": Pair(
        "p9 commit ok o:0-1",
        {"o": "p9:0<p1:4 p9:1<p1:5 ."},
        changes=(lambda view: view.origins["n"].__setitem__(0, 9),),
    ),
    "outputs with another part number": Pair(
        "p9 commit ok o:0-1",
        {"o": "p9:0<p1:4 p9:1<p1:5 ."},
        changes=(lambda view: view.origins["part"].__setitem__(0, 1),),
    ),
    "the words contain no record, but the witness reports some": Pair(
        "p1 commit info a:0-4", {"a": ". . . . ."}, changes=(meta(records=5),), expect=Expect()
    ),
    # Faults
    "a fault after the last operation": Tiny(
        THREE + "\n @50 fault f1 intent\n @51 fault f1 bite\n @52 fault f1 healed", TEN
    ),
    "a fault between two operations, with a sample that shows no open transaction": Tiny(
        "@1-2 p1 commit ok a:0-4\n @3 fault f1 intent\n @4 fault f1 bite\n @4 look a 6/6\n"
        "@5 fault f1 healed\n @9 p1 commit ok a:5-9",
        {"a": "p1:0-4 . p1:5-9 ."},
    ),
    "a fault before the begin of a transaction that never ended": Tiny(
        "@1 fault f1 intent\n @2 fault f1 bite\n @3 fault f1 healed\n @5 p1 begin\n @9 p2 commit ok a:0-4",
        {"a": "p2:0-4 ."},
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
    "a fault long after a transaction that its client gave up": Tiny(
        "@1 p1 commit ok a:0-4\n @2 p1 abandon none a:5-9\n @100 fault f1 intent\n @101 fault f1 bite\n"
        "@102 fault f1 healed\n @200 p1 close",
        {"a": "p1:0-4 ."},
    ),
    "a fault between a transaction that its client gave up and the next one": Tiny(
        "@1 p1 begin\n @2 p1 abandon none a:0-4\n @100 fault f1 intent\n @101 fault f1 bite\n"
        "@102 fault f1 healed\n @200 p1 begin\n @201-202 p1 commit ok a:5-9\n @203 p1 close",
        {"a": ". . . . . . p1:5-9 ."},
    ),
    "a fault that was injected twice, and met work only once": Tiny(
        "@1 fault f1 intent\n @2 fault f1 bite\n @2-3 p1 commit ok a:0-4\n @4 fault f1 healed\n"
        "@10 fault f1 intent\n @11 fault f1 bite\n @12 fault f1 healed",
        {"a": "p1:0-4 ."},
    ),
    "a fault that took effect without an intent": Tiny(
        "@1-4 p1 commit ok a:0-4\n @2 fault f1 bite\n @3 fault f1 healed", {"a": "p1:0-4 ."}
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
    "offset_drift": {
        "every position that was written, in its order": piped(
            "@6 group i:5\n @7 group i:5\n" + MORE + "@20 group i:10"
        ),
        "a rewind that the history explains": piped(
            MORE.replace("ok o:5-9", "ok") + "@20 group i:10\n @21 p9 offsets i:5\n @22-23 p9 commit ok\n"
            "@24 group i:5\n @25 p9 offsets i:10\n @26-27 p9 commit ok o:5-9\n @30 group i:10"
        ),
        "an unclear transaction rewound the group later": piped(
            "@5 p9 offsets i:10\n @6-7 p9 commit ok\n @8 group i:10\n @9 p9 offsets i:5\n "
            "@10-11 p9 commit info\n @14 group i:5",
            FIVE_OF_TEN,
            5,
        ),
        "between the request of a commit and its answer": piped(
            "@6 group i:5\n" + MORE.replace("@11-12", "@11-16") + "@13 group i:5\n @14 group i:10"
        ),
        "an old coordinator in a fail-over": piped(
            MORE + "@13 fault f1 intent\n @14 fault f1 bite\n @14-15 p9 abort ok o:10-11\n"
            "@16 fault f1 healed\n @20 group i:10\n @21 group i:5\n @22 group i:10"
        ),
        "past the marker at the end of the input": piped(
            MORE.replace("i:10", "i:11") + "@20 group i:11", consumed=11
        ),
        "the group of a reader that is at the end of the log": Tiny(
            "p1 commit ok a:0-4\n @5 group a:6", {"a": "p1:0-4 ."}
        ),
        "a group with a member that does not list its positions": Tiny(
            "p1 commit ok a:0-9\n @3 r1 read a@0 p1:0-6\n @5 p9 offsets a:5\n @6 p9 commit ok b:0-0\n"
            "@9 group a:7",
            {"a": "p1:0-9 .", "b": "p9:0 ."},
            {"r1": {"group": "g"}},
        ),
        "samples of an observer with another clock": Tiny(
            STEPS + MORE + "@3 group i:5\n @4 group i:10",
            {"i": "p1:0-9 .", "o": TEN_OF_TEN},
            OTHER_CLOCK,
            expect=pipeline(),
            consumed=10,
        ),
    },
    "inconsistent_offset": {
        "acknowledged where it is read": Alone(
            "p2 send ok a:0-4>0\n p2 send ok a:5-9>6", {"a": "p2:0-4 . p2:5-9"}, PLAIN
        ),
        "acknowledged in part, with a gap inside the word": Alone(
            "p2 send info a:0-9 +a:3-5>5 +a:8-9>10", {"a": "p2:0-2 . . p2:3-5 . . p2:8-9"}, PLAIN
        ),
        "acknowledged twice with the same offset": Alone(
            "p2 send info a:0-4 +a:0-4>1 +a:0-4>1", {"a": ". p2:0-4"}, PLAIN
        ),
        "over the edge of a word": Alone(
            "p2 send ok a:0-299>2\n p2 send ok a:300-301>303", {"a": ". . p2:0-299 . p2:300-301"}, PLAIN
        ),
    },
    "log_truncated": {
        "the log only grows": Tiny(SENT + "@5 look a 2/4\n @6 look a 4/6\n @7 look a 6/6", FIVE),
        "a dip in a fail-over": Tiny(
            SENT + FAULT + "@31 look a 6/6\n @32 look a 4/4\n @33 look a 4/4\n @34 look a 6/6",
            {"a": "p1:0-4 ."},
        ),
        "two dips in a fail-over": Tiny(
            SENT + FAULT + "@31 look a 9/9\n @32 look a 4/4\n @33 look a 12/12\n @34 look a 6/6\n "
            "@35 look a 12/12",
            {"a": "p1:0-4 . . . . . . ."},
        ),
        "the last sample is from an old leader": Tiny(
            SENT + FAULT + "@31 look a 6/6\n @32 look a 4/4", {"a": "p1:0-4 ."}
        ),
        "sampled after the witness had frozen its ends": Pair(
            SENT + "@70 look a 9/9", FIVE, frozen=60, finished=61, spark_finished=65
        ),
        "sampled after the witness had finished": Tiny(SENT + "@70 look a 9/9", FIVE, finished=60),
        "a reader got the last record": Tiny("p1 commit ok a:0-4\n r1 read a@4 p1:4", FIVE),
        "acknowledged after the witness had captured the ends": Tiny(
            "p1 commit ok a:0-4\n @9 p1 commit info a:5-9>6", FIVE, finished=8
        ),
        "acknowledged at the last offset": Tiny("p2 send ok a:0-4>0", {"a": "p2:0-4"}, PLAIN),
    },
    "witnesses and faults": {
        "two equal witnesses": Pair(THREE, TEN),
        "two equal witnesses of two partitions": Pair(IN_TWO, TWO),
        "a witness that was not promised and did not finish": Pair(
            THREE, TEN, changes=(meta(complete=False),), expect=Expect(witnesses=["reader-all"])
        ),
        "a witness that kept a part of its runs": Pair(
            THREE,
            TEN,
            runs=True,
            changes=(lambda view: setattr(view, "runs", view.runs[:1]),),  # type: ignore
        ),
        "a witness that was not promised and read one of two partitions": Pair(
            IN_TWO, TWO, changes=(without_partition,), expect=Expect(witnesses=["reader-all"])
        ),
        "an open transaction, and partitions that no client used": Pair(
            "p1 commit ok a:0-4\n p1 begin", {"a": "p1:0-4 ."}
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
        "a fault that met only the unanswered retry of a commit": Tiny(
            "@1-2 p1 commit info again a:0-4\n @50 p1 commit none\n @1-2 p3 commit ok b:0-1\n"
            "@60 fault f1 intent\n @61 fault f1 bite\n @62 fault f1 healed\n @70 p1 close",
            {"a": "p1:0-4 .", "b": "p3:0-1 ."},
        ),
        "a fault that was injected twice, and met work both times": Tiny(
            "@1 fault f1 intent\n @2 fault f1 bite\n @2-3 p1 commit ok a:0-4\n @4 fault f1 healed\n"
            "@10 fault f1 intent\n @11 fault f1 bite\n @11 p1 commit ok a:5-9\n @12 fault f1 healed",
            {"a": "p1:0-4 . p1:5-9 ."},
        ),
        "a fault that met the init of a producer": Tiny(
            "@1 fault f1 intent\n @2-4 p1 init ok\n @3 fault f1 bite\n @5 fault f1 healed\n"
            "@6 p1 commit ok a:0-4",
            {"a": "p1:0-4 ."},
        ),
        "a fault within the init of a producer": Tiny(
            "@1-9 p1 init ok\n @3 fault f1 intent\n @4 fault f1 bite\n @5 fault f1 healed\n"
            "@10 p1 commit ok a:0-4",
            {"a": "p1:0-4 ."},
        ),
        "a fault that met the poll of a reader": Tiny(
            "@1 p1 commit ok a:0-4\n @3 fault f1 intent\n @4 r1 read a@0 p1:0-4\n @5 fault f1 bite\n"
            "@6 fault f1 healed",
            {"a": "p1:0-4 ."},
        ),
    },
}
"""Near misses of disagreement and of idle faults: their verdict is valid."""
