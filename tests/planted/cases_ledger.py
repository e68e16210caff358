"""Planted cases: histories with missing lines, and histories of other writers that contradict themselves.

Each kind has at least three histories that make a run unknown, with the reason that the verdict must give,
and three similar histories that do not. `tests/unit/test_history_gaps.py` checks the reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.evidence.checkers.model import Expect
from tests.planted.cases_systems import PIPE, TEN
from tests.planted.tiny import Line, Tiny, pipeline

PLAIN: dict[str, dict[str, Any]] = {"p2": {"transactional_id": None}}
Change = Callable[[dict[str, list[Line]]], None]


def changed(history: str, log: dict[str, str], *changes: Change, settings: Any = None, **fields: Any) -> Tiny:
    def apply(lines: dict[str, list[Line]]) -> None:
        for change in changes:
            change(lines)

    return Tiny(history, log, PLAIN if settings is None else settings, change=apply, **fields)


def drop(client: str, op: int, *types: str) -> Change:
    """Remove the lines of one operation; by default its request and its answer."""

    def change(lines: dict[str, list[Line]]) -> None:
        chosen = types or ("invoke", "ok", "fail", "info")
        lines[client] = [x for x in lines[client] if not (x.get("op") == op and x["type"] in chosen)]

    return change


def renumber(client: str, numbers: dict[int, int]) -> Change:
    def change(lines: dict[str, list[Line]]) -> None:
        for line in lines[client]:
            if "op" in line:
                line["op"] = numbers.get(line["op"], line["op"])

    return change


def answer(client: str, op: int, kind: str, f: str, at: int = 20) -> Change:
    """Add an answer at the end of a history."""

    def change(lines: dict[str, list[Line]]) -> None:
        clocks = {"mono": at * 10**9, "wall": at * 10**9}
        lines[client].append({"type": kind, "f": f, "op": op, **clocks})

    return change


def swap(client: str, op: int) -> Change:
    """Put the answer to an operation before its request."""

    def change(lines: dict[str, list[Line]]) -> None:
        first, second = (i for i, x in enumerate(lines[client]) if x.get("op") == op)
        rows = lines[client]
        rows[first], rows[second] = rows[second], rows[first]

    return change


def put(client: str, op: int, **fields: Any) -> Change:
    """Change fields of the request of an operation."""

    def change(lines: dict[str, list[Line]]) -> None:
        for line in lines[client]:
            if line.get("op") == op and line["type"] == "invoke":
                line.update(fields)

    return change


def rename(client: str, op: int, f: str) -> Change:
    """Give an operation another name, in its request and its answer."""

    def change(lines: dict[str, list[Line]]) -> None:
        for line in lines[client]:
            if line.get("op") == op:
                line["f"] = f

    return change


def declare(client: str, at: int, **fields: Any) -> Change:
    """Declare the producer of a client again, before its line with index `at`."""

    def change(lines: dict[str, list[Line]]) -> None:
        declared = next(line for line in lines[client] if line["type"] == "producer")
        lines[client].insert(at, {**declared, **fields})

    return change


SENDS = "p2 send ok a:0-4\n p2 send ok a:5-9\n p2 send ok a:10-14"
SENT = {"a": "p2:0-14"}
TXNS = "p1 commit ok a:0-4\n p1 commit ok a:5-9\n p1 commit ok a:10-14"
READ = {"a": "p1:0-4 . p1:5-9 . p1:10-14 ."}
OTHER = "p3 commit ok b:0-4\n"
"""A client with a whole history. What befalls its records is an anomaly, whatever other histories lack."""
SHARED = {"p1": {"transactional_id": "x"}, "p2": {"transactional_id": "x"}}

KINDS: dict[str, dict[str, tuple[Tiny, str]]] = {
    "a gap in the operations": {
        "a send in the middle": (changed(SENDS, SENT, drop("p2", 1)), r"p2: .*operation 1 is missing"),
        "the first operations": (
            changed(TXNS, READ, drop("p1", 0), drop("p1", 1)),
            r"p1: line 3: operation 2 is requested, but operations 0-1 are missing",
        ),
        "a poll of a reader": (
            changed(
                f"{TXNS}\n r1 assign a@0\n r1 read a@0 p1:0-4\n r1 read a@6 p1:5-9\n r1 read a@12 p1:10-14\n"
                "r1 caught-up a@18",
                READ,
                drop("r1", 2),
            ),
            r"r1: .*operation 2 is missing",
        ),
        "a note of the observer": (
            changed(f"{TXNS}\n skipped x\n skipped y", READ, drop("oracle", 0)),
            r"oracle: .*operation 0 is missing",
        ),
        "an aborted transaction whose commit is missing": (
            changed(
                "p1 commit ok a:0-4\n p1 commit info again a:5-9\n p1 abort info a:5-9\np1 commit ok a:10-14",
                READ,
                drop("p1", 1),
            ),
            r"p1: .*operation 1 is missing",
        ),
        "an init that ended a fence": (
            changed(
                "@1 p1 init ok\n @2 p2 init ok\n @3 p1 init ok\n @4 p1 commit ok a:0-4",
                {"a": "p1:0-4"},
                drop("p1", 1),
                settings=SHARED,
            ),
            r"p1: .*operation 1 is missing",
        ),
        "positions of a group": (
            changed(
                PIPE.replace("p9 commit ok o:0-4", "p9 commit ok o:0-4\n    group i:5"),
                {"i": "p1:0-9 .", "o": TEN},
                drop("p9", 0),
                consumed=10,
                expect=pipeline(),
            ),
            r"p9: .*operation 0 is missing",
        ),
    },
    "a gap in a lane": {
        "in the middle": (
            changed("p2 send ok a:0-9\n p2 send ok a:25-34", {"a": "p2:0-9 p2:25-34"}),
            r"p2: line 5: lane 0 of producer 2 continues at sequence 25, but no line lists sequences 10-24",
        ),
        "between two transactions": (
            Tiny("p1 commit ok a:0-4\n p1 commit ok a:6-9", {"a": "p1:0-4 . p1:6-9 ."}),
            r"no line lists sequence 5",
        ),
        "in the second lane": (
            Tiny(
                "p1 commit ok a:0-4 b:0-1\n p1 abort ok b:3-4\n p1 commit ok a:5-6 b:5-6",
                {"a": "p1:0-4 . p1:5-6 .", "b": "p1:0-1 . . . . p1:5-6 ."},
            ),
            r"lane 1 of producer 1 .*lists sequence 2",
        ),
        "it begins at 3": (
            changed("p2 send ok a:3-9", {"a": "p2:3-9"}),
            r"p2: line 3: lane 0 .*continues at sequence 3, but no line lists sequences 0-2",
        ),
        "it begins late, in a transaction": (
            Tiny("p1 commit ok a:1-4", {"a": "p1:1-4 ."}),
            r"no line lists sequence 0",
        ),
        "before an unclear send": (
            changed("p2 send ok a:0-4\n p2 send info a:6-9 +a:6-9", {"a": "p2:0-4 p2:6-9"}),
            r"no line lists sequence 5",
        ),
    },
    "answers that fit no request": {
        "an answer without a request": (
            changed(SENDS, SENT, answer("p2", 7, "ok", "send")),
            r"p2: line 9: an answer to operation 7, which no line of the history requests",
        ),
        "an answer whose request was lost": (
            changed(SENDS, SENT, drop("p2", 2, "invoke")),
            r"an answer to operation 2, which no line",
        ),
        "an answer to a poll that was lost": (
            changed(f"{TXNS}\n r1 read a@0 p1:0-4\n r1 read a@6 p1:5-9", READ, drop("r1", 1, "invoke")),
            r"r1: .*an answer to operation 1, which no line",
        ),
        "two answers": (
            changed(SENDS, SENT, answer("p2", 1, "fail", "send")),
            r"p2: line 9: operation 1 was already answered in line 6",
        ),
        "the same answer twice": (
            changed(TXNS, READ, answer("p1", 0, "ok", "commit")),
            r"p1: .*operation 0 was already answered in line 4",
        ),
        "an unclear answer and then a clear one": (
            changed(
                "p1 commit ok a:0-4\n p1 commit info a:5-9",
                {"a": "p1:0-4 ."},
                answer("p1", 1, "ok", "commit"),
            ),
            r"p1: .*operation 1 was already answered",
        ),
        "an answer before its request": (
            changed(SENDS, SENT, swap("p2", 1)),
            r"p2: line 5: the answer to operation 1 is before its request in line 6",
        ),
        "the answer of a commit before its request": (
            changed(TXNS, READ, swap("p1", 2)),
            r"p1: .*operation 2 is before its request",
        ),
        "an answer with an earlier time": (
            changed(SENDS, SENT, put("p2", 1, mono=9 * 10**9)),
            r"p2: .*operation 1 is before its request",
        ),
        "an answer to another operation": (
            changed(TXNS, READ, drop("p1", 1, "ok"), answer("p1", 1, "ok", "abort")),
            r"p1: .*names another operation than its request in line 5",
        ),
        "one number for two operations": (
            changed(SENDS, SENT, renumber("p2", {2: 1})),
            r"p2: line 7: number 1 is the number of the operation in line 5",
        ),
        "a send that succeeded with a failed record": (
            Tiny("p2 send ok a:0-4\n p2 send ok a:5-9 -a:7", {"a": "p2:0-4 p2:5-6 p2:8-9"}, PLAIN),
            r"p2: .*contradicts the delivery of its records",
        ),
    },
    "a number of a transaction used again": {
        "an aborted one and a committed one": (
            changed(
                "p1 abort ok a:0-4\n p1 commit ok a:5-9", {"a": ". . . . . . p1:5-9 ."}, put("p1", 1, txn=1)
            ),
            r"p1: line 5: number 1 of producer 1 was used for another transaction",
        ),
        "two committed ones, with another between them": (
            changed(TXNS, READ, put("p1", 2, txn=1)),
            r"p1: line 7: number 1 of producer 1 was used",
        ),
        "two that began": (
            changed(
                "p1 begin ok\n p1 abort ok a:0-4\n p1 begin ok\n p1 commit ok a:5-9",
                {"a": ". . . . . . p1:5-9 ."},
                put("p1", 2, txn=1),
                put("p1", 3, txn=1),
            ),
            r"p1: .*number 1 of producer 1 was used",
        ),
        "the second one was unclear": (
            changed(
                "p3 commit ok a:0-1\n p1 abort ok a:0-4\n p1 commit info a:5-9",
                {"a": "p3:0-1 . p1:5-9 ."},
                put("p1", 1, txn=1),
            ),
            r"p1: .*number 1 of producer 1 was used",
        ),
        "no number at all": (
            changed(TXNS, READ, put("p1", 1, txn=-1)),
            r"p1: line 5: the end of a transaction without its number",
        ),
    },
    "sends of a producer with a transactional id": {
        "then aborted, without a list": (
            Tiny(
                "p1 send ok a:0-4\n p1 abort ok\n p3 commit ok b:0-4", {"a": ". . . . . .", "b": "p3:0-4 ."}
            ),
            r"p1: line 3: a send of a producer with a transactional id",
        ),
        "then aborted, with a list": (
            Tiny(
                "p1 send ok a:0-4\n p1 abort ok a:0-4\n p3 commit ok b:0-4",
                {"a": ". . . . . .", "b": "p3:0-4 ."},
            ),
            r"p1: line 3: a send of a producer with a transactional id",
        ),
        "then committed": (
            Tiny("p1 send ok a:0-4\n p1 commit ok\n p3 commit ok b:0-4", {"a": "p1:0-4 .", "b": "p3:0-4 ."}),
            r"p1: line 3: a send of a producer with a transactional id",
        ),
    },
    "numbers without room in an identity": {
        "a lane of the next producer": (
            changed(
                "p1 commit ok a:0-4\n p2 send ok a:0-4",
                {"a": "p1:0-4 . p2:0-4"},
                put("p1", 0, sent=[[0, 0, 4], [100_000, 5, 9]]),
            ),
            r"p1: line 3: a lane is not in 0-99999",
        ),
        "a lane before the first": (
            changed(SENDS, SENT, put("p2", 1, sent=[[0, 5, 9], [-1, 0, 4]])),
            r"p2: line 5: a lane is not in 0-99999",
        ),
        "sequences of the next lane": (
            changed(SENDS, SENT, put("p2", 2, sent=[[0, 10, 14], [0, 10**12, 10**12 + 4]])),
            r"p2: line 7: a sequence is not in 0-999999999999",
        ),
        "a sequence before the first": (
            changed(SENDS, SENT, put("p2", 2, sent=[[0, 10, 14], [1, -5, -1]])),
            r"p2: line 7: a sequence is not in",
        ),
        "a producer": (
            changed(f"{OTHER}{SENDS}", {"a": "p2:0-14", "b": "p3:0-4 ."}, declare("p3", 2, producer=10**6)),
            r"p3: line 3: producer 1000000 is not in 0-999999",
        ),
    },
    "a producer declared with other settings": {
        "idempotence was added": (
            changed(
                f"{OTHER}p2 send ok a:0-4\n p2 send ok a:5-9",
                {"a": "p2:0-4 p2:0-4 p2:5-9", "b": "p3:0-4 ."},
                declare("p2", 4, idempotent=True),
                settings={"p2": {"transactional_id": None, "idempotent": False}},
            ),
            r"p2: line 5: producer 2 is declared again with another value of idempotent than in line 2",
        ),
        "acks were changed": (
            changed(SENDS, {"a": "p2:0-3 p2:5-14"}, declare("p2", 4, acks="1", idempotent=False)),
            r"p2: .*declared again with another value of idempotent, acks",
        ),
        "a lane has another partition": (
            changed(SENDS, {"a": "p2:0-4", "b": "p2a:5-14"}, declare("p2", 4, lanes=[["t", 1]])),
            r"p2: .*declared again with another value of the partition of a lane",
        ),
        "a transactional id was changed": (
            changed(TXNS, READ, declare("p1", 4, transactional_id="other")),
            r"p1: .*another value of transactional_id",
        ),
    },
    "compacted topics": {
        "a record of a compacted topic is gone": (
            Tiny(SENDS, {"a": "p2:0-3 p2:5-14"}, PLAIN, expect=Expect(compacted=["t"])),
            r"reader-all did not read 1 committed records of compacted topics",
        ),
        "a record that a reader was given": (
            Tiny(
                f"{SENDS}\n r1 read a@4 p2:4",
                {"a": "p2:0-3 . p2:5-14"},
                PLAIN,
                expect=Expect(compacted=["t"]),
            ),
            r"1 committed records of compacted topics",
        ),
        "part of a transaction": (
            Tiny(
                "p1 commit ok i:0-4 a:0-4", {"i": "p1:0-4 .", "a": "p1:3-4 ."}, expect=Expect(compacted=["t"])
            ),
            r"3 committed records of compacted topics",
        ),
    },
    "one sequence in several sends": {
        "the application sent it again, later": (
            changed("p2 send ok a:0-4\n p2 send ok a:5-9\n p2 send ok a:3-3", {"a": "p2:0-9"}),
            r"lane 0: sequence 3 was sent by two operations",
        ),
        "once without success": (
            changed("p2 send ok a:0-4\n p2 send fail a:5-9\n p2 send ok a:8-12", {"a": "p2:0-4 p2:8-12"}),
            r"lane 0: sequence 8 was sent by two operations",
        ),
        "once in a transaction that was aborted": (
            Tiny(
                "p1 commit ok a:0-4\n p1 abort ok a:4-9\n p1 commit ok a:10-11",
                {"a": "p1:0-4 . . p1:10-11 ."},
            ),
            r"lane 0: sequence 4 was sent by two operations",
        ),
    },
    "delivery reports": {
        "both delivered and failed": (
            Tiny("p2 send ok a:0-4\n p2 send info a:5-9 +a:5-7 -a:7-9", {"a": "p2:0-6"}, PLAIN),
            r"p2: line 5: a record is reported both as delivered and as failed",
        ),
        "of records that the request does not list": (
            Tiny("p2 send ok a:0-4\n p2 send info a:5-9 +a:5-11", {"a": "p2:0-9"}, PLAIN),
            r"p2: line 6: an acknowledgement of records that its request does not list",
        ),
        "of another lane": (
            Tiny("p2 send ok a:0-4 +b:0-4", {"a": "p2:0-4"}, PLAIN),
            r"p2: line 4: an acknowledgement of records that its request does not list",
        ),
    },
}

UNKNOWN: dict[str, Tiny] = {
    f"{kind}: {label}": case for kind, cases in KINDS.items() for label, (case, _) in cases.items()
}

CAUGHT: dict[str, dict[str, tuple[Tiny, set[str]]]] = {
    "lost": {
        "of a client whose history is whole, besides one with a gap": (
            changed(f"{OTHER}{SENDS}", {"a": "p2:0-14", "b": "p3:0-3"}, drop("p2", 1)),
            {"lost", "torn_transaction"},
        ),
        "committed in a history with a gap": (
            changed(SENDS, {"a": "p2:0-3 p2:5-14"}, drop("p2", 1)),
            {"lost"},
        ),
        "acknowledged before a gap in its lane": (
            changed("p2 send ok a:0-4\n p2 send ok a:8-9", {"a": "p2:0-3 p2:8-9"}),
            {"lost"},
        ),
        "acknowledged in a report over two intervals": (
            changed(
                "p2 send info a:0-9 +a:0-9", {"a": "p2:0-6 p2:8-9"}, put("p2", 0, sent=[[0, 0, 4], [0, 5, 9]])
            ),
            {"lost"},
        ),
        "of a topic that is not compacted, besides one that is": (
            Tiny(
                "p1 commit ok i:0-4 a:0-4",
                {"i": "p1:0-3 . .", "a": "p1:0-4 ."},
                expect=Expect(compacted=["t"]),
            ),
            {"lost", "torn_transaction"},
        ),
        "sent by two operations that both succeeded": (
            changed("p2 send ok a:0-4\n p2 send ok a:4-9", {"a": "p2:0-3 p2:5-9"}),
            {"lost"},
        ),
    },
    "phantom": {
        "in a gap of a lane, in a history with all its operations": (
            changed("p2 send ok a:0-4\n p2 send ok a:8-9", {"a": "p2:0-9"}),
            {"phantom"},
        ),
        "before the beginning of a lane": (changed("p2 send ok a:3-9", {"a": "p2:0-9"}), {"phantom"}),
        "of a whole history, besides one with a gap": (
            changed(f"{OTHER}{SENDS}", {"a": "p2:0-14", "b": "p3:0-6"}, drop("p2", 1)),
            {"phantom"},
        ),
    },
    "aborted_read": {
        "abandoned, without a commit": (
            Tiny("p1 commit ok a:0-4\n p1 abandon ok a:5-9", {"a": "p1:0-4 . p1:5-9"}),
            {"aborted_read"},
        ),
        "abandoned after a commit that certainly failed": (
            Tiny(
                "p1 commit ok a:0-4\n p1 commit fail again a:5-9\n p1 abandon ok a:5-9",
                {"a": "p1:0-4 . p1:5-9"},
            ),
            {"aborted_read"},
        ),
        "abandoned after an abort that certainly succeeded": (
            Tiny(
                "p1 commit ok a:0-4\n p1 commit info again a:5-9\n p1 abort ok again a:5-9\n"
                "p1 abandon ok a:5-9",
                {"a": "p1:0-4 . p1:5-9"},
            ),
            {"aborted_read"},
        ),
        "aborted in a history with a gap": (
            changed("p1 commit ok a:0-4\n p1 begin ok\n p1 abort ok a:5-9", {"a": "p1:0-9"}, drop("p1", 1)),
            {"aborted_read"},
        ),
    },
    "torn_transaction": {
        "abandoned after an unclear commit": (
            Tiny(
                "p1 commit ok a:0-4\n p1 commit info again a:5-9\n p1 abandon ok a:5-9",
                {"a": "p1:0-4 . p1:5-7"},
            ),
            {"torn_transaction"},
        ),
        "a transaction of a producer without a transactional id": (
            Tiny("p2 commit ok a:0-4\n p2 commit info a:5-9", {"a": "p2:0-4 . p2:5-7"}, PLAIN),
            {"torn_transaction"},
        ),
        "of a whole history, besides one with a gap": (
            changed(
                f"{OTHER}p3 commit info b:5-9\n{SENDS}",
                {"a": "p2:0-14", "b": "p3:0-4 . p3:5-7"},
                drop("p2", 1),
            ),
            {"torn_transaction"},
        ),
    },
    "duplicate": {
        "in a history with a gap": (changed(SENDS, {"a": "p2:0-14 p2:3"}, drop("p2", 1)), {"duplicate"})
    },
    "poll_skip": {
        "inside one poll, in a history with a gap": (
            changed(
                f"{TXNS}\n r1 read a@0 p1:0-4\n r1 read a@6 p1:5 a@8 p1:7-9",
                {"a": "p1:0-4 . p1:5-9 . p1:10-14 ."},
                drop("r1", 0),
            ),
            {"poll_skip"},
        )
    },
}

NEAR_MISSES: dict[str, dict[str, Tiny]] = {
    "aborted_read": {
        "abandoned after an unclear commit that took effect": Tiny(
            "p1 commit ok a:0-4\n p1 commit info again a:5-9\n p1 abandon ok a:5-9",
            {"a": "p1:0-4 . p1:5-9 ."},
        ),
        "abandoned after an unclear commit that took no effect": Tiny(
            "p1 commit ok a:0-4\n p1 commit info again a:5-9\n p1 abandon ok a:5-9",
            {"a": "p1:0-4 . . . . . . ."},
        ),
        "abandoned after a commit without an answer": Tiny(
            "p1 commit ok a:0-4\n p1 commit none again a:5-9\n p1 abandon ok a:5-9",
            {"a": "p1:0-4 . p1:5-9 ."},
        ),
        "the numbers of the transactions have gaps": changed(TXNS, READ, put("p1", 2, txn=9)),
        "a transaction whose end was requested three times": Tiny(
            "p1 commit info again a:0-4\n p1 commit info again a:0-4\n p1 commit ok a:0-4\n"
            "p1 commit ok a:5-9",
            {"a": "p1:0-4 . p1:5-9 ."},
        ),
        "a transaction whose second request lists nothing": Tiny(
            "p1 begin ok\n p1 commit info again a:0-4\n p1 commit ok\n p1 commit ok a:5-9",
            {"a": "p1:0-4 . p1:5-9 ."},
        ),
    },
    "lost": {
        "answers in another order than the requests": changed(
            SENDS,
            SENT,
            drop("p2", 0, "ok"),
            drop("p2", 1, "ok"),
            answer("p2", 1, "ok", "send"),
            answer("p2", 0, "ok", "send"),
        ),
        "requests in another order than their numbers": changed(SENDS, SENT, renumber("p2", {0: 2, 2: 0})),
        "a request without an answer at the end": Tiny(
            "p2 send ok a:0-4\n p2 send none a:5-9", {"a": "p2:0-6"}, PLAIN
        ),
        "failed and unclear sends fill the lane": Tiny(
            "p2 send ok a:0-4\n p2 send fail a:5-6\n p2 send info a:7-9 -a:8\n p2 send ok a:10-14",
            {"a": "p2:0-4 p2:7 p2:10-14"},
            PLAIN,
        ),
        "aborted and abandoned transactions fill the lane": Tiny(
            "p1 abort ok a:0-4\n p1 abandon ok a:5-9\n p1 commit ok a:10-14", {"a": ". . . . . p1:10-14 ."}
        ),
        "an open transaction at the end": Tiny(
            "p1 commit ok a:0-4\n p1 begin ok", {"a": "p1:0-4 . . . . . ."}
        ),
        "a beginning without records in the middle": Tiny(
            "p1 begin ok\n p1 abort ok\n p1 commit ok a:0-4", {"a": "p1:0-4 ."}
        ),
        "an unusual operation": changed(SENDS, SENT, rename("p2", 1, "send")),
        "a report over two intervals of an unclear send": changed(
            "p2 send info a:0-9 +a:0-9", {"a": "p2:0-9"}, put("p2", 0, sent=[[0, 0, 4], [0, 5, 9]])
        ),
        "a report over the border of two intervals": changed(
            "p2 send info a:0-9 +a:3-6", {"a": "p2:3-6"}, put("p2", 0, sent=[[0, 0, 4], [0, 5, 9]])
        ),
        "a failed report over two intervals": changed(
            "p2 send ok a:0-4\n p2 send info a:5-14 -a:7-12",
            {"a": "p2:0-4 p2:5-6 p2:13"},
            put("p2", 1, sent=[[0, 5, 9], [0, 10, 14]]),
        ),
        "a compacted topic that is whole": Tiny(SENDS, SENT, PLAIN, expect=Expect(compacted=["t"])),
        "a compacted topic that is whole, with a transaction": Tiny(
            "p1 commit ok i:0-4 a:0-4", {"i": "p1:0-4 .", "a": "p1:0-4 ."}, expect=Expect(compacted=["t"])
        ),
        "an unclear record of a compacted topic": Tiny(
            "p2 send ok a:0-4\n p2 send info a:5-9", {"a": "p2:0-4"}, PLAIN, expect=Expect(compacted=["t"])
        ),
    },
    "duplicate": {
        "a producer declared again with one more lane": changed(
            SENDS,
            SENT,
            declare("p2", 4, lanes=[*map(list, [("t", 0), ("t", 1), ("in", 0), ("out", 0), ("t", 2)])]),
        ),
        "a producer declared again with fewer lanes": changed(
            SENDS, SENT, declare("p2", 4, lanes=[["t", 0]])
        ),
        "a producer declared twice in the same way": changed(SENDS, SENT, declare("p2", 4)),
    },
    "phantom": {
        "a transaction that began, and of which nothing was sent": Tiny(
            "p1 commit ok a:0-4\n p1 begin none", {"a": "p1:0-4 ."}
        ),
        "the same sequences of two producers": Tiny(
            "p1 commit ok a:0-4\n p3 commit ok a:0-4", {"a": "p1:0-4 . p3:0-4 ."}
        ),
        "the same sequences of two lanes": Tiny(
            "p1 commit ok a:0-4 b:0-4", {"a": "p1:0-4 .", "b": "p1:0-4 ."}
        ),
        "a send that is listed in two parts": changed(SENDS, SENT, put("p2", 1, sent=[[0, 5, 6], [0, 7, 9]])),
    },
}
