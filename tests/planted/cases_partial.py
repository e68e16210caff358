"""Planted cases: evidence of which a part is missing, or that proves less than it seems to.

Idle readers, faults that met idle polls only, clocks of other hosts, clients without a history, lines of two
processes in one history, and stored logs that are cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.observation import Window
from harness.evidence.stored_logs import StoredLogs
from tests.planted.cases_guards import fault_elsewhere
from tests.planted.cases_witnesses import FIVE_OF_TEN, STEPS, Pair
from tests.planted.tiny import ChangedLines, Line, Tiny, pipeline

ELSEWHERE = {"p1": {"clock": "elsewhere"}}
PLAIN: dict[str, dict[str, Any]] = {"p2": {"transactional_id": None}}
FIVE = {"a": "p1:0-4 ."}
SENT = "@1-2 p1 commit ok a:0-4\n "
TWO = {"a": "p1:0-4 .", "b": "p3:0-4 ."}
OTHER = "@1-2 p3 commit ok b:0-4\n "
FAULT = "@20 fault f1 intent\n @21 fault f1 bite\n @30 fault f1 healed\n "
BUSY = "@19-31 p3 commit ok b:0-4\n "
"""Work that the fault meets, on the clock of the fault."""
SLOW = "@1010-1090 p1 commit ok a:0-4\n "
"""A commit of 80 s, longer than the limit of 60 s."""
LISTED = "@3 p1 close\n client p1 stopped\n "
READER = "@3 r1 assign a@0\n "
POLLS = "@4 r1 read\n @5 r1 read\n @9 r1 close\n "
"""Two polls that returned no record, and the end of the reader."""


def second_opening(lines: dict[str, list[Line]]) -> None:
    lines["p1"].insert(2, lines["p1"][0])


def only_opened(lines: dict[str, list[Line]]) -> None:
    """Remove all lines of p3 except the first."""
    lines["p3"] = lines["p3"][:1]


def without_declaration(lines: dict[str, list[Line]]) -> None:
    lines["p3"] = [line for line in lines["p3"] if line["type"] in ("open", "close")]


def cut(operations: int) -> ChangedLines:
    """Return a change that keeps only the first operations of the only client, and not its closing line."""

    def change(lines: dict[str, list[Line]]) -> None:
        name = next(name for name in lines if name.startswith("p"))
        kept = [line for line in lines[name] if line["type"] != "close" and line.get("op", 0) < operations]
        lines[name] = kept

    return change


SENDS = "p2 send ok a:0-4\n p2 send ok a:5-9\n p2 send ok a:10-14\n p2 close\n "
TXNS = "p1 begin ok\n p1 commit ok a:0-4\n p1 begin ok\n p1 commit ok a:5-9\n p1 close\n "
CRASHED = (
    "@1 fault f1 intent crash_client p1\n @2 fault f1 bite crash_client p1\n"
    "@60 fault f1 healed crash_client p1\n"
    "client p1 crash f1"
)


def first_poll_again(lines: dict[str, list[Line]]) -> None:
    """Let r1 poll once more directly behind its first poll, which then has no answer."""
    at = next(i for i, line in enumerate(lines["r1"]) if line.get("f") == "poll")
    for line in lines["r1"][at + 1 :]:
        line["op"] = line["op"] + 1 if "op" in line else 0
    lines["r1"].insert(at + 1, {**lines["r1"][at], "op": lines["r1"][at]["op"] + 1})


MARKED = Expect(witnesses=["reader-all", "raw-log"])
RAW = {"a": "p1:0-4 C1"}
RAW_OF_TWO = {"a": "p1:0-4 C1", "b": "p3:0-4 C3"}


@dataclass
class Stored(Tiny):
    """A case with stored logs of which a part may be missing."""

    without_logs: bool = False
    partitions: int | None = None
    """Number of partitions of which there is a log; None for all."""
    cut: int = 0
    """Number of batches that are missing at the end of the first partition's log."""
    complete_from: int = 0
    markers: bool = True
    """Whether the raw log has a table of markers."""

    def evidence(self) -> Evidence:
        evidence = super().evidence()
        if not self.markers:
            next(view for view in evidence.observations if view.meta.kind == "raw").markers = None
        evidence.logs = None if self.without_logs else self._logs(evidence.logs)
        return evidence

    def _logs(self, logs: StoredLogs | None) -> StoredLogs | None:
        if logs is None:
            return None
        del logs.partitions[len(logs.partitions) if self.partitions is None else self.partitions :]
        if self.cut:
            del logs.partitions[0].batches[-self.cut :]
        logs.coordinators[0].complete_from = self.complete_from
        return logs


def stored(history: str, log: dict[str, str], raw: dict[str, str], decided: str, **fields: Any) -> Stored:
    audit = fields.pop("expect", MARKED)
    return Stored(history, log, raw=raw, decided=decided, expect=audit, **fields)


DECIDED = "@5.5 C1 a"
DECIDED_TWO = "@5.5 C1 a\n @5.5 C3 b"
TORN_OFF = "p1 commit ok a:0-1\n p1 commit ok a:2-3"
TORN_LOG = {"a": "p1:0-1 . p1:2-3 ."}
TORN_RAW = {"a": "p1:0-1 C1 p1:2-3 C1"}
CUT_STATES = ["__transaction_state-0: read up to 4 of 9"]


def lower_end(view: Any) -> None:
    """Let a witness have read less than the end that it captured."""
    window: Window = view.meta.windows[0]
    window.lso = window.read_to + 3


def more_repeats(view: Any) -> None:
    """Let a witness have one more window, without any record, and count repeated records."""
    view.meta.windows.append(Window(topic="t", partition=1, start=0, lso=0, hw=0, read_to=0))
    view.meta.repeats.count = 3


def more_windows(view: Any) -> None:
    view.meta.windows.append(Window(topic="t", partition=1, start=0, lso=0, hw=0, read_to=0))


UNKNOWN: dict[str, Tiny] = {
    # Times of another host.
    "slow while a fault was active on another host": Tiny(OTHER + SLOW + FAULT + BUSY, TWO, ELSEWHERE),
    "slow long after a fault of another host": Tiny(
        "@1000-1020 p3 commit ok b:0-4\n @1005 fault f1 intent\n @1006 fault f1 bite\n"
        "@1007 fault f1 healed\n @10-900 p1 commit ok a:0-4",
        TWO,
        ELSEWHERE,
    ),
    "a poll that hung, and a fault of another host": Tiny(
        SENT + "@3-4 r1 read a@0 p1:0-4\n @5 r1 poll\n @700 r1 close\n" + FAULT + BUSY,
        TWO,
        {"r1": {"clock": "elsewhere"}},
    ),
    "an end that stays behind, and a fault of another host": Tiny(
        SENT + "@3 look a 6/6\n @4 look a 6/9\n @400 look a 6/9", FIVE, hw={"a": 9}, change=fault_elsewhere
    ),
    # Lines of two processes in one history.
    "a second opening line": Tiny(
        SENT + "p1 commit ok a:5-6", {"a": "p1:0-4 . p1:5-6 ."}, change=second_opening
    ),
    "operations behind the closing line": Tiny(
        SENT + "p1 close\n p1 commit ok a:5-6", {"a": "p1:0-4 . p1:5-6 ."}
    ),
    "a closing line in the middle and at the end": Tiny(
        SENT + "p1 close\n p1 commit ok a:5-6\n p1 close", {"a": "p1:0-4 . p1:5-6 ."}
    ),
    # Clients without a history.
    "records of a listed client without a history": Tiny(SENT + LISTED + "client p3 stopped", TWO),
    "records of a listed client whose history is cut behind its first line": Tiny(
        SENT + OTHER + LISTED + "client p3 stopped", TWO, change=only_opened
    ),
    "late records of a listed client without a history": Tiny(
        SENT + LISTED + "client p3 stopped", {"a": "p1:0-4 .", "b": "p3:1 p3:0 ."}
    ),
    "a history of a client that finished is cut behind a send": Tiny(
        SENDS + "client p2 stopped", {"a": "p2:0-14"}, PLAIN, change=cut(2)
    ),
    "a history of a client that finished is cut behind a begin": Tiny(
        TXNS + "client p1 stopped", {"a": "p1:0-4 . p1:5-9 ."}, change=cut(3)
    ),
    "a history of a client that finished is cut, and its last transaction has no begin": Tiny(
        TXNS + "client p1 stopped", {"a": "p1:0-4 . p1:5-9 ."}, change=cut(2)
    ),
    "a position that a listed client without a history may have written": Tiny(
        STEPS
        + "@10 group i:7\n p1 close\n p9 close\n client p1 stopped\n client p9 stopped\n client p8 stopped",
        {"i": "p1:0-9 .", "o": FIVE_OF_TEN},
        expect=pipeline(),
        consumed=5,
    ),
    "records that a listed reader without a history may have been given": Tiny(
        SENT
        + "@3 r1 assign a\n @4 r1 read a@3 p1:3-4\n @5 r1 caught-up a@6\n r1 close\n"
        + LISTED
        + "client r1 stopped\n client r2 stopped",
        FIVE,
        {"r1": {"group": "g"}},
    ),
    "a poll without an answer, and another one after it": Tiny(
        SENT + "@3 r1 assign a@0\n @4 r1 poll\n @5 r1 read a@3 p1:3-4\n @6 r1 caught-up a@6",
        FIVE,
        change=first_poll_again,
    ),
    # Readers that were given nothing.
    "a reader that was given nothing": Tiny(SENT + READER + POLLS, FIVE),
    "a group that was given nothing": Tiny(SENT + "@3 r1 assign a\n " + POLLS, FIVE, {"r1": {"group": "g"}}),
    "a reader that was given nothing, beside one that was given all": Tiny(
        SENT + READER + POLLS + "@3 r2 assign a@0\n @4 r2 read a@0 p1:0-4\n @5 r2 caught-up a@6", FIVE
    ),
    "a reader that claims an end without an assignment or a record": Tiny(
        SENT + "@4 r1 caught-up a@6\n @4 r2 read a@0 p1:0-4", FIVE
    ),
    # Faults that met nothing but idle readers.
    "a fault after the last operation, and a reader that polls on": Tiny(
        SENT + "@3 r1 read a@0 p1:0-4\n" + FAULT + "@19 r1 read\n @22 r1 read\n @28 r1 read\n", FIVE
    ),
    "a fault before the first operation, and a reader that polls": Tiny(
        FAULT + "@22 r1 read\n @28 r1 read\n @41-42 p1 commit ok a:0-4\n @45 r1 read a@0 p1:0-4", FIVE
    ),
    "a fault that met only the note that a reader has caught up": Tiny(
        SENT + "@3 r1 assign a@0\n @4 r1 read a@0 p1:0-4\n" + FAULT + "@25 r1 caught-up a@6", FIVE
    ),
    "a fault injected twice instead of two faults": Tiny(
        "@1-60 p1 commit ok a:0-4\n" + FAULT + FAULT.replace("@2", "@4").replace("@3", "@5"),
        FIVE,
        expect=Expect(faults=2),
    ),
    "a bite measured after the heal": Tiny(
        "@1-60 p1 commit ok a:0-4\n @20 fault f1 intent\n @21 fault f1 healed\n @30 fault f1 bite", FIVE
    ),
    "a fault with a bite and without one": Tiny(
        "@1-60 p1 commit ok a:0-4\n" + FAULT + "@25 fault f1 no_bite", FIVE
    ),
    # Witnesses.
    "a complete witness that read less than its end": Pair(SENT, FIVE, changes=(lower_end,)),
    "other repeats, and one more partition without records": Pair(SENT, FIVE, changes=(more_repeats,)),
    "a promised raw log without a table of markers": Stored(
        SENT, FIVE, raw=RAW, expect=MARKED, markers=False, without_logs=True
    ),
    # Stored logs.
    "no stored log of any partition": stored(SENT, FIVE, RAW, DECIDED, partitions=0),
    "no stored log of one partition": stored(SENT + OTHER, TWO, RAW_OF_TWO, DECIDED_TWO, partitions=1),
    "a stored log that is cut": stored(SENT, FIVE, RAW, DECIDED, cut=1),
    "no state of one producer": stored(SENT + OTHER, TWO, RAW_OF_TWO, DECIDED),
    "the stored logs are missing": stored(
        SENT, FIVE, RAW, "", expect=msgspec.structs.replace(MARKED, audit=True), without_logs=True
    ),
    "the last decision is missing, because the coordinator's log was not read to its end": stored(
        TORN_OFF, TORN_LOG, TORN_RAW, "@2.5 C1 a", unread=CUT_STATES
    ),
}

CAUGHT: dict[str, dict[str, Tiny]] = {
    "stalled": {
        "slow-after-a-fault-of-its-own-host": Tiny(OTHER + FAULT + "@25-1090 p1 commit ok a:0-4", TWO),
        "slow-on-another-host-in-a-run-without-faults": Tiny(OTHER + SLOW, TWO, ELSEWHERE),
    },
    "hanging_transaction": {
        "on-another-host-in-a-run-without-faults": Tiny(
            SENT + "@2 look a 6/9\n @400 look a 6/9", {"a": "p1:0-4 ."}, {"oracle": {"clock": "elsewhere"}}
        )
    },
    "phantom": {
        "of-a-producer-that-is-not-in-the-list": Tiny(SENT + LISTED, TWO),
        "of-a-listed-client-that-finished-without-a-declaration": Tiny(
            SENT + OTHER + "@3 p3 close\n" + LISTED + "client p3 stopped", TWO, change=without_declaration
        ),
        "behind-the-last-line-of-a-client-that-a-fault-crashed": Tiny(
            "p1 commit ok a:0-4\n p1 commit ok a:5-9\n" + CRASHED, {"a": "p1:0-4 . p1:5-9 ."}, change=cut(1)
        ),
    },
    "undecided_marker": {
        "before-the-end-of-a-coordinators-log-that-was-cut": stored(
            TORN_OFF + "\n p1 commit ok b:0-1",
            {**TORN_LOG, "b": "p1:0-1 ."},
            {**TORN_RAW, "b": ". . . . . . . p1:0-1 C1".replace(". ", "")},
            "@2.5 C1 a\n @9.5 C1 b",
            unread=CUT_STATES,
        )
    },
}

NEAR_MISSES: dict[str, dict[str, Tiny]] = {
    "stalled": {
        "quick, although a fault of another host was active": Tiny(
            OTHER + "@1010-1060 p1 commit ok a:0-4\n" + FAULT + BUSY.replace("b:0-4", "b:5-9"),
            {**TWO, "b": "p3:0-4 . p3:5-9 ."},
            ELSEWHERE,
        ),
        "slow while a fault of its own host was active": Tiny(
            OTHER + "@25-89 p1 commit ok a:0-4\n" + FAULT, TWO
        ),
        "slow while faults of its own host were active, the second in another file": Tiny(
            OTHER
            + "@21-110 p1 commit ok a:0-4\n @20 fault f1 intent\n @21 fault f1 bite\n @60 fault f1 healed",
            TWO,
        ),
    },
    "unseen": {
        "a reader that a fault ended at once": Tiny(
            SENT
            + READER
            + "@4 r1 read\n @5 r1 close\n @3 r2 assign a@0\n @4 r2 read a@0 p1:0-4\n @9 r2 close\n"
            "@4 fault f1 intent retire_client r1\n @5 fault f1 bite retire_client r1\n"
            "@6 fault f1 healed retire_client r1\n @4-6 p3 commit ok b:0-4\n @7 p3 close\n"
            + LISTED
            + "client p3 stopped\n client r1 retire f1\n client r2 stopped",
            TWO,
        ),
        "a reader of a partition without a record": Tiny(
            SENT + "@3 r1 assign b@0\n " + POLLS + "@4 r2 read a@0 p1:0-4", {**FIVE, "b": ""}
        ),
        "a member that was given nothing, because another one was given all": Tiny(
            SENT + "@3 r1 assign a\n @4 r1 revoke a\n @4 r1 read\n @4 r2 assign a\n @5 r2 read a@0 p1:0-4\n"
            "@9 r1 close\n @9 r2 close",
            FIVE,
            {"r1": {"group": "g"}, "r2": {"group": "g"}},
        ),
    },
    "poll_skip": {
        "a fault while a reader reads a backlog": Tiny(SENT + FAULT + "@22 r1 read a@0 p1:0-4", FIVE),
        "a fault that blocks a reader with a backlog": Tiny(
            SENT + FAULT + "@19 r1 read\n @22 r1 read\n @33 r1 read a@0 p1:0-4", FIVE
        ),
        "the last poll has no answer": Tiny(
            SENT + "@3 r1 assign a@0\n @4 r1 read a@0 p1:0-4\n @5 r1 poll\n @6 r1 close", FIVE
        ),
        "a fault while a poll has no answer": Tiny(
            SENT + "@3-4 r1 read a@0 p1:0-4\n @19 r1 poll\n @31 r1 close\n" + FAULT, FIVE
        ),
    },
    "duplicate": {"one more partition without records": Pair(SENT, FIVE, changes=(more_windows,))},
    "undecided_marker": {
        "whole stored logs": stored(
            SENT + OTHER, TWO, RAW_OF_TWO, DECIDED_TWO, expect=msgspec.structs.replace(MARKED, audit=True)
        ),
        "no state of one producer, and a coordinator's log that was compacted": stored(
            SENT + OTHER, TWO, RAW_OF_TWO, "@5.1 C1 a\n @5.2 C1 a\n @5.5 C1 a", complete_from=1
        ),
        "a run that stores no logs": Stored(SENT, FIVE, raw=RAW, expect=MARKED, without_logs=True),
    },
}
