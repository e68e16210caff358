"""Planted test cases for anomalies of single records: lost, duplicate, phantom, reordered."""

from __future__ import annotations

from harness.evidence.checkers.model import Expect
from tests.planted.tiny import Tiny

PLAIN = {"p2": {"transactional_id": None}}
"""Settings with which producer p2 is idempotent but not transactional."""

LOOSE = {"p2": {"transactional_id": None, "idempotent": False, "acks": "1"}}
"""Settings with which producer p2 has neither idempotence nor acks=all, so Kafka gives it no guarantees."""

THREE = "p1 commit ok a:0-9\n p1 commit ok a:10-19\n p1 commit ok a:20-29"

CAUGHT = {
    "lost": {
        "the first record": Tiny(THREE, {"a": "p1:1-9 . p1:10-19 . p1:20-29 ."}),
        "one in the middle": Tiny(THREE, {"a": "p1:0-9 . p1:10-13 p1:15-19 . p1:20-29 ."}),
        "the very last record": Tiny(THREE, {"a": "p1:0-9 . p1:10-19 . p1:20-28 ."}),
        "a whole transaction": Tiny(THREE, {"a": "p1:0-9 . p1:20-29 ."}),
        "an acknowledged record of an unclear send": Tiny(
            "p2 send info a:0-9 +a:0-4", {"a": "p2:0-3"}, PLAIN
        ),
        "everything": Tiny("p2 send ok a:0-9", {"a": ""}, PLAIN),
        "across a word's edge": Tiny("p2 send ok a:0-300", {"a": "p2:0-255 p2:257-300"}, PLAIN),
        "committed at the second asking": Tiny(
            "p1 commit info again a:0-4\n p1 commit ok", {"a": "p1:0-3 ."}
        ),
    },
    "duplicate": {
        "the first record": Tiny(THREE, {"a": "p1:0 p1:0-9 . p1:10-19 . p1:20-29 ."}),
        "one in the middle": Tiny(THREE, {"a": "p1:0-9 . p1:10-14 p1:14-19 . p1:20-29 ."}),
        "the very last record": Tiny(THREE, {"a": "p1:0-9 . p1:10-19 . p1:20-29 . p1:29"}),
        "far behind the end": Tiny("p2 send ok a:0-9", {"a": "p2:0-9 . . . . p2:3"}, PLAIN),
        "three times": Tiny("p2 send ok a:0-4", {"a": "p2:0-4 p2:2 p2:2"}, PLAIN),
        "of a record whose end is unknown": Tiny("p2 send info a:0-4", {"a": "p2:0-4 p2:4"}, PLAIN),
        "a whole batch": Tiny("p2 send ok a:0-9", {"a": "p2:0-9 p2:0-9"}, PLAIN),
    },
    "phantom": {
        "before the first": Tiny("p1 commit ok a:5-9", {"a": "p1:4-9 ."}),
        "between two transactions": Tiny("p1 commit ok a:0-4\n p1 commit ok a:6-9", {"a": "p1:0-9"}),
        "after the very last": Tiny(THREE, {"a": "p1:0-9 . p1:10-19 . p1:20-30"}),
        "of a producer that was never declared": Tiny("p1 commit ok a:0-4", {"a": "p1:0-4 . p7:0"}),
        "in the wrong partition": Tiny("p1 commit ok a:0-4", {"a": "p1:0-4 .", "b": "p1a:3"}),
        "bytes that are not ours": Tiny("p1 commit ok a:0-4", {"a": "p1:0-4 . ?"}),
        "surely not delivered, and read": Tiny("p2 send info a:0-9 +a:0-4 -a:9", {"a": "p2:0-4 p2:9"}, PLAIN),
        "a send that failed as a whole": Tiny(
            "p2 send ok a:0-4\n p2 send fail a:5-9", {"a": "p2:0-4 p2:7"}, PLAIN
        ),
        "seen by a live reader only": Tiny("p1 commit ok a:0-4\n r1 read a@7 p1:9", {"a": "p1:0-4 . . ."}),
    },
    "reordered": {
        "the first two": Tiny(THREE, {"a": "p1:1 p1:0 p1:2-9 . p1:10-19 . p1:20-29 ."}),
        "two in the middle": Tiny(THREE, {"a": "p1:0-9 . p1:10-13 p1:15 p1:14 p1:16-19 . p1:20-29 ."}),
        "the very last two": Tiny(THREE, {"a": "p1:0-9 . p1:10-19 . p1:20-27 p1:29 p1:28 ."}),
        "two batches": Tiny("p2 send ok a:0-9", {"a": "p2:5-9 p2:0-4"}, PLAIN),
        "across transactions": Tiny(THREE, {"a": "p1:10-19 . p1:0-9 . p1:20-29 ."}),
        "with another producer between": Tiny(
            "p2 send ok a:0-1\n p3 send ok a:0-1", {"a": "p2:1 p3:0 p2:0 p3:1"}, {**PLAIN, "p3": PLAIN["p2"]}
        ),
    },
}

NEAR_MISSES = {
    "lost": {
        "all is there": Tiny(THREE, {"a": "p1:0-9 . p1:10-19 . p1:20-29 ."}),
        "an unknown transaction entirely absent": Tiny(
            "p1 commit ok a:0-4\n p1 commit info a:5-9", {"a": "p1:0-4 ."}
        ),
        "an aborted transaction": Tiny(
            "p1 commit ok a:0-4\n p1 abort ok a:5-9", {"a": "p1:0-4 . . . . . . ."}
        ),
        "killed before the commit was answered": Tiny(
            "p1 commit ok a:0-4\n p1 commit none a:5-9", {"a": "p1:0-4 . . ."}
        ),
        "surely not delivered": Tiny("p2 send ok a:0-4\n p2 send fail a:5-9", {"a": "p2:0-4"}, PLAIN),
        "unclear sends": Tiny("p2 send info a:0-9 +a:0-4", {"a": "p2:0-4 p2:8"}, PLAIN),
        "commit failed, then aborted": Tiny(
            "p1 commit ok a:0-1\n p1 commit fail again a:2-4\n p1 abort ok", {"a": "p1:0-1 . . . . ."}
        ),
    },
    "duplicate": {
        "acknowledged twice with one offset": Tiny(
            "p2 send info a:0-4 +a:0-4>0 +a:0-4>0", {"a": "p2:0-4"}, PLAIN
        ),
        "read again after a rewind": Tiny(
            "p1 commit ok a:0-4\n r1 read a@0 p1:0-4\n r1 seek a@2\n r1 read a@2 p1:2-4", {"a": "p1:0-4 ."}
        ),
        "read again after a rebalance": Tiny(
            "p1 commit ok a:0-4\n r1 assign a\n r1 read a@0 p1:0-4\n r1 revoke a\n r1 assign a\n"
            "r1 read a@2 p1:2-4",
            {"a": "p1:0-4 ."},
            {"r1": {"group": "g"}},
        ),
        "the same sequence in two lanes": Tiny(
            "p1 commit ok a:0-4 b:0-4", {"a": "p1:0-4 .", "b": "p1:0-4 ."}
        ),
        "the same sequence of two producers": Tiny(
            "p1 commit ok a:0-4\n p3 commit ok a:0-4", {"a": "p1:0-4 . p3:0-4 ."}
        ),
        "only in an aborted transaction": Tiny(
            "p1 commit ok a:0-4\n p1 abort ok a:5-6", {"a": "p1:0-4 . . . . . ."}
        ),
    },
    "phantom": {
        "an unknown transaction entirely visible": Tiny(
            "p1 commit ok a:0-4\n p1 commit info a:5-9", {"a": "p1:0-4 . p1:5-9 ."}
        ),
        "sent in an unclear send": Tiny("p2 send ok a:0-4\n p2 send none a:5-9", {"a": "p2:0-6"}, PLAIN),
        "gaps of markers and aborted records": Tiny(THREE, {"a": ". . p1:0-9 . . . p1:10-19 . p1:20-29 . ."}),
    },
    "reordered": {
        "two producers interleaved": Tiny(
            "@1-3 p2 send ok a:0-4\n @2-4 p3 send ok a:0-4",
            {"a": "p3:0 p2:0-1 p3:1-3 p2:2-4 p3:4"},
            {**PLAIN, "p3": PLAIN["p2"]},
        ),
        "markers making gaps": Tiny(THREE, {"a": "p1:0-9 . . . p1:10-19 . p1:20-29 ."}),
        "two partitions, one slower": Tiny(
            "p1 commit ok a:0-1 b:0-1\n p1 commit ok a:2-3 b:2-3",
            {"a": ". . . p1:0-1 . p1:2-3 .", "b": "p1:0-3 ."},
        ),
        "a rewind of a reader": Tiny(
            "p1 commit ok a:0-4\n r1 read a@3 p1:3-4\n r1 seek a@0\n r1 read a@0 p1:0-2", {"a": "p1:0-4 ."}
        ),
        "an unknown record missing in the middle": Tiny(
            "p2 send info a:0-4 +a:0-1 +a:3-4", {"a": "p2:0-1 p2:3-4"}, PLAIN
        ),
    },
}

PERMITTED = {
    "duplicate": Tiny("p2 send ok a:0-4", {"a": "p2:0-4 p2:4"}, LOOSE),
    "lost": Tiny("p2 send ok a:0-4", {"a": "p2:0-3"}, LOOSE),
    "reordered": Tiny("p2 send ok a:0-4", {"a": "p2:0-2 p2:4 p2:3"}, LOOSE),
}
"""Deviations that Kafka permits without idempotence. The verdict lists them but stays valid."""

UNKNOWN = {
    "nothing was sent and nothing read": Tiny("p1 init ok", {"a": ""}),
    "the witness did not read to the end": Tiny(
        THREE, {"a": "p1:0-9 . p1:10-19 . p1:20-29 ."}, complete=False
    ),
    "the last stable offset hides the rest": Tiny(THREE, {"a": "p1:0-9 . p1:10-19 ."}, hw={"a": 40}),
    "the last stable offset was watched for too short a time": Tiny(
        "p1 commit ok a:0-4\n @2 look a 2/5\n @20 look a 2/5", {"a": "p1:0-4"}
    ),
    "the last stable offset has just moved, and is behind": Tiny(
        "p1 commit ok a:0-4\n @2 look a 1/5\n @100 look a 3/6\n @120 look a 4/9", {"a": "p1:0-4"}
    ),
    "one lane of two was not read to its end": Tiny(
        "p2 send ok a:0-4 b:0-4", {"a": "p2:0-4", "b": "p2:0-4"}, PLAIN, hw={"b": 40}
    ),
    "a fault that did not bite": Tiny(
        THREE + "\n fault f1 intent\n fault f1 no_bite\n fault f1 healed", {"a": "p1:0-9 p1:10-19 p1:20-29"}
    ),
    "a fault that was never healed": Tiny(
        THREE + "\n fault f1 intent\n fault f1 bite", {"a": "p1:0-9 p1:10-19 p1:20-29"}
    ),
    "fewer faults than planned": Tiny(THREE, {"a": "p1:0-9 p1:10-19 p1:20-29"}, expect=Expect(faults=1)),
    "a witness is missing": Tiny(
        THREE, {"a": "p1:0-9 p1:10-19 p1:20-29"}, expect=Expect(witnesses=["spark"])
    ),
    "a sequence handed over twice": Tiny("p1 commit ok a:0-4\n p1 commit ok a:4-9", {"a": "p1:0-9"}),
    "a promised property with nothing to compare": Tiny(
        "p2 send ok a:0-4", {"a": "p2:0-4"}, PLAIN, expect=Expect(properties=["exactly_once", "atomicity"])
    ),
    "no such checker": Tiny("p1 commit ok a:0-4", {"a": "p1:0-4"}, expect=Expect(properties=["sums"])),
}
"""Cases without an anomaly whose verdict must be unknown, because the evidence is insufficient."""
