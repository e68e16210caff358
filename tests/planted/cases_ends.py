"""Planted test cases for the ends of clients: hung, killed, crashed, given up, or missing."""

from __future__ import annotations

from tests.planted.cases_systems import SHARED
from tests.planted.tiny import Tiny

ONE = {"a": "p1:0-4"}
THREE = SHARED | {"p3": {"transactional_id": "x"}}
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
    },
    "zombie_write": {
        "between the take-over and its own next init": (
            Tiny(
                "@1 p1 init ok\n @2 p2 init ok\n @3 p1 commit ok a:0-4\n @4 p1 init ok\n"
                "@5 p1 commit ok a:5-9",
                {"a": "p1:0-9"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "between an unclear fencing error and its own next init": (
            Tiny(
                "p1 init ok\n p1 commit info!PRODUCER_FENCED a:0-4\n p1 commit ok a:5-9\n p1 init ok\n"
                "p1 commit ok a:10-14\n p2 commit ok b:0-1",
                {"a": "p1:5-14", "b": "p2:0-1"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "after the first of two successors, and before the second": (
            Tiny(
                "@1 p1 init ok\n @2 p2 init ok\n @3 p1 commit ok a:0-4\n @4 p3 init ok\n"
                "@5 p3 commit ok a:0-4",
                {"a": "p1:0-4 p3:0-4"},
                THREE,
            ),
            {"zombie_write"},
        ),
        "in the second of its tenures": (
            Tiny(
                "@1 p1 init ok\n @2 p2 init ok\n @3 p1 init ok\n @4 p2 init ok\n @5 p1 commit info b:0-4\n"
                "@6 p1 init ok\n @7 p1 commit ok a:5-9",
                {"a": "p1:5-9", "b": "p1:0-4"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "a producer whose later init certainly failed": (
            Tiny(
                "@1 p1 init ok\n @2 p2 init ok\n @3 p1 init fail!_TIMED_OUT\n @4 p1 commit ok a:0-4",
                {"a": "p1:0-4"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "positions alone": (
            Tiny(
                "@1 p1 init ok\n @2 p2 init ok\n @3 p1 offsets i:5\n @4 p1 commit ok\n@5 p2 commit ok a:0-4",
                {"a": "p2:0-4"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "both of two producers whose inits overlapped": (
            Tiny(
                "@1-5 p1 init ok\n @2-3 p2 init ok\n @6 p1 commit ok a:0-4\n @7 p2 commit ok a:0-4\n"
                "@8 p1 commit ok a:5-9",
                {"a": "p1:0-4 p2:0-4 p1:5-9"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "in one of many tenures": (
            Tiny(
                "\n".join(
                    f"@{4 * n + 1} p1 init ok\n @{4 * n + 2} p1 commit ok a:{2 * n}-{2 * n}\n"
                    f"@{4 * n + 3} p2 init ok"
                    for n in range(80)
                )
                + "\n @163.5 p1 commit ok b:0-0",
                {"a": " ".join(f"p1:{2 * n}" for n in range(80)), "b": "p1:0"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "after an abort that was refused": (
            Tiny(
                "p1 init ok\n p1 abort info!PRODUCER_FENCED a:0-4\n p1 commit ok a:5-9\n p1 init ok\n"
                "p2 commit ok b:0-1",
                {"a": "p1:5-9", "b": "p2:0-1"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "one of two producers whose inits overlapped, after a third one took over": (
            Tiny(
                "@1-5 p1 init ok\n @2-3 p2 init ok\n @6-7 p3 init ok\n @8 p2 commit ok a:0-4",
                {"a": "p2:0-4"},
                THREE,
            ),
            {"zombie_write"},
        ),
        "two of three producers whose inits overlapped": (
            Tiny(
                "@1-5 p1 init ok\n @2-3 p2 init ok\n @2-4 p3 init ok\n @6 p2 commit ok a:0-4\n"
                "@7 p3 commit ok a:0-4\n @8 p2 commit ok a:5-9",
                {"a": "p2:0-4 p3:0-4 p2:5-9"},
                THREE,
            ),
            {"zombie_write"},
        ),
        "two of three producers whose inits overlapped, and the first one stopped in time": (
            Tiny(
                "@1-2 p1 init ok\n @1-3 p2 init ok\n @1-5 p3 init ok\n @2.5 p1 commit ok a:0-4\n"
                "@7 p3 commit ok a:0-4\n @8 p2 commit ok a:0-4",
                {"a": "p1:0-4 p3:0-4 p2:0-4"},
                THREE,
            ),
            {"zombie_write"},
        ),
        "a refused commit and a take-over at the same time": (
            Tiny(
                "@1 p1 init ok\n @4-5 p1 commit fail!PRODUCER_FENCED a:0-4\n @3-5 p2 init ok\n"
                "@6 p1 commit ok a:5-9\n @7 p2 commit ok a:0-4",
                {"a": "p1:5-9 p2:0-4"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "after a take-over, and before an error of an earlier tenure arrives": (
            Tiny(
                "@1 p1 init ok\n @2-9 p1 commit info!PRODUCER_FENCED a:0-4\n @3 p1 init ok\n @4 p2 init ok\n"
                "@5 p1 commit ok a:5-9",
                {"a": "p1:5-9"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "both of two producers, one of which had an unclear init that the library may have repeated": (
            Tiny(
                "@1-2 p1 init info!_TIMED_OUT\n @3 p2 init ok\n @4 p1 init ok\n @5 p2 commit ok a:0-4\n"
                "@6 p1 commit ok a:0-4\n @7 p2 commit ok a:5-9",
                {"a": "p2:0-4 p1:0-4 p2:5-9"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "after an unclear init with a fencing error, between other inits": (
            Tiny(
                "@1 p1 init fail!PRODUCER_FENCED\n @3 p1 init ok\n @4 p1 init info!PRODUCER_FENCED\n"
                "@6 p1 commit ok a:0-4\n @8 p1 init ok\n @9 p2 commit ok b:0-1",
                {"a": "p1:0-4", "b": "p2:0-1"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "a client that gave up too late": (
            Tiny(
                "@1 p1 init ok\n @2 p2 init ok\n @3 p1 commit ok a:0-4\n @4 p1 close gave up: a successor\n"
                "@5 p2 commit ok a:0-4",
                {"a": "p1:0-4 p2:0-4"},
                SHARED,
            ),
            {"zombie_write"},
        ),
    },
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
        "an unanswered commit of a client that closed soon after the heal": Tiny(
            "@1 fault f1 intent\n @2 fault f1 bite\n @3 p1 commit ok a:0-4\n @4 p1 commit none a:5-9\n"
            "@199 fault f1 healed\n @200 p1 close",
            ONE,
        ),
        "an init that was slow only while a fault was active": hung(
            "@2 fault f1 intent\n @3 fault f1 bite\n @4-200 p1 init ok\n @199 fault f1 healed"
        ),
        "a slow init whose answer was an error": hung("@4-200 p1 init info!_TIMED_OUT\n @201 p1 init ok"),
        "a frozen client that gave up when it found its successor": Tiny(
            "@1 p1 init ok\n @2 p1 commit ok a:0-4\n @3 p2 init ok\n @4 p1 commit info!_FENCED a:5-9\n"
            "@5 p1 close gave up: a successor has the id\n @6 client p1 exit 1\n @6 p2 commit ok a:0-4\n"
            "@7 p2 close\n @8 client p2 stopped",
            {"a": "p1:0-4 p2:0-4"},
            SHARED,
        ),
    },
    "zombie_write": {
        "two inits that overlap, and the one that was answered first continues": Tiny(
            "@1-5 p1 init ok\n @2-3 p2 init ok\n @6 p2 commit ok a:0-4\n @7 p2 commit ok a:5-9",
            {"a": "p2:0-9"},
            SHARED,
        ),
        "two inits that overlap, and a commit of each in turn": Tiny(
            "@1-5 p1 init ok\n @2-3 p2 init ok\n @4 p2 commit ok a:0-4\n @6 p1 commit ok a:0-4",
            {"a": "p2:0-4 p1:0-4"},
            SHARED,
        ),
        "many tenures in turn": Tiny(
            "\n".join(
                f"@{4 * n + 1} p1 init ok\n @{4 * n + 2} p1 commit ok a:{n}-{n}\n @{4 * n + 3} p2 init ok"
                for n in range(80)
            ),
            {"a": "p1:0-79"},
            SHARED,
        ),
        "two inits that overlap, and one of the producers commits only before them": Tiny(
            "@1 p1 init ok\n @2 p1 commit ok a:0-4\n @4-7 p1 init ok\n @5-6 p2 init ok\n"
            "@8 p2 commit ok a:0-4",
            {"a": "p1:0-4 p2:0-4"},
            SHARED,
        ),
        "two inits that overlap, and one of the producers commits only after its next init": Tiny(
            "@1-5 p1 init ok\n @2-3 p2 init ok\n @6 p2 commit ok a:0-4\n @7 p1 init ok\n"
            "@8 p1 commit ok a:0-4",
            {"a": "p2:0-4 p1:0-4"},
            SHARED,
        ),
        "its own next init overlaps that of the successor": Tiny(
            "@1 p1 init ok\n @2-6 p2 init ok\n @3-4 p1 init ok\n @7 p1 commit ok a:0-4\n"
            "@8 p1 commit ok a:5-9",
            {"a": "p1:0-9"},
            SHARED,
        ),
        "an unclear init that the library carried out before it was asked again": Tiny(
            "@1-2 p1 init info!_TIMED_OUT\n @3 p2 init ok\n @4 p1 init ok\n @5 p2 commit ok a:0-4",
            {"a": "p2:0-4"},
            SHARED,
        ),
        "its own init was unclear, and took effect": Tiny(
            "@1 p1 init ok\n @2 p2 init ok\n @3 p1 init info!_TIMED_OUT\n @4 p1 commit ok a:0-4",
            {"a": "p1:0-4"},
            SHARED,
        ),
        "a successor whose init was unclear": Tiny(
            "@1 p1 init ok\n @2 p2 init info!_TIMED_OUT\n @3 p1 commit ok a:0-4", {"a": "p1:0-4"}, SHARED
        ),
        "a commit that was requested while the successor's init was under way": Tiny(
            "@1 p1 init ok\n @3-6 p2 init ok\n @4 p1 commit ok a:0-4\n @7 p2 commit ok a:0-4",
            {"a": "p1:0-4 p2:0-4"},
            SHARED,
        ),
        "back and forth, each with its own init": Tiny(
            "@1 p1 init ok\n @2 p1 commit ok a:0-4\n @3 p2 init ok\n @4 p2 commit ok a:0-4\n"
            "@5 p1 init ok\n @6 p1 commit ok a:5-9\n @7 p2 init ok\n @8 p2 commit ok a:5-9",
            {"a": "p1:0-4 p2:0-4 p1:5-9 p2:5-9"},
            SHARED,
        ),
        "a successor on another host": Tiny(
            "@1 p1 init ok\n @2 p2 init ok\n @3 p1 commit ok a:0-4",
            {"a": "p1:0-4"},
            {"p1": {"transactional_id": "x"}, "p2": {"transactional_id": "x", "clock": "another"}},
        ),
        "an empty transaction, for which no broker got a request": Tiny(
            "@1 p1 init ok\n @2 p2 init ok\n @3 p1 commit ok\n @4 p2 commit ok a:0-4", {"a": "p2:0-4"}, SHARED
        ),
        "a fencing error that arrived after its own next init": Tiny(
            "@1 p1 init ok\n @2-5 p1 commit info!PRODUCER_FENCED a:0-4\n @3-4 p1 init ok\n"
            "@6 p1 commit ok a:5-9",
            {"a": "p1:5-9"},
            SHARED,
        ),
        "an error that the library can recover from": Tiny(
            "p1 init ok\n p1 commit info!INVALID_PRODUCER_EPOCH!abortable a:0-4\n p1 commit ok a:5-9\n"
            "p2 commit ok b:0-1",
            {"a": "p1:5-9", "b": "p2:0-1"},
            SHARED,
        ),
        "an idempotent producer that got a new epoch by itself": Tiny(
            "p2 send info!INVALID_PRODUCER_EPOCH a:0-4 +a:0-4\n p2 send ok a:5-9\n p1 commit ok b:0-1\n"
            "p3 commit ok b:0-1",
            {"a": "p2:0-9", "b": "p1:0-1 p3:0-1"},
            THREE | {"p2": {"transactional_id": None}},
        ),
    },
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
    "an end that stopped behind a transaction of a producer with a long time-out": Tiny(
        "p1 commit ok b:0-1\n @2 look a 5/9\n @200 look a 5/9",
        {"b": "p1:0-1"},
        {"p1": {"timeout_ms": 300_000}},
    ),
    "an end that has not advanced since a heal a moment ago": Tiny(
        "p1 commit ok b:0-1\n @2 fault f1 intent\n @3 fault f1 bite\n @4 look a 5/9\n"
        "@198 fault f1 healed\n @200 look a 5/9",
        {"b": "p1:0-1"},
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
    "a client that gave up after a fencing error, without a successor": hung(
        "@3 p1 commit info!_FENCED a:5-9\n @5 p1 close gave up: the id is fenced\n @6 client p1 exit 1"
    ),
    "a client that gave up after it had taken its id back": Tiny(
        "@1 p1 init ok\n @2 p1 commit ok a:0-4\n @3 p2 init ok\n @4 p2 commit ok a:0-4\n @5 p1 init ok\n"
        "@6 p1 close gave up: the id is fenced\n @7 client p1 exit 1\n @8 p2 close\n @9 client p2 stopped",
        {"a": "p1:0-4 p2:0-4"},
        SHARED,
    ),
    "a client that raised an error after its successor had taken over": Tiny(
        "@1 p1 init ok\n @2 p1 commit ok a:0-4\n @3 p2 init ok\n @4 p1 commit info!_FENCED a:5-9\n"
        "@5 p1 close raised AssertionError\n @6 client p1 exit 1\n @6 p2 commit ok a:0-4\n"
        "@7 p2 close\n @8 client p2 stopped",
        {"a": "p1:0-4 p2:0-4"},
        SHARED,
    ),
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
