"""Planted cases: slow answers on a machine that was too busy, and stalls that starvation does not explain."""

from __future__ import annotations

from typing import Any

from harness.evidence.checkers.model import Expect
from tests.planted.cases_contract import HISTORY, AppCase
from tests.planted.cases_statements import SqlCase
from tests.planted.tiny import SECOND, ChangedLines, Line, Tiny

ELSEWHERE = {"p1": {"clock": "elsewhere"}}
FIVE = {"a": "p1:0-4 ."}
TWO = {"a": "p1:0-4 .", "b": "p3:0-4 ."}
OTHER = "@1-2 p3 commit ok b:0-4\n "
SENT = "@1-2 p1 commit ok a:0-4\n "
SLOW = "@10-75 p1 commit ok a:0-4\n "
"""A commit of 65 s, longer than the limit of 60 s."""
STARVED = "0-76:400"
QUIET = {"oracle": ""}
PROMISED = Expect(lateness=True)
STOPPED = {"a": 10, "b": 5}
WAITED = f"{HISTORY}    @4 p1 close\n @70 oracle close\n"
"""The inputs, and a wait of 66 s for the application."""
HUNG = SENT + "@2 look a 6/9\n @85 look a 6/9"
"""A last stable offset that stays behind for 83 s, longer than the limit of 75 s."""
KILLED = "@2 p1 commit none a:0-4\n @3 p3 close\n client p3 stopped\n @70 client p1 killed"


def without_record(who: str, first: int, last: int) -> ChangedLines:
    """Return a change that removes the windows between two seconds from the record of a process."""

    def change(lines: dict[str, list[Line]]) -> None:
        lines[who] = [
            line
            for line in lines[who]
            if line["type"] != "lateness" or not first * SECOND <= line["since"] < last * SECOND
        ]

    return change


def wrong_record(**fields: Any) -> ChangedLines:
    """Return a change of the window of the run's own record in the second 20."""

    def change(lines: dict[str, list[Line]]) -> None:
        for line in lines["oracle"]:
            if line["type"] == "lateness" and line["since"] == 20 * SECOND:
                line.update(fields)

    return change


def starved(history: str, log: dict[str, str] | None = None, late: str = STARVED, **fields: Any) -> Tiny:
    """Return a case in which the run's own threads woke late."""
    return Tiny(history, log or FIVE, late={"oracle": late}, **fields)


CAUGHT = {
    "stalled": {
        "on-a-quiet-machine": Tiny(SLOW, FIVE, late=QUIET),
        "on-a-quiet-machine-according-to-both-records": Tiny(SLOW, FIVE, late={"oracle": "", "p1": ""}),
        "longer-than-starvation-explains": starved("@10-300 p1 commit ok a:0-4"),
        "longer-than-any-starvation-explains": starved("@10-1400 p1 commit ok a:0-4", late="0-1401:400"),
        "starved-before-the-request": starved(OTHER + "@80-145 p1 commit ok a:0-4", TWO, late="0-79:400"),
        "starved-after-the-answer": starved(SLOW + "@90-140 p3 commit ok b:0-4", TWO, late="76-140:400"),
        "starved-too-briefly": starved(SLOW, late="20-24:400"),
        "a-little-late-all-the-time": starved(SLOW, late="0-76:10"),
        "another-client-was-starved": Tiny(OTHER + SLOW, TWO, late={"oracle": "", "p1": "", "p3": STARVED}),
        "a-machine-with-another-clock-was-starved": Tiny(
            OTHER + SLOW, TWO, ELSEWHERE, late={"oracle": STARVED, "p1": ""}
        ),
        "an-init-on-a-quiet-machine": Tiny("@1-70 p1 init ok\n @71 p1 commit ok a:0-4", FIVE, late=QUIET),
        "no-answer-on-a-quiet-machine": Tiny("@2 p1 commit none a:0-4\n @70 p1 close", {"a": ""}, late=QUIET),
        "of-an-earlier-release-without-a-record": Tiny(SLOW, FIVE),
        "an-application-on-a-quiet-machine": (
            AppCase("p1a:0-9 p1b:0-4", consumed=STOPPED, history=WAITED, late=QUIET),
            {"stalled"},
        ),
        "an-application-that-ended-on-a-starved-machine": (
            AppCase(
                "p1a:0-9 p1b:0-4",
                consumed=STOPPED,
                history=WAITED,
                late={"oracle": STARVED},
                gave_up="it ended",
            ),
            {"stalled"},
        ),
        "starved-before-the-wait-for-the-application": (
            AppCase("p1a:0-9 p1b:0-4", consumed=STOPPED, history=WAITED, late={"oracle": "0-4:400"}),
            {"stalled"},
        ),
        "without-a-group-and-starved-before-the-wait": (
            AppCase(
                "p1a:0-9 p1b:0-4 p1a:12-14",
                group="",
                consumed=None,
                history=WAITED,
                late={"oracle": "0-4:400"},
            ),
            {"stalled"},
        ),
        "without-a-group-on-a-quiet-machine": (
            AppCase("p1a:0-9 p1b:0-4 p1a:12-14", group="", consumed=None, history=WAITED, late=QUIET),
            {"stalled"},
        ),
    },
    "hanging_transaction": {
        "on-a-quiet-machine": Tiny(HUNG, FIVE, late=QUIET),
        "longer-than-starvation-explains": starved(SENT + "@2 look a 6/9\n @300 look a 6/9"),
    },
}
NEAR_MISSES = {
    "stalled": {
        "in-time-on-a-starved-machine": starved("@10-65 p1 commit ok a:0-4"),
        "in-time-with-two-records": Tiny(
            "@10-65 p1 commit ok a:0-4", FIVE, late={"oracle": STARVED, "p1": STARVED}
        ),
        "an-application-in-time-on-a-starved-machine": AppCase(history=WAITED, late={"oracle": STARVED}),
        "slow-while-a-fault-was-active-on-a-starved-machine": starved(
            OTHER + "@10-75 p1 commit ok a:0-4\n @12 fault f1 intent\n @13 fault f1 bite\n"
            "@20 fault f1 healed",
            TWO,
        ),
    },
    "hanging_transaction": {
        "none-on-a-starved-machine": starved(SENT + "@2 look a 5/6\n @85 look a 6/6", late="0-86:400")
    },
}
UNKNOWN = {
    "a slow commit on a starved machine": starved(SLOW),
    "two slow commits on a starved machine": starved(SLOW + "@11-74 p3 commit ok b:0-4", TWO),
    "a slow commit of a starved client": Tiny(SLOW, FIVE, late={"oracle": "", "p1": STARVED}),
    "a slow commit on another host, whose client was starved": Tiny(
        OTHER + SLOW, TWO, ELSEWHERE, late={"oracle": "", "p1": STARVED}
    ),
    "a commit that starvation made a little too slow": starved(SLOW, late="20-30:400"),
    "a slow init on a starved machine": starved("@1-70 p1 init ok\n @71 p1 commit ok a:0-4"),
    "no answer on a starved machine": starved("@2 p1 commit none a:0-4\n @70 p1 close", {"a": ""}),
    "no answer to a poll on a starved machine": starved(
        SENT + "@3-4 r1 read a@0 p1:0-4\n @5 r1 poll\n @70 r1 close"
    ),
    "a client that did not stop on a starved machine": starved(OTHER + KILLED, {"b": "p3:0-4 ."}),
    "an end that stays behind on a starved machine": starved(HUNG, late="0-86:400"),
    "a slow commit, and no record although it was promised": Tiny(SLOW, FIVE, expect=PROMISED),
    "a slow commit, and no record of the client although it was promised": Tiny(
        SLOW, FIVE, late={"oracle": "", "p1": ""}, change=without_record("p1", 0, 999)
    ),
    "a slow commit, and a gap in the record": starved(SLOW, change=without_record("oracle", 20, 30)),
    "a slow commit, and the end of the record is missing": starved(
        SLOW, late="", change=without_record("oracle", 30, 999)
    ),
    "a slow commit, and a wrong window in the record": Tiny(
        SLOW, FIVE, late=QUIET, change=wrong_record(wakes=0)
    ),
    "a slow commit, and a window without time": Tiny(
        SLOW, FIVE, late=QUIET, change=wrong_record(since=21 * SECOND)
    ),
    "a slow commit, and a window later than it is long": Tiny(
        SLOW, FIVE, late=QUIET, change=wrong_record(largest=2 * SECOND, total=2 * SECOND)
    ),
    "quick commits, and a window without a wake": Tiny(
        SENT + "@40 p3 commit ok b:0-4", TWO, late=QUIET, change=wrong_record(wakes=0, largest=0, total=0)
    ),
    "quick commits, and no record of a client that was closed": Tiny(
        SENT + "@3 p1 close", FIVE, late={"oracle": "", "p1": ""}, change=without_record("p1", 0, 999)
    ),
    "quick commits, and no record although it was promised": Tiny(SENT, FIVE, expect=PROMISED),
    "quick commits, and a gap in the record": starved(
        SENT + "@40 p3 commit ok b:0-4", TWO, change=without_record("oracle", 20, 30)
    ),
    "an application that did not finish on a starved machine": AppCase(
        "p1a:0-9 p1b:0-4", consumed=STOPPED, history=WAITED, late={"oracle": STARVED}
    ),
    "an application without a group that did not finish on a starved machine": AppCase(
        "p1a:0-9 p1b:0-4 p1a:12-14", group="", consumed=None, history=WAITED, late={"oracle": "60-66:400"}
    ),
    "an aggregate of an application that did not finish on a starved machine": SqlCase(
        "", verb="is", consumed=STOPPED, tokens=False, history=WAITED, late={"oracle": STARVED}
    ),
}
