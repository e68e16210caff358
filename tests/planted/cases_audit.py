"""Planted test cases for damage in the logs: late markers, reused sequences, and positions that went back."""

from __future__ import annotations

from tests.planted.tiny import Tiny

HAND_IN = "p1 offsets i:5\n p1 commit ok a:0-1"
WHOLE = {"a": "p1:0-1 ."}


def late(ends: str, log: str, raw: str, decided: str) -> Tiny:
    """Return a case with transactions in partition a, their ends, and what the logs have."""
    return Tiny(ends, {"a": log}, raw={"a": raw}, decided=decided)


def positions(log: str, decided: str = "@2.5 C1 a g") -> Tiny:
    """Return a case in which the log of the group coordinators has these positions."""
    return Tiny(HAND_IN, WHOLE, raw={"a": "p1:0-1 C1"}, positions=log, decided=decided)


CAUGHT: dict[str, dict[str, tuple[Tiny, set[str]]]] = {
    "undecided_marker": {
        "a late ABORT ends the first part of a committed transaction": (
            late(
                "p1 abort ok a:0-1\n p1 commit ok a:2-4",
                ". . . . . . p1:4 .",
                "p1:0-1 A1 p1:2-3 A1 p1:4 C1",
                "@2.5 A1 a\n @7.5 C1 a",
            ),
            {"undecided_marker", "lost", "torn_transaction", "fate_mismatch"},
        ),
        "a late COMMIT ends the first part of an aborted transaction": (
            late(
                "p1 commit ok a:0-1\n p1 abort ok a:2-4",
                "p1:0-1 . p1:2-3 . . .",
                "p1:0-1 C1 p1:2-3 C1 p1:4 A1",
                "@2.5 C1 a\n @7.5 A1 a",
            ),
            {"undecided_marker", "aborted_read", "torn_transaction", "fate_mismatch"},
        ),
        "a late COMMIT makes a part of a committed transaction readable too early": (
            late(
                "p1 commit ok a:0-1\n p1 commit ok a:2-4",
                "p1:0-1 . p1:2-3 . p1:4 .",
                "p1:0-1 C1 p1:2-3 C1 p1:4 C1",
                "@2.5 C1 a\n @7.5 C1 a",
            ),
            {"undecided_marker"},
        ),
        "a marker behind the last decision": (
            late(
                "p1 commit ok a:0-1\n p1 commit none a:2-3",
                "p1:0-1 . p1:2-3 .",
                "p1:0-1 C1 p1:2-3 C1",
                "@2.5 C1 a",
            ),
            {"undecided_marker"},
        ),
        "a marker whose decision is of another partition": (
            Tiny(
                "p1 commit ok a:0-1 b:0-0\n p1 commit ok a:2-3",
                {"a": "p1:0-1 . p1:2-3 .", "b": "p1:0 ."},
                raw={"a": "p1:0-1 C1 p1:2-3 C1", "b": "p1:0 C1"},
                decided="@1.5 C1 a b\n @4.5 C1 b",
            ),
            {"undecided_marker"},
        ),
        "a late COMMIT of positions": (
            positions("i:2 C1 i:5 C1 A1", "@1.5 C1 g\n @2.5 C1 a\n @4.5 A1 g"),
            {"undecided_marker"},
        ),
    },
    "reused_sequence": {
        "a transaction that begins with the last sequence of the one before": (
            late(
                "p1 commit ok a:0-1\n p1 commit ok a:2-3",
                "p1:0-1 . p1:2-3 .",
                "p1:0-1 C1 p1:2%1 p1:3%2 C1",
                "@2.5 C1 a\n @5.5 C1 a",
            ),
            {"reused_sequence"},
        ),
        "an aborted record and a committed one": (
            late(
                "p1 abort ok a:0-0\n p1 commit ok a:1-1",
                ". . p1:1 .",
                "p1:0 A1 p1:1%0 C1",
                "@1.5 A1 a\n @3.5 C1 a",
            ),
            {"reused_sequence"},
        ),
        "an idempotent producer that went back": (
            Tiny(
                "p1 send ok a:0-3",
                {"a": "p1:0-3"},
                {"p1": {"transactional_id": None}},
                raw={"a": "p1:0-2 p1:3%1"},
                decided="@1 C9 b",
            ),
            {"reused_sequence"},
        ),
    },
    "position_went_back": {
        "back to an earlier position": (positions("i:5 i:3 C1"), {"position_went_back"}),
        "back after it had advanced": (positions("i:3 i:5 i:4 C1"), {"position_went_back"}),
        "back in the second transaction": (
            positions("i:5 C1 i:7 i:6 C1", "@1.5 C1 g\n @2.5 C1 a\n @4.5 C1 g"),
            {"position_went_back"},
        ),
    },
}

NEAR_MISSES: dict[str, dict[str, Tiny]] = {
    "undecided_marker": {
        "a copy of a marker that ends no record": late(
            "p1 abort ok a:0-1\n p1 commit ok a:2-3",
            ". . . . p1:2-3 .",
            "p1:0-1 A1 A1 p1:2-3 C1",
            "@2.5 A1 a\n @6.5 C1 a",
        ),
        "a transaction that its time-out aborted": late(
            "p1 commit ok a:0-1\n p1 commit none a:2-3",
            "p1:0-1 . . . .",
            "p1:0-1 C1 p1:2-3 A1",
            "@2.5 C1 a\n @5.5 A1 a",
        ),
        "two producers in one partition": Tiny(
            "p1 commit ok a:0-1\n p2 abort ok a:0-0",
            {"a": "p1:0-1 . . ."},
            raw={"a": "p1:0 p1:1 p2:0 A2 C1"},
            decided="@3.5 A2 a\n @4.5 C1 a",
        ),
        "a decision long before its marker": late("p1 commit ok a:0-1", "p1:0-1 .", "p1:0-1 C1", "@2 C1 a"),
    },
    "reused_sequence": {
        "one sequence in two partitions": Tiny(
            "p1 commit ok a:0-1 b:0-1",
            {"a": "p1:0-1 .", "b": "p1:0-1 ."},
            raw={"a": "p1:0-1 C1", "b": "p1:0-1 C1"},
            decided="@2.5 C1 a b",
        ),
        "one sequence of two producer ids": Tiny(
            "p1 commit ok a:0-1\n p2 commit ok a:0-1",
            {"a": "p1:0-1 . p2:0-1 ."},
            raw={"a": "p1:0-1 C1 p2:0-1 C2"},
            decided="@2.5 C1 a\n @5.5 C2 a",
        ),
        "a gap between sequences": late(
            "p1 commit ok a:0-1\n p1 commit ok a:2-3",
            "p1:0-1 . p1:2-3 .",
            "p1:0-1 C1 p1:2%7 p1:3%9 C1",
            "@2.5 C1 a\n @5.5 C1 a",
        ),
    },
    "position_went_back": {
        "back in the next transaction": positions("i:5 C1 i:3 C1", "@1.5 C1 g\n @2.5 C1 a\n @3.5 C1 g"),
        "back in a transaction that was aborted": positions("i:5 i:3 A1", "@2.5 A1 g\n @2.6 C1 a"),
        "the same position again": positions("i:5 i:5 C1"),
        "a lower position of another partition": positions("i:5 o:3 C1"),
    },
}

UNKNOWN: dict[str, Tiny] = {
    "a run that could not read the coordinators' logs": Tiny(
        HAND_IN,
        WHOLE,
        raw={"a": "p1:0-1 C1"},
        decided="@2.5 C1 a",
        unread=["__transaction_state-3: no leader"],
    ),
    "markers without any known decision": Tiny(HAND_IN, WHOLE, raw={"a": "p1:0-1 C1"}, decided="@2.5 C9 b"),
}
