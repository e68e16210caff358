"""Planted cases: what readers were given during a run must stay readable, and something must be certain."""

from __future__ import annotations

from dataclasses import dataclass

from harness.evidence.checkers.model import Evidence, Expect
from tests.planted.cases_records import LOOSE, PLAIN
from tests.planted.cases_witnesses import Alone, Change, Pair, meta
from tests.planted.tiny import SECOND, Tiny

FIVE = "p1 commit ok a:0-4 b:0-4\n"
"""One certain transaction, so that a run compares something."""

TWO_LANES = FIVE + "p1 commit info a:5-9 b:5-9\n"
GONE = {"a": "p1:0-4 .", "b": "p1:0-4 ."}
HIDDEN = {"a": "p1:0-4 . . . . . . .", "b": "p1:0-4 . . . . . . ."}
WHOLE = {"a": "p1:0-4 . p1:5-9 .", "b": "p1:0-4 . p1:5-9 ."}
DIRTY = {"r1": {"isolation": "read_uncommitted"}}

SENT_EARLY = "p2 send ok a:0-4 b:0-1\n p2 send info a:5-9\n @40 r1 read a@5 p2:5-9"
EARLY_LOG = {"a": "p2:0-4", "b": "p2:0-1"}
EARLY: tuple[Change, ...] = (meta(frozen=30 * SECOND),)
"""Changes with which spark froze its ends at 30 s."""


@dataclass
class Cut(Tiny):
    """A case in which retention deleted the offsets before `start` of partition a."""

    start: int = 0

    def evidence(self) -> Evidence:
        evidence = super().evidence()
        evidence.observations[0].meta.windows[0].start = self.start
        return evidence


@dataclass
class Short(Tiny):
    """A case in which the first witness was cut short, and a second one read less but is complete."""

    second: dict[str, str] | None = None

    def evidence(self) -> Evidence:
        evidence = super().evidence()
        other = Tiny(self.history, self.second or {}, self.settings).evidence().observations[0]
        other.meta.witness = "spark"
        evidence.observations[0].meta.complete = False
        return Evidence(evidence.ledger, [*evidence.observations, other], evidence.expect)


CAUGHT: dict[str, dict[str, tuple[Tiny, set[str]]]] = {
    "lost": {
        "an unclear send that a reader was given": (
            Tiny("p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-9", {"a": "p2:0-4"}, PLAIN),
            {"lost"},
        ),
        "one record of an unclear send, and the others are there": (
            Tiny(
                "p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-9",
                {"a": "p2:0-4 p2:5-6 . p2:8-9"},
                PLAIN,
            ),
            {"lost"},
        ),
        "a send without an answer that a reader was given": (
            Tiny("p2 send ok a:0-4\n p2 send none a:5-9\n r1 read a@6 p2:6", {"a": "p2:0-4"}, PLAIN),
            {"lost"},
        ),
        "sends of two lanes, given to two readers": (
            Tiny(
                "p2 send ok a:0 b:0\n p2 send info a:1-2 b:1-2\n r1 read a@1 p2:1\n r2 read b@2 p2:2",
                {"a": "p2:0", "b": "p2:0-1"},
                PLAIN,
            ),
            {"lost"},
        ),
        "a whole unknown transaction, of which a reader was given one record": (
            Tiny(TWO_LANES + "r1 read a@6 p1:5", GONE),
            {"lost"},
        ),
        "an unknown transaction that a reader was given in its second partition": (
            Tiny(FIVE + "p1 commit none a:5-9 b:5-9\n r1 read b@10 p1:9", GONE),
            {"lost"},
        ),
        "one that lay before the last stable offset, which stopped behind": (
            Tiny(
                TWO_LANES + "r1 read a@6 p1:5-9", {"a": "p1:0-4 . . . . . . .", "b": "p1:0-4"}, hw={"a": 40}
            ),
            {"lost", "torn_transaction"},
        ),
        "an input of unknown outcome that a pipeline processed": (
            Tiny(
                "p1 commit ok i:0-4\n p1 commit info i:5-9\n w1 read i@6 p1:5-9", {"i": "p1:0-4 .", "a": ""}
            ),
            {"lost"},
        ),
        "records that a witness was given before it was cut short": (
            Short(
                "p2 send ok a:0-4\n p2 send info a:5-9",
                {"a": "p2:0-9"},
                PLAIN,
                second={"a": "p2:0-4 . . . . ."},
            ),
            {"lost"},
        ),
        "a transaction that only one of two witnesses read": (
            Pair(TWO_LANES, WHOLE, spark={"a": "p1:0-4 . . . . . . .", "b": "p1:0-4 . . . . . . ."}),
            {"lost"},
        ),
        "given after one witness captured the ends, and gone for the other one": (
            Pair(
                SENT_EARLY,
                {**EARLY_LOG, "a": "p2:0-4 . . . . ."},
                PLAIN,
                spark=EARLY_LOG,
                changes=EARLY,
                frozen=60,
                finished=61,
            ),
            {"lost"},
        ),
        "a transaction that was given between the ends of two witnesses": (
            Pair(
                "p1 commit ok a:0-4\n @35 p1 commit info a:5-9\n @40 r1 read a@6 p1:5-9",
                {"a": "p1:0-4 . . . . . . ."},
                spark={"a": "p1:0-4 ."},
                changes=EARLY,
                frozen=60,
                finished=61,
            ),
            {"lost"},
        ),
        "acknowledged before the first of two witnesses captured the ends": (
            Pair(
                "p1 commit ok a:0-4\n p1 commit ok a:5-9\n @40 p1 commit ok a:10-14",
                {"a": "p1:0-4 . . . . . . . p1:10-14 ."},
                spark={"a": "p1:0-4 . . . . . . ."},
                changes=EARLY,
                frozen=60,
                finished=61,
            ),
            {"lost"},
        ),
        "given to a witness without runs that was cut short": (
            Pair(
                "p2 send ok a:0-4\n p2 send info a:5-299",
                {"a": "p2:0-4 " + ". " * 295},
                PLAIN,
                spark={"a": "p2:0-299"},
                changes=(meta(complete=False),),
                expect=Expect(),
            ),
            {"lost"},
        ),
        "one record in the middle word of a long unclear send": (
            Tiny(
                "p2 send ok a:0-9\n p2 send info a:10-999\n r1 read a@10 p2:10-999",
                {"a": "p2:0-255 " + ". " * 256 + "p2:512-999"},
                PLAIN,
            ),
            {"lost"},
        ),
        "given to a reader on another host whose clock is ahead of that of the witness": (
            Tiny(
                "p2 send ok a:0-4\n p2 send info a:5-9\n @10 r1 read a@5 p2:5-9",
                {"a": "p2:0-4 . . . . ."},
                {**PLAIN, "r1": {"clock": "another"}},
                finished=8,
            ),
            {"lost"},
        ),
        "given after a witness that was cut short had captured its ends": (
            Short(
                "p2 send ok a:0-4\n @9 p2 send info a:5-9\n @10 r1 read a@5 p2:5-9",
                {"a": "p2:0-4"},
                PLAIN,
                finished=8,
                second={"a": "p2:0-4"},
            ),
            {"lost"},
        ),
        "given before the witness captured the ends": (
            Tiny(TWO_LANES + "@7 r1 read a@6 p1:5-9", GONE, finished=8),
            {"lost"},
        ),
    },
    "torn_transaction": {
        "given to a reader in one partition, missing in another": (
            Tiny(TWO_LANES + "r1 read a@6 p1:5-9", {**WHOLE, "b": "p1:0-4 ."}, hw={"a": 40}),
            {"torn_transaction"},
        ),
        "one partition read by one witness, the other by another": (
            Pair(TWO_LANES, {"a": WHOLE["a"]}, spark={"b": GONE["b"]}, expect=Expect()),
            {"torn_transaction"},
        ),
        "a part of it in the partition that was read to its end": (
            Tiny(TWO_LANES + "r1 read a@6 p1:5", {**GONE, "b": "p1:0-4 . p1:5-7 ."}, hw={"a": 40}),
            {"torn_transaction"},
        ),
        "given to a reader whose partition no witness read": (
            Tiny(TWO_LANES + "r1 read b@6 p1:5-9", {"a": GONE["a"]}),
            {"torn_transaction"},
        ),
    },
    "inconsistent_offset": {
        "a record that moved after a reader was given it": (
            Tiny("p2 send ok a:0-4\n r1 read a@3 p2:3-4", {"a": "p2:0-2 . . p2:3-4"}, PLAIN),
            {"inconsistent_offset"},
        ),
        "an unclear record that moved to the end": (
            Tiny("p2 send ok a:0-1\n p2 send info a:2\n r1 read a@2 p2:2", {"a": "p2:0-1 . . p2:2"}, PLAIN),
            {"inconsistent_offset"},
        ),
        "a record that moved inside a word without gaps, and the witness keeps no runs": (
            Alone("p2 send ok a:0-9\n r1 read a@5 p2:3", {"a": "p2:0-9"}, PLAIN),
            {"inconsistent_offset"},
        ),
        "the last records of a word moved by one, and the witness keeps no runs": (
            Alone(
                "p1 commit ok a:0-9\n p1 commit ok a:10-19\n r1 read a@10 p1:10-19",
                {"a": "p1:0-9 . p1:10-19 ."},
            ),
            {"inconsistent_offset"},
        ),
        "in the second of the words of one poll, and the witness keeps no runs": (
            Alone(
                "p1 commit ok a:0-255\n p1 commit ok a:256-599\n r1 read a@0 p1:0-599",
                {"a": "p1:0-255 . p1:256-599 ."},
            ),
            {"inconsistent_offset"},
        ),
        "a record of a transaction that moved": (
            Tiny(FIVE + "p1 commit ok a:5-9 b:5-9\n r1 read a@9 p1:5", WHOLE),
            {"inconsistent_offset"},
        ),
    },
    "aborted_read": {
        "an aborted transaction that a reader was given is not lost": (
            Tiny(FIVE + "p1 abort ok a:5-9 b:5-9\n r1 read a@6 p1:5-9", GONE),
            {"aborted_read"},
        ),
        "given to a reader with read_uncommitted": (
            Tiny(FIVE + "p1 abort ok a:5-9\n r1 read a@6 p1:5-9", GONE, DIRTY),
            {"aborted_read"},
        ),
        "a transaction that its client gave up": (
            Tiny(FIVE + "p1 abandon none a:5-9\n r1 read a@6 p1:5-9", GONE),
            {"aborted_read"},
        ),
    },
    "phantom": {
        "a failed record that a reader was given is not lost": (
            Tiny("p2 send ok a:0-4\n p2 send fail a:5-9\n r1 read a@5 p2:5-9", {"a": "p2:0-4"}, PLAIN),
            {"phantom"},
        ),
        "a record of an undeclared producer that a reader was given": (
            Tiny("p2 send ok a:0-4\n r1 read a@5 p7:5-9", {"a": "p2:0-4"}, PLAIN),
            {"phantom"},
        ),
        "far behind every sequence that was sent": (
            Tiny("p2 send ok a:0-4", {"a": "p2:0-4 p2:2000000000"}, PLAIN),
            {"phantom"},
        ),
    },
    "early_read": {
        "in the lane whose transaction was not yet requested": (
            Tiny(
                "@1 p1 commit ok a:0-4 b:0-9\n @5 r1 read a@6 p1:5-6\n @6 p1 commit ok a:5-6",
                {"a": "p1:0-4 . p1:5-6 .", "b": "p1:0-9 ."},
            ),
            {"early_read"},
        )
    },
}

NEAR_MISSES = {
    "lost": {
        "a reader was given an unclear send, and it stayed": Tiny(
            "p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-9", {"a": "p2:0-9"}, PLAIN
        ),
        "a reader was given a part of an unclear send, and only that part is there": Tiny(
            "p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-6", {"a": "p2:0-6"}, PLAIN
        ),
        "a reader was given a part of an unknown transaction, and all of it is there": Tiny(
            TWO_LANES + "r1 read b@6 p1:5", WHOLE
        ),
        "only a reader with read_uncommitted was given the unknown transaction": Tiny(
            TWO_LANES + "r1 read a@6 p1:5-9", HIDDEN, DIRTY
        ),
        "only a reader with read_uncommitted was given the unclear send": Tiny(
            "p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-9",
            {"a": "p2:0-4 . . . . ."},
            PLAIN | DIRTY,
        ),
        "Kafka permits it without acks=all": Tiny(
            "p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-9", {"a": "p2:0-4 . . . . ."}, LOOSE
        ),
        "given after the witness had captured the ends": Tiny(
            FIVE + "@9 p1 commit info a:5-9\n @10 r1 read a@6 p1:5-9", GONE, finished=8
        ),
        "a send that a reader was given after the witness had captured the ends": Tiny(
            "p2 send ok a:0-4\n @9 p2 send info a:5-9\n @10 r1 read a@5 p2:5-9",
            {"a": "p2:0-4"},
            PLAIN,
            finished=8,
        ),
        "given after one witness captured the ends, and there for the other one": Pair(
            SENT_EARLY, {**EARLY_LOG, "a": "p2:0-9"}, PLAIN, frozen=60, finished=61
        ),
        "a witness without runs that was cut short before the unclear records": Pair(
            "p2 send ok a:0-4\n p2 send info a:5-9",
            {"a": "p2:0-4 . . . . ."},
            PLAIN,
            spark={"a": "p2:0-4"},
            changes=(meta(complete=False),),
            expect=Expect(),
        ),
        "a witness without runs that was cut short had read behind the end": Pair(
            "p1 commit ok a:0-4\n @40 p1 commit info a:5-9",
            {"a": "p1:0-4 ."},
            spark={"a": "p1:0-4 . p1:5-9"},
            changes=(meta(complete=False, frozen=0),),
            expect=Expect(),
            frozen=30,
            finished=31,
        ),
        "a reader was given the transactions before and after the unknown one": Tiny(
            FIVE + "p1 commit info a:5-9\n p1 commit ok a:10-14\n r1 read a@0 p1:0-4\n r1 read a@6 p1:10-14",
            {"a": "p1:0-4 . p1:10-14 .", "b": "p1:0-4 ."},
        ),
    },
    "torn_transaction": {
        "an unknown transaction in two partitions, read by two witnesses": Pair(
            TWO_LANES, {"a": WHOLE["a"]}, spark={"b": WHOLE["b"]}, expect=Expect()
        ),
        "an unknown transaction in two partitions, absent for two witnesses": Pair(
            TWO_LANES, {"a": GONE["a"]}, spark={"b": GONE["b"]}, expect=Expect()
        ),
        "given to a reader in one partition, and whole": Tiny(TWO_LANES + "r1 read a@6 p1:5-9", WHOLE),
    },
    "inconsistent_offset": {
        "a reader was given the same offsets as the witness": Tiny(
            "p2 send ok a:0-4\n r1 read a@1 p2:1-2\n r2 read a@4 p2:4", {"a": "p2:0-4"}, PLAIN
        ),
        "a reader was given records of several runs in one poll": Tiny(
            FIVE + "p1 commit ok a:5-9\n r1 read a@3 p1:3-4\n r1 read a@6 p1:5-9",
            {"a": "p1:0-4 . p1:5-9 .", "b": "p1:0-4 ."},
        ),
        "a whole word and parts of two, and the witness keeps no runs": Alone(
            "p1 commit ok a:0-299\n p1 commit ok a:300-599\n r1 read a@200 p1:200-299\n"
            "r1 read a@301 p1:300-599",
            {"a": "p1:0-299 . p1:300-599 ."},
        ),
        "records that Kafka may reorder, and the witness keeps no runs": Alone(
            "p2 send ok a:0-4\n r1 read a@0 p2:1 a@1 p2:0 a@2 p2:2-4",
            {"a": "p2:1 p2:0 p2:2-4"},
            {"p2": {"transactional_id": None, "idempotent": False}},
        ),
        "a witness that keeps no runs": Pair("p2 send ok a:0-4\n r1 read a@1 p2:1-2", {"a": "p2:0-4"}, PLAIN),
    },
    "early_read": {
        "an overlapping sequence of another lane": Tiny(
            "@1 p1 commit ok a:0-9\n @5 r1 read a@2 p1:2-3\n @6 p1 commit ok b:0-9",
            {"a": "p1:0-9 .", "b": "p1:0-9 ."},
        ),
        "a witness on another host": Tiny(
            "p1 commit ok a:0-4\n @9 p1 commit ok a:5-9",
            {"a": "p1:0-4 . p1:5-9 ."},
            {"p1": {"clock": "another"}},
            finished=8,
        ),
    },
}

UNKNOWN = {
    "acknowledged after the only witness captured the ends": Tiny(
        "p1 commit ok a:0-4\n @9 p1 commit ok a:5-9", {"a": "p1:0-4 ."}, finished=8
    ),
    "acknowledged at the end of the log after the only witness captured the ends": Tiny(
        "p2 send ok a:0-4>0\n @9 p2 send ok a:5-9>5", {"a": "p2:0-4"}, PLAIN, finished=8
    ),
    "acknowledged without a guarantee at the end of the log, and the witness did not finish": Tiny(
        "p2 send ok a:0-9>0",
        {"a": "p2:0-4"},
        {"p2": {"transactional_id": None, "idempotent": False, "acks": "1"}},
        complete=False,
    ),
    "a commit during which the only witness captured the ends": Tiny(
        "p1 commit ok a:0-4\n @7-9 p1 commit ok a:5-9", {"a": "p1:0-4 ."}, finished=8
    ),
    "acknowledged after the first of two witnesses captured the ends": Pair(
        "p1 commit ok a:0-4\n @40 p1 commit ok a:5-9",
        {"a": "p1:0-4 . p1:5-9 ."},
        spark={"a": "p1:0-4 ."},
        changes=EARLY,
        frozen=60,
        finished=61,
    ),
    "every send is unclear": Tiny("p2 send info a:0-499", {"a": "p2:0-9"}, PLAIN),
    "every transaction is unclear": Tiny(
        "\n".join(f"p1 commit info a:{n}-{n + 9}" for n in range(0, 500, 10)), {"a": "p1:0-9 ."}
    ),
    "every transaction was aborted": Tiny("p1 abort ok a:0-9", {"a": ". . ."}),
    "every transaction is unclear, and two witnesses read some": Pair(
        "p1 commit info a:0-9\n p1 commit info a:10-19", {"a": "p1:0-9 ."}
    ),
    "a reader on another host was given records behind the end": Tiny(
        "p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-9",
        {"a": "p2:0-4"},
        {**PLAIN, "r1": {"clock": "another"}},
        finished=8,
    ),
    "a reader on another host was given records behind the end, and its clock is ahead": Tiny(
        "p2 send ok a:0-4\n p2 send info a:5-9\n @10 r1 read a@5 p2:5-9",
        {"a": "p2:0-4"},
        {**PLAIN, "r1": {"clock": "another"}},
        finished=8,
    ),
    "retention deleted records that a reader was given": Cut(
        "p2 send ok a:0-4\n p2 send info a:5-9\n p2 send ok a:10-14\n r1 read a@5 p2:5-9",
        {"a": ". . . . . . . . . . p2:10-14"},
        PLAIN,
        start=10,
    ),
    "a reader was given records behind the last stable offset": Tiny(
        "p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-9", {"a": "p2:0-4"}, PLAIN, hw={"a": 40}
    ),
}
