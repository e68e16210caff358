"""Planted test cases for anomalies of transactions and of single offsets."""

from __future__ import annotations

from tests.planted.tiny import Tiny

PLAIN = {"p2": {"transactional_id": None}}
LOOSE = {"p2": {"transactional_id": None, "idempotent": False, "acks": "1"}}

THREE = "p1 commit ok a:0-4 b:0-4\n p1 {} a:5-9 b:5-9\n p1 commit ok a:10-14 b:10-14"
BOTH = {"a": "p1:0-4 . p1:5-9 . p1:10-14 .", "b": "p1:0-4 . p1:5-9 . p1:10-14 ."}

# Each case has the exact set of anomaly names that the checkers must report.
CAUGHT: dict[str, dict[str, tuple[Tiny, set[str]]]] = {
    "aborted_read": {
        "the first record": (
            Tiny("p1 abort ok a:0-4\n p1 commit ok a:5-9", {"a": "p1:0 . . . . . p1:5-9 ."}),
            {"aborted_read", "torn_transaction"},
        ),
        "a whole transaction in the middle": (Tiny(THREE.format("abort ok"), BOTH), {"aborted_read"}),
        "the very last record": (
            Tiny("p1 commit ok a:0-4\n p1 abort ok a:5-9", {"a": "p1:0-4 . . . . . p1:9 ."}),
            {"aborted_read", "torn_transaction"},
        ),
        "of a client killed before it asked for anything": (
            Tiny("p1 commit ok a:0-4\n p1 begin", {"a": "p1:0-6"}),
            {"aborted_read"},
        ),
        "the commit failed": (
            Tiny("p1 commit ok a:0-4\n p1 commit fail a:5-5", {"a": "p1:0-5"}),
            {"aborted_read"},
        ),
        "an abort without an answer": (
            Tiny("p1 commit ok a:0-4\n p1 abort info a:5-5", {"a": "p1:0-5"}),
            {"aborted_read"},
        ),
        "shown to a live reader only": (
            Tiny("p1 commit ok a:0-4\n p1 abort ok a:5-9\n r1 read a@6 p1:5", {"a": "p1:0-4 . . . ."}),
            {"aborted_read"},
        ),
    },
    "torn_transaction": {
        "an unknown one, one record short": (
            Tiny(THREE.format("commit info"), {**BOTH, "b": "p1:0-4 . p1:5-8 . p1:10-14 ."}),
            {"torn_transaction"},
        ),
        "an unknown one, one partition short": (
            Tiny(THREE.format("commit none"), {**BOTH, "a": "p1:0-4 . p1:10-14 ."}),
            {"torn_transaction"},
        ),
        "the very last, unknown, one record visible": (
            Tiny("p1 commit ok a:0-4\n p1 commit info a:5-9", {"a": "p1:0-4 . p1:5"}),
            {"torn_transaction"},
        ),
        "the first, committed": (
            Tiny(THREE.format("commit ok"), {**BOTH, "a": "p1:1-4 . p1:5-9 . p1:10-14 ."}),
            {"lost", "torn_transaction"},
        ),
        "answered as committed and as aborted, half of it read": (
            Tiny("p1 commit ok again a:0-1\n p1 abort ok\n p1 commit ok a:2-3", {"a": "p1:0 p1:2-3"}),
            {"torn_transaction"},
        ),
    },
    "early_read": {
        "by a live reader, the first transaction": (
            Tiny("r1 read a@0 p1:0-4\n p1 commit ok a:0-4", {"a": "p1:0-4 ."}),
            {"early_read"},
        ),
        "by a live reader, in the middle of a run": (
            Tiny(
                "p1 commit ok a:0-4\n @5 r1 read a@6 p1:5-6\n @6 p1 commit ok a:5-6", {"a": "p1:0-4 . p1:5-6"}
            ),
            {"early_read"},
        ),
        "by a witness that had finished": (
            Tiny("p1 commit ok a:0-4\n @9 p1 commit ok a:5-9", {"a": "p1:0-4 . p1:5-9"}, finished=8),
            {"early_read"},
        ),
        "the very last record": (
            Tiny("p1 commit ok a:0-4\n @5 r1 read a@6 p1:5\n @6 p1 commit ok a:5-5", {"a": "p1:0-4 . p1:5"}),
            {"early_read"},
        ),
    },
    "inconsistent_offset": {
        "the first offset was acknowledged for another": (
            Tiny(
                "p2 send ok a:0-4>0\n p3 send ok a:0-0>0", {"a": "p2:0-4 p3:0"}, {**PLAIN, "p3": PLAIN["p2"]}
            ),
            {"inconsistent_offset"},
        ),
        "one in the middle, read elsewhere": (
            Tiny("p2 send ok a:0-4>0\n p2 send ok a:5-9>5", {"a": "p2:0-4 . p2:5-9"}, PLAIN),
            {"inconsistent_offset"},
        ),
        "the very last": (
            Tiny("p2 send ok a:0-4>0\n p2 send ok a:5-5>9", {"a": "p2:0-5"}, PLAIN),
            {"inconsistent_offset"},
        ),
        "two readers, one offset, two records": (
            Tiny(
                "p1 commit ok a:0-4\n p3 commit ok a:0-4\n r1 read a@5 p3:0", {"a": "p1:0-4 p3:1 p3:0 p3:2-4"}
            ),
            {"inconsistent_offset", "reordered"},
        ),
        "within a long run, behind a short one that agrees": (
            Tiny("p2 send ok a:0-9\n r1 read a@2 p2:2\n r2 read a@5 p2:7", {"a": "p2:0-9"}, PLAIN),
            {"inconsistent_offset"},
        ),
        "two readers, and an acknowledgement that promises nothing": (
            Tiny("p2 send ok a:0-4>0\n r2 read a@0 p2:1", {"a": "p2:0-4"}, LOOSE),
            {"inconsistent_offset"},
        ),
        "one reader, twice": (
            Tiny("p1 commit ok a:0-4\n r1 read a@1 p1:1\n r1 seek a@1\n r1 read a@1 p1:2", {"a": "p1:0-4"}),
            {"inconsistent_offset"},
        ),
    },
}

NEAR_MISSES: dict[str, dict[str, Tiny]] = {
    "aborted_read": {
        "an aborted transaction stays hidden": Tiny(
            THREE.format("abort ok"), {"a": "p1:0-4 . . . . . . p1:10-14 .", "b": "p1:0-4 . . p1:10-14"}
        ),
        "aborted, then sent again with new sequences": Tiny(
            "p1 abort ok a:0-4\n p1 commit ok a:5-9", {"a": ". . . . . . p1:5-9 ."}
        ),
        "commit unclear at first, then confirmed": Tiny(
            "p1 commit info again a:0-4\n p1 commit ok", {"a": "p1:0-4 ."}
        ),
        "killed before it asked, and nothing seen": Tiny(
            "p1 commit ok a:0-4\n p1 begin", {"a": "p1:0-4 . . ."}
        ),
    },
    "torn_transaction": {
        "an unknown one entirely visible": Tiny(THREE.format("commit info"), BOTH),
        "an unknown one entirely absent": Tiny(
            THREE.format("commit info"), {"a": "p1:0-4 . p1:10-14 .", "b": "p1:0-4 . p1:10-14 ."}
        ),
        "interleaved with another transaction": Tiny(
            "p1 commit ok a:0-3\n p3 commit ok a:0-3", {"a": "p1:0-1 p3:0-2 p1:2-3 . p3:3 ."}
        ),
        "a live reader that has come half way": Tiny(
            THREE.format("commit ok") + "\n r1 read a@0 p1:0-2", BOTH
        ),
        "an unclear send without transactions, half of it there": Tiny(
            "p2 send info a:0-4\n p2 send ok b:0-1", {"a": "p2:0-2", "b": "p2:0-1"}, PLAIN
        ),
    },
    "early_read": {
        "read while the commit was still unanswered": Tiny(
            "@1-9 p1 commit ok a:0-4\n @2 r1 read a@0 p1:0-4", {"a": "p1:0-4 ."}
        ),
        "read right after": Tiny("@1 p1 commit ok a:0-4\n @2 r1 read a@0 p1:0-4", {"a": "p1:0-4 ."}),
        "no transaction, acknowledged after it was read": Tiny(
            "@1-9 p2 send ok a:0-4\n @2 r1 read a@0 p2:0-4", {"a": "p2:0-4"}, PLAIN
        ),
        "another host's clock": Tiny(
            "@1 r1 read a@0 p1:0-4\n @2 p1 commit ok a:0-4", {"a": "p1:0-4 ."}, {"r1": {"clock": "other"}}
        ),
    },
    "inconsistent_offset": {
        "acknowledged twice with one offset": Tiny(
            "p2 send info a:0-4 +a:0-4>0 +a:0-4>0", {"a": "p2:0-4"}, PLAIN
        ),
        "two readers agree": Tiny(
            "p1 commit ok a:0-4\n r1 read a@0 p1:0-4\n r2 read a@1 p1:1-2", {"a": "p1:0-4"}
        ),
        "contradicted by an acknowledgement that promises nothing": Tiny(
            "p2 send ok a:0-1>0\n p3 send ok a:0-1", {"a": "p3:0 p2:0-1 p3:1"}, {**LOOSE, "p3": PLAIN["p2"]}
        ),
        "no answer with the offset": Tiny("p2 send ok a:0-4", {"a": ". . p2:0-4"}, PLAIN),
        "the same offset of two partitions": Tiny(
            "p2 send ok a:0-4>0 b:0-4>0", {"a": "p2:0-4", "b": "p2:0-4"}, PLAIN
        ),
        "acknowledged, then aborted": Tiny(
            "p1 abort ok a:0-4>0\n p1 commit ok a:5-9>6", {"a": ". . . . . . p1:5-9"}
        ),
    },
}
