"""Planted test cases for anomalies of pipelines, fencing and liveness."""

from __future__ import annotations

from harness.evidence.checkers.model import Expect
from tests.planted.tiny import Tiny, pipeline

SHARED = {"p1": {"transactional_id": "x"}, "p2": {"transactional_id": "x"}}
"""Settings with which producers p1 and p2 use one transactional id, so the second one fences the first."""

PIPE = """
    p1 commit ok i:0-9
    p9 offsets i:5
    p9 commit ok o:0-4
    p9 offsets i:10
    p9 commit ok o:5-9
    group i:10
"""
"""A history of a pipeline: producer p1 wrote ten inputs; worker p9 made one output per input.

The worker wrote its outputs in two transactions.
"""

IN = "p1:0-9 ."
FIVE = "p9:0<p1:0 p9:1<p1:1 p9:2<p1:2 p9:3<p1:3 p9:4<p1:4"
TEN = f"{FIVE} . p9:5<p1:5 p9:6<p1:6 p9:7<p1:7 p9:8<p1:8 p9:9<p1:9 ."


STATEFUL = """
    p1 commit ok i:0-19
    p9 offsets i:10
    p9 commit ok o:0-9 c:0-9
    p9 offsets i:20
    p9 commit ok o:10-19 c:10-19
    group i:20
"""
"""A history like PIPE, with twenty inputs and a changelog.

There are 16 keys, so the inputs 16-19 are the second inputs of keys 0-3.
"""

MADE = [f"p9:{n}<p1:{n}" for n in range(20)]
TOTALS = [f"p9:{n}={n}:1/{n}" for n in range(16)] + [f"p9:{n}={n - 16}:2/{2 * n - 16}" for n in range(16, 20)]


def counted(totals: list[str], history: str = STATEFUL, consumed: int = 20, made: list[str] = MADE) -> Tiny:
    """Return a case of a stateful pipeline whose changelog contains these totals."""
    log = {"i": "p1:0-19 .", "o": " ".join(made), "c": " ".join(totals)}
    return Tiny(history, log, expect=pipeline(changelog="log"), consumed=consumed)


def changed(n: int, totals: str) -> list[str]:
    """Return TOTALS with its n-th changelog record replaced by `totals`."""
    return [*TOTALS[:n], totals, *TOTALS[n + 1 :]]


def piped(out: str, history: str = PIPE, consumed: int = 10, outputs: int = 1) -> Tiny:
    """Return a case of a pipeline with the output log `out`, whose group has committed offset `consumed`."""
    return Tiny(history, {"i": IN, "o": out}, expect=pipeline(outputs), consumed=consumed)


# Each case has the exact set of anomaly names that the checkers must report.
CAUGHT: dict[str, dict[str, tuple[Tiny, set[str]]]] = {
    "offset_drift": {
        "passed the first input without its output": (
            piped(TEN.replace("p9:0<p1:0", "."), PIPE.replace("o:0-4", "o:1-4")),
            {"offset_drift", "never_processed"},
        ),
        "stayed behind an output in the middle": (
            piped(TEN, PIPE.replace("group i:10", "group i:5"), consumed=5),
            {"offset_drift"},
        ),
        "stayed behind the very last output": (
            piped(TEN, PIPE.replace("group i:10", "group i:9"), consumed=9),
            {"offset_drift"},
        ),
        "no transaction committed the position": (
            piped(TEN, "p1 commit ok i:0-9\n p9 commit ok o:0-9", consumed=5),
            {"offset_drift"},
        ),
        "moved by an aborted transaction": (
            piped(
                FIVE,
                "p1 commit ok i:0-9\n p9 offsets i:5\n p9 commit ok o:0-4\n p9 offsets i:10\n"
                "p9 abort ok o:5-9\n group i:10",
                consumed=5,
            ),
            {"offset_drift"},
        ),
        "went beyond everything that was committed": (
            piped(FIVE, "p1 commit ok i:0-9\n p9 offsets i:5\n p9 commit ok o:0-4\n group i:6", consumed=5),
            {"offset_drift"},
        ),
    },
    "processed_twice": {
        "the first input": (
            piped(f"{TEN} p9:10<p1:0 .", PIPE + "\n p9 commit ok o:10-10"),
            {"processed_twice"},
        ),
        "one in the middle, by another worker": (
            piped(f"{TEN} p8:0<p1:5 .", PIPE + "\n p8 commit ok o:0-0"),
            {"processed_twice"},
        ),
        "the very last input": (
            piped(f"{TEN} p9:10<p1:9 .", PIPE + "\n p9 commit ok o:10-10"),
            {"processed_twice"},
        ),
        "an output that is not expected": (
            piped(f"{TEN} p9:10<p1:4/1 .", PIPE + "\n p9 commit ok o:10-10"),
            {"processed_twice"},
        ),
    },
    "never_processed": {
        "the first input": (
            piped(TEN.replace("p9:0<p1:0", "."), PIPE.replace("o:0-4", "o:1-4")),
            {"never_processed", "offset_drift"},
        ),
        "one in the middle": (
            piped(TEN.replace("p9:4<p1:4", "."), PIPE.replace("o:0-4", "o:0-3")),
            {"never_processed", "offset_drift"},
        ),
        "the very last input": (
            piped(TEN.replace("p9:9<p1:9", "."), PIPE.replace("o:5-9", "o:5-8")),
            {"never_processed", "offset_drift"},
        ),
        "one of two outputs": (
            piped("p9:0<p1:0 p9:1<p1:0/1 p9:2<p1:1", "p1 commit ok i:0-9\n p9 commit ok o:0-2", 2, outputs=2),
            {"never_processed"},
        ),
    },
    "aggregate_drift": {
        "an input counted twice: the state was not rebuilt after an abort": (
            counted(changed(16, "p9:16=0:3/32")),
            {"aggregate_drift"},
        ),
        "the very first not counted: the changelog was not read to its end": (
            counted(changed(19, "p9:19=3:1/19")),
            {"aggregate_drift"},
        ),
        "one counted twice for another": (counted(changed(17, "p9:17=1:2/34")), {"aggregate_drift"}),
        "a key that the changelog does not have": (
            counted([*TOTALS[:15], *TOTALS[16:]], STATEFUL.replace("c:10-19", "c:10-14 c:16-19")),
            {"aggregate_drift"},
        ),
        "a key that no input has": (
            counted([*TOTALS, "p9:20=99:1/99"], STATEFUL.replace("c:10-19", "c:10-20")),
            {"aggregate_drift"},
        ),
        "counted twice, and made twice": (
            counted(
                [*TOTALS, "p9:20=3:3/41"],
                STATEFUL.replace("o:10-19 c:10-19", "o:10-20 c:10-20"),
                made=[*MADE, "p9:20<p1:19"],
            ),
            {"aggregate_drift", "processed_twice"},
        ),
    },
    "zombie_write": {
        "acknowledged right after the fence": (
            Tiny(
                "@1 p1 init ok\n @2 p2 init ok\n @3 p1 commit ok a:0-4\n p2 commit ok a:0-4",
                {"a": "p1:0-4 . p2:0-4 ."},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "unclear, and read": (
            Tiny(
                "p1 init ok\n p1 commit ok a:0-4\n p2 init ok\n p2 commit ok a:0-4\n p1 commit info a:5-9",
                {"a": "p1:0-4 . p2:0-4 . p1:5-9 ."},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "the very last batch of the log": (
            Tiny("p1 commit ok a:0-4", {"a": "p1:0-4 ."}, epochs=[("a", 4, 3)]),
            {"zombie_write"},
        ),
        "after it had received the error": (
            Tiny(
                "p1 init ok\n p1 commit fail!PRODUCER_FENCED a:0-4\n p1 commit ok a:5-9\n p2 commit ok a:0-1",
                {"a": "p1:5-9 . p2:0-1"},
                SHARED,
            ),
            {"zombie_write"},
        ),
        "refused, and read all the same": (
            Tiny(
                "p1 init ok\n p2 init ok\n p2 commit ok a:0-4\n p1 commit fail!_FENCED a:0-4",
                {"a": "p2:0-4 p1:0-4"},
                SHARED,
            ),
            {"zombie_write", "aborted_read"},
        ),
    },
    "hanging_transaction": {
        "from the first offset on": (
            Tiny("p1 commit ok b:0-1\n @2 look a 0/5\n @200 look a 0/5", {"b": "p1:0-1"}),
            {"hanging_transaction"},
        ),
        "in the middle, while others continue": (
            Tiny("p1 commit ok b:0-1\n @2 look a 5/9\n @50 look a 5/20\n @200 look a 5/90", {"b": "p1:0-1"}),
            {"hanging_transaction"},
        ),
        "the very last offset": (
            Tiny("p1 commit ok a:0-4\n @9 look a 5/6\n @99 look a 5/6", {"a": "p1:0-4"}),
            {"hanging_transaction"},
        ),
        "after the heal as well": (
            Tiny(
                "p1 commit ok b:0-1\n @2 look a 5/9\n fault f1 intent\n fault f1 bite\n"
                "@50 fault f1 healed\n @200 look a 5/9",
                {"b": "p1:0-1"},
            ),
            {"hanging_transaction"},
        ),
    },
    "stalled": {
        "the first commit": (
            Tiny("@1-90 p1 commit ok a:0-4\n @91 p1 commit ok a:5-9", {"a": "p1:0-9"}),
            {"stalled"},
        ),
        "one that never answers, in the middle": (
            Tiny(
                "p1 commit ok a:0-4\n @5 p1 commit none a:5-9\n @9 p3 commit ok a:0-1\n @100 p1 close",
                {"a": "p1:0-9 p3:0-1"},
            ),
            {"stalled"},
        ),
        "the producer id came late, at the very end": (
            Tiny("p1 commit ok a:0-4\n @5-90 p1 init ok", {"a": "p1:0-4"}),
            {"stalled"},
        ),
        "long after the heal": (
            Tiny(
                "p1 commit ok a:0-4\n @5 fault f1 intent\n @6 fault f1 bite\n @9 fault f1 healed\n"
                "@7-90 p1 commit ok a:5-9",
                {"a": "p1:0-9"},
            ),
            {"stalled"},
        ),
    },
}

NEAR_MISSES: dict[str, dict[str, Tiny]] = {
    "offset_drift": {
        "all processed": piped(TEN),
        "half of the inputs still to do": piped(
            FIVE, "p1 commit ok i:0-9\n p9 offsets i:5\n p9 commit ok o:0-4\n group i:5", consumed=5
        ),
        "positions of an aborted transaction do not count": piped(
            FIVE,
            "p1 commit ok i:0-9\n p9 offsets i:5\n p9 commit ok o:0-4\n p9 offsets i:10\n p9 abort ok o:5-9\n"
            "group i:5",
            consumed=5,
        ),
        "an unknown transaction moved the group": piped(TEN, PIPE.replace("ok o:5-9", "info o:5-9")),
        "past a marker": piped(TEN, PIPE.replace("i:10", "i:11"), consumed=11),
    },
    "processed_twice": {
        "once aborted, once committed": piped(f". . . . . {TEN}", "p9 abort ok o:10-14\n" + PIPE),
        "two outputs that are expected": piped(
            "p9:0<p1:0 p9:1<p1:0/1", "p1 commit ok i:0-9\n p9 commit ok o:0-1", 1, outputs=2
        ),
        "by two workers, each its share": piped(
            FIVE + " p8:0<p1:5 p9:5<p1:6 p9:6<p1:7 p9:7<p1:8 p9:8<p1:9",
            PIPE.replace("p9 commit ok o:5-9", "p9 commit ok o:5-8\n p8 commit ok o:0-0"),
        ),
    },
    "never_processed": {
        "behind the group's position": piped(
            FIVE, "p1 commit ok i:0-9\n p9 offsets i:5\n p9 commit ok o:0-4\n group i:5", consumed=5
        ),
        "an aborted input": Tiny(
            "p1 commit ok i:0-4\n p1 abort ok i:5-9\n p9 offsets i:12\n p9 commit ok o:0-4\n group i:12",
            {"i": "p1:0-4 . . . . . . .", "o": FIVE},
            expect=pipeline(),
            consumed=12,
        ),
        "processed after an abort": piped(f". . . {TEN}", "p9 abort ok o:10-14\n" + PIPE),
    },
    "aggregate_drift": {
        "all counted": counted(TOTALS),
        "counted in vain by an aborted transaction, and again": counted(
            [".", ".", *TOTALS], "p9 abort ok o:20-21 c:20-21\n" + STATEFUL, made=[".", ".", *MADE]
        ),
        "behind the group's position": counted(
            TOTALS[:10],
            "p1 commit ok i:0-19\n p9 offsets i:10\n p9 commit ok o:0-9 c:0-9\n group i:10",
            consumed=10,
            made=MADE[:10],
        ),
        "by two workers, one after the other": counted(
            [*TOTALS[:10], *(totals.replace("p9:1", "p8:", 1) for totals in TOTALS[10:])],
            STATEFUL.replace(
                "p9 offsets i:20\n    p9 commit ok o:10-19 c:10-19",
                "p8 offsets i:20\n    p8 commit ok o:0-9 c:0-9",
            ),
            made=[*MADE[:10], *(made.replace("p9:1", "p8:", 1) for made in MADE[10:])],
        ),
    },
    "zombie_write": {
        "asked for before the fence, decided after": Tiny(
            "@1 p1 init ok\n @2-9 p1 commit ok a:0-4\n @3 p2 init ok\n @10 p2 commit ok a:0-4",
            {"a": "p1:0-4 . p2:0-4 ."},
            SHARED,
        ),
        "refused, and nothing read": Tiny(
            "p1 init ok\n p2 init ok\n p1 commit fail!PRODUCER_FENCED a:0-4\n p2 commit ok a:0-4",
            {"a": ". . . p2:0-4"},
            SHARED,
        ),
        "unclear, and nothing read": Tiny(
            "p1 init ok\n p2 init ok\n p1 commit info a:0-4\n p2 commit ok a:0-4",
            {"a": ". . . p2:0-4"},
            SHARED,
        ),
        "two ids": Tiny(
            "p1 init ok\n p3 init ok\n p1 commit ok a:0-4",
            {"a": "p1:0-4"},
            expect=Expect(properties=["exactly_once"]),
        ),
        "fenced, then back with its own init": Tiny(
            "p1 init ok\n p1 commit fail!PRODUCER_FENCED a:0-4\n p1 init ok\n p1 commit ok a:5-9",
            {"a": "p1:5-9"},
            SHARED,
        ),
    },
    "hanging_transaction": {
        "the last stable offset moves on": Tiny(
            "p1 commit ok a:0-4\n @2 look a 2/5\n @90 look a 4/6\n @190 look a 6/6", {"a": "p1:0-4 ."}
        ),
        "stuck while the fault was active, then free": Tiny(
            "p1 commit ok a:0-4\n @2 fault f1 intent\n @3 fault f1 bite\n @4 look a 2/5\n @190 look a 2/5\n"
            "@191 fault f1 healed\n @192 look a 5/5",
            {"a": "p1:0-4"},
        ),
        "nothing behind the end": Tiny(
            "p1 commit ok a:0-4\n @2 look a 6/6\n @190 look a 6/6", {"a": "p1:0-4 ."}
        ),
    },
    "stalled": {
        "given up, without an answer": Tiny(
            "p1 commit ok a:0-4\n p1 abandon none a:5-9\n @500 p1 close", {"a": "p1:0-4"}
        ),
        "slow, and within the bound": Tiny("@1-50 p1 commit ok a:0-4", {"a": "p1:0-4"}),
        "slow while a fault was active": Tiny(
            "@1 fault f1 intent\n @2 fault f1 bite\n @3-100 p1 commit ok a:0-4\n @99 fault f1 healed",
            {"a": "p1:0-4"},
        ),
        "idle, with nothing to do": Tiny(
            "@1 p1 commit ok a:0-4\n @500 p1 commit ok a:5-9\n @900 p1 close", {"a": "p1:0-9"}
        ),
        "killed soon after it asked, while others continue": Tiny(
            "@1 p1 commit none a:0-4\n @500 p3 commit ok a:0-1", {"a": "p3:0-1"}
        ),
    },
}
