"""Planted cases: histories whose closing lines count the lines, and from which lines are missing.

Without the count, the histories of most of these cases look whole.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.evidence.checkers.model import Expect
from tests.planted.tiny import ChangedLines, Line, Tiny

PLAIN = {"p2": {"transactional_id": None}}
LOG = {"a": "p2:0-14"}
SENDS = "p2 send ok a:0-4\n p2 send ok a:5-9\n p2 send ok a:10-14\n p2 close\n "
TXNS = "p1 init ok\n p1 commit ok a:0-4\n p1 commit ok a:5-9\n p1 close\n "
TXN_LOG = {"a": "p1:0-4 . p1:5-9 ."}
FAULT = "@20 fault f1 intent\n @21 fault f1 bite\n @30 fault f1 healed\n "
LONG = "@10-85 p1 commit ok a:0-4\n @90 p1 close\n "
READS = "r1 assign a@0\n r1 read a@0 p2:0-9\n r1 read a@10 p2:10-14\n r1 caught-up a@15\n r1 close\n "
COUNTED = Expect(counted=True)


def count(lines: dict[str, list[Line]]) -> None:
    """Let each closing line count the lines of its history."""
    for history in lines.values():
        for line in history:
            if line["type"] == "close":
                line["lines"] = len(history)


def without(who: str, *wanted: Callable[[Line], bool] | str) -> ChangedLines:
    """Return a change that counts the lines of all histories, and then removes some lines of one history.

    A text means the lines with this type or operation.
    """

    def is_wanted(line: Line) -> bool:
        return any(
            line["type"] == one or line.get("f") == one if isinstance(one, str) else one(line)
            for one in wanted
        )

    def change(lines: dict[str, list[Line]]) -> None:
        count(lines)
        lines[who] = [line for line in lines[who] if not is_wanted(line)]

    return change


def last_operation(line: Line) -> bool:
    return bool(line.get("op") == 2)


def last_answer(line: Line) -> bool:
    return last_operation(line) and line["type"] == "ok"


def one_more(lines: dict[str, list[Line]]) -> None:
    """Count the lines, and add one more sample to the history of the observer."""
    count(lines)
    lines["oracle"].insert(1, lines["oracle"][1])


def of_faults(lines: dict[str, list[Line]]) -> None:
    """Move the lines about faults into a history of their own, which then lacks them."""
    opening = {**lines["oracle"][0], "client": "faults", "role": "faults"}
    lines["oracle"] = [line for line in lines["oracle"] if line["type"] != "fault"]
    lines["faults"] = [
        opening,
        {"type": "close", "reason": "done", "lines": 5, "mono": 91 * 10**9, "wall": 0},
    ]


def second_declaration(lines: dict[str, list[Line]]) -> None:
    """Let p2 declare its second lane only later, count the lines, and remove this declaration."""
    declared = lines["p2"][1]
    lines["p2"].insert(3, declared)
    lines["p2"][1] = {**declared, "lanes": declared["lanes"][:1]}
    count(lines)
    del lines["p2"][3]


CAUGHT = {
    "lost": {
        "in-a-whole-history": Tiny(SENDS, {"a": "p2:0-9"}, PLAIN, expect=COUNTED, change=count),
        "and-a-sample-is-missing": Tiny(
            SENDS + "@5 look a 10/10\n @6 oracle close",
            {"a": "p2:0-9"},
            PLAIN,
            expect=COUNTED,
            change=without("oracle", "sample"),
        ),
    },
    "duplicate": {
        "in-a-whole-history": Tiny(SENDS, {"a": "p2:0-14 p2:3"}, PLAIN, expect=COUNTED, change=count)
    },
    "phantom": {
        "in-whole-histories": Tiny(SENDS, {"a": "p2:0-14 p7:3"}, PLAIN, expect=COUNTED, change=count)
    },
}
NEAR_MISSES = {
    "lost": {
        "the-lines-are-counted": Tiny(SENDS, LOG, PLAIN, expect=COUNTED, change=count),
        "a-history-of-an-earlier-release": Tiny(SENDS, LOG, PLAIN),
        "a-killed-client-counts-nothing": Tiny(
            "p2 send ok a:0-4\n @1 fault f1 intent crash_client p2\n @2 fault f1 bite crash_client p2\n"
            "@60 fault f1 healed crash_client p2\n client p2 crash f1",
            {"a": "p2:0-4"},
            PLAIN,
            expect=COUNTED,
            change=count,
        ),
    },
    "poll_skip": {
        "the-lines-of-a-reader-are-counted": Tiny(SENDS + READS, LOG, PLAIN, expect=COUNTED, change=count)
    },
}
UNKNOWN = {
    "the last send is missing": Tiny(SENDS, LOG, PLAIN, change=without("p2", last_operation)),
    "the answer to the last send is missing": Tiny(SENDS, LOG, PLAIN, change=without("p2", last_answer)),
    "the answer to the last commit is missing, and the client lived on": Tiny(
        TXNS.replace("p1 close", "@200 p1 close"), TXN_LOG, change=without("p1", last_answer)
    ),
    "the last commit is missing": Tiny(TXNS, TXN_LOG, change=without("p1", last_operation)),
    "the last poll of a reader is missing": Tiny(
        SENDS + READS, LOG, PLAIN, change=without("r1", last_operation, "caught_up")
    ),
    "the note that a reader has caught up is missing": Tiny(
        SENDS + READS, LOG, PLAIN, change=without("r1", "caught_up")
    ),
    "a sample is missing": Tiny(
        SENDS + "@5 look a 10/10\n @6 oracle close", LOG, PLAIN, change=without("oracle", "sample")
    ),
    "a sample is there twice": Tiny(SENDS + "@5 look a 10/10\n @6 oracle close", LOG, PLAIN, change=one_more),
    "all lines of a fault are missing": Tiny(
        SENDS + FAULT + "@31 oracle close", LOG, PLAIN, change=without("oracle", "fault")
    ),
    "all lines of a fault are missing, and a commit was slow because of it": Tiny(
        LONG + FAULT, {"a": "p1:0-4 ."}, change=of_faults
    ),
    "a report of a producer id is missing": Tiny(
        "p1 identity 1\n " + TXNS, TXN_LOG, change=without("p1", "identity")
    ),
    "the declaration of a further lane is missing": Tiny(
        "p2 send ok a:0-4\n p2 send ok b:0-4\n p2 close",
        {"a": "p2:0-4", "b": "p2:0-4"},
        PLAIN,
        change=second_declaration,
    ),
    "the declaration of a producer in the list of clients is missing": Tiny(
        SENDS + "client p2 stopped", LOG, PLAIN, change=without("p2", "producer")
    ),
    "a closing line does not count, although the run promised it": Tiny(SENDS, LOG, PLAIN, expect=COUNTED),
    "only one of two closing lines counts": Tiny(
        SENDS + "p1 commit ok b:0-4\n p1 close",
        {**LOG, "b": "p1:0-4 ."},
        PLAIN,
        expect=COUNTED,
        change=lambda lines: lines["p2"][-1].update(lines=len(lines["p2"])),
    ),
}
