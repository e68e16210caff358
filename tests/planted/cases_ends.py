"""Planted test cases for the ends of clients: hung, killed, crashed, given up, or missing."""

from __future__ import annotations

from tests.planted.cases_systems import SHARED
from tests.planted.tiny import Tiny

ONE = {"a": "p1:0-4"}
WHOLE = "@1 p1 commit ok a:0-4\n @5 p1 close\n @6 client p1 stopped\n"
"""A run whose only client did all its work and stopped when the run asked it to."""
CRASH = """
    @2 fault f1 intent crash_client p1
    @3 fault f1 bite crash_client p1
    @4 fault f1 healed crash_client p1
"""
RETIRE = CRASH.replace("crash_client", "retire_client")


def hung(history: str, log: dict[str, str] | None = None) -> Tiny:
    """Return a case in which p1 has one acknowledged transaction, and then the given history."""
    return Tiny(f"@1 p1 commit ok a:0-4\n {history}", log or ONE)


CAUGHT: dict[str, dict[str, tuple[Tiny, set[str]]]] = {
    "stalled": {
        "a commit of a client that the run had to kill": (
            hung("@5 p1 commit none a:5-9\n @700 client p1 killed"),
            {"stalled"},
        ),
        "a poll of a reader that the run had to kill": (
            Tiny(WHOLE + "@5 r1 poll none\n @700 client r1 killed", ONE),
            {"stalled"},
        ),
        "an init, long after the heal": (
            hung(
                "@5 fault f1 intent\n @6 fault f1 bite\n @7 p1 init none\n @9 fault f1 healed\n"
                "@99 client p1 killed"
            ),
            {"stalled"},
        ),
        "a send, while another client was crashed by a fault": (
            Tiny(
                CRASH + "@1 p1 commit ok a:0-4\n @5 client p1 crash f1\n @5 p3 send none b:0-4\n"
                "@90 client p3 killed",
                ONE | {"b": ""},
                {"p3": {"transactional_id": None}},
            ),
            {"stalled"},
        ),
    }
}

NEAR_MISSES: dict[str, dict[str, Tiny]] = {
    "stalled": {
        "a client that stopped when it was asked to": Tiny(WHOLE, ONE),
        "a client that a fault crashed in a commit": hung(
            CRASH + "@1 p1 commit none a:5-9\n @500 client p1 crash f1"
        ),
        "a client that a fault retired": hung(
            RETIRE + "@2-2.5 p1 commit ok a:5-9\n @3 p1 close\n @4 client p1 retire f1", {"a": "p1:0-9"}
        ),
        "a client that ended by itself when its time was over": hung("@3 p1 close\n @4 client p1 exit 0"),
        "a crashed client and its successor": Tiny(
            CRASH + "@1-3 p1 commit ok a:0-4\n @4 client p1 crash f1\n @5 p2 commit ok a:0-4\n @9 p2 close\n"
            "@9 client p2 stopped",
            {"a": "p1:0-4 p2:0-4"},
            SHARED,
        ),
    }
}

UNKNOWN: dict[str, Tiny] = {
    "a killed client that had waited for less than the limit": hung(
        "@5 p1 commit none a:5-9\n @20 client p1 killed"
    ),
    "a killed client on another clock": Tiny(
        "@1 p1 commit ok a:0-4\n @5 p1 commit none a:5-9\n @700 client p1 killed",
        ONE,
        {"p1": {"clock": "another"}},
    ),
    "a killed client that waited only while a fault was active": hung(
        "@5 fault f1 intent\n @6 fault f1 bite\n @7 p1 commit none a:5-9\n @690 fault f1 healed\n"
        "@700 client p1 killed"
    ),
    "a killed client without an open operation": hung("@700 client p1 killed"),
    "a client without a history": Tiny(WHOLE + "client p3 stopped", ONE),
    "a history without a client": Tiny(WHOLE + "p3 commit ok b:0-1\n p3 close", ONE | {"b": "p3:0-1"}),
    "a reader's history without a client": Tiny(WHOLE + "r1 read a@0 p1:0-4\n r1 close", ONE),
    "a client listed twice": Tiny(WHOLE + "client p1 stopped", ONE),
    "a client without a recorded end": hung("@5 p1 close\n @6 client p1 started"),
    "a client that died": hung("@6 client p1 exit 137"),
    "a client that ended by itself without a closing line": hung("@6 client p1 exit 0"),
    "a client that gave up": hung("@5 p1 close gave up: the id is fenced\n @6 client p1 exit 1"),
    "a client that gave up, in a run without a list": hung("@5 p1 close gave up: the id is fenced"),
    "a client that raised an error": hung("@5 p1 close raised AssertionError\n @6 client p1 stopped"),
    "a client that stopped without a closing line": hung("@6 client p1 stopped"),
    "a crash that is in no history": hung("@6 client p1 crash f1"),
    "a crash of another client": Tiny(
        CRASH + "@1 p3 commit ok a:0-4\n @5 p1 commit ok b:0-1\n @6 client p1 crash f1\n"
        "@6 client p3 crash f1",
        {"a": "p3:0-4", "b": "p1:0-1"},
    ),
    "a crash that a fault of another kind explains": hung(
        CRASH.replace("crash_client", "zombie") + "@6 client p1 crash f1"
    ),
    "a retired client that gave up": hung(RETIRE + "@3 p1 close gave up: fenced\n @4 client p1 retire f1"),
    "a retired client without a closing line": hung(RETIRE + "@4 client p1 retire f1"),
    "a run that was aborted": Tiny(WHOLE + "skipped it was aborted: client p1 ended with 1", ONE),
    "a run that was aborted, without a list": Tiny(
        "p1 commit ok a:0-4\n skipped it was aborted: no broker", ONE
    ),
}
