"""Planted cases for guards of the checkers: similar clocks, ends, groups and witnesses."""

from __future__ import annotations

from tests.planted.cases_ends import THREE
from tests.planted.cases_reads import Short
from tests.planted.cases_records import PLAIN
from tests.planted.cases_systems import SHARED
from tests.planted.cases_witnesses import FIVE_OF_TEN, MORE, Alone, Pair, meta, piped
from tests.planted.tiny import SECOND, Line, Tiny

Lines = dict[str, list[Line]]
TEN = "p1 commit ok a:0-9"
LOG = {"a": "p1:0-9 ."}
MEMBER = {"r1": {"group": "g"}, "r2": {"group": "g"}}
UNORDERED = {"p2": {"transactional_id": None, "idempotent": False}}
"""Settings with which Kafka may write the records of producer p2 in another order."""
TWO_LANES = "p1 commit ok a:0-4 b:0-4\n p1 commit info a:5-9 b:5-9\n"


def fault_elsewhere(lines: Lines) -> None:
    """Add a fault to the histories whose times are those of another clock."""
    opening = {**lines["oracle"][0], "client": "faults", "role": "faults", "clock": "another"}
    stages = ("intent", "bite", "healed")
    faults = [
        {"type": "fault", "id": "f9", "stage": stage, "fault": "kill", "target": "one"}
        | {"mono": second * SECOND, "wall": 0}
        for second, stage in enumerate(stages, start=1)
    ]
    lines["faults"] = [opening, *faults]


def late_refusal(lines: Lines) -> None:
    """Let the request with the positions of p1 end with a fencing error, after its next init was answered."""
    history = lines["p1"]
    at = next(i for i, line in enumerate(history) if line["type"] == "ok" and line["f"] == "send_offsets")
    answer = history.pop(at)
    error = {"code": 90, "name": "_FENCED", "flags": ["fatal"]}
    after = next(i for i, line in enumerate(history) if line["mono"] > 5 * SECOND)
    history.insert(after, {**answer, "type": "info", "error": error, "mono": 5 * SECOND})


def one_run(lines: Lines) -> None:
    """Let the poll of r1 list its records as one run, as a client does."""
    poll = next(line for line in lines["r1"] if line.get("read"))
    topic, partition, offset, producer, lane, seq, _ = poll["read"][0]
    poll["read"] = [(topic, partition, offset, producer, lane, seq, len(poll["read"]))]


def moves_of_another_group(lines: Lines) -> None:
    """Let the consumer that lists its moves be a member of another group."""
    for line in lines["r1"]:
        if line.get("f") == "assign" and line["type"] == "invoke":
            line["group"] = "another"


CAUGHT: dict[str, dict[str, tuple[Tiny, set[str]]]] = {
    "inconsistent_offset": {
        "a word in no order was acknowledged as a whole, but at another first offset": (
            Alone("p2 send ok a:0-3>1", {"a": "p2:1 p2:0 p2:2 . p2:3"}, UNORDERED),
            {"inconsistent_offset"},
        ),
        "only the middle one of the three words of a poll, and the witness keeps no runs": (
            Alone(
                "p2 send ok a:0-599\n r1 read a@0 p2:0-599",
                {"a": "p2:0-255 " + ". " * 256 + "p2:512-599 p2:256-511"},
                UNORDERED,
                change=one_run,
            ),
            {"inconsistent_offset"},
        ),
    },
    "torn_transaction": {
        "read in a partition that the witness did not read to its end, and missing in another one": (
            Tiny(TWO_LANES, {"a": "p1:0-4 .", "b": "p1:0-4 . p1:5-9 ."}, hw={"b": 40}),
            {"torn_transaction"},
        )
    },
    "phantom": {
        "a reader was given a record of the lane of another partition, once": (
            Tiny("p1 commit ok a:0-4\n r1 read b@3 p1a:2", {"a": "p1:0-4 .", "b": ". . . p1a:2"}),
            {"phantom"},
        ),
        "a witness that was cut short read a record of the lane of another partition": (
            Short(
                "p2 send ok a:0-4 b:0-4",
                {"a": "p2:0-4", "b": "p2a:2 p2:0-4"},
                PLAIN,
                second={"a": "p2:0-4", "b": ". p2:0-4"},
            ),
            {"phantom"},
        ),
    },
    "offset_drift": {
        "back to an old position, and the only fault was on another clock": (
            piped(MORE + "@20 group i:10\n @21 group i:5\n @22 group i:10", change=fault_elsewhere),
            {"offset_drift"},
        ),
        "back to an old position, long before the only fault": (
            piped(
                MORE + "@20 group i:10\n @21 group i:5\n @22 group i:10\n @30 fault f1 intent\n"
                "@31 fault f1 bite\n @32 fault f1 healed"
            ),
            {"offset_drift"},
        ),
    },
    "zombie_write": {
        "unclear, and only one of two witnesses read it": (
            Pair(
                "p1 init ok\n p1 commit ok a:0-4\n p2 init ok\n p2 commit ok a:0-4\n p1 commit info a:5-9",
                {"a": "p1:0-4 . p2:0-4 . p1:5-9 ."},
                SHARED,
                spark={"a": "p1:0-4 . p2:0-4 . . . . . . ."},
            ),
            {"zombie_write", "lost"},
        ),
        "after a fencing error in the answer to its begin": (
            Tiny(
                "p1 init ok\n p1 begin fail!_FENCED\n p1 commit ok a:0-4\n p2 commit ok b:0-1",
                {"a": "p1:0-4", "b": "p2:0-1"},
                SHARED,
            ),
            {"zombie_write"},
        ),
    },
}

NEAR_MISSES: dict[str, dict[str, Tiny]] = {
    "lost": {
        "read behind the end of a witness, by one that was cut short": Short(
            "p2 send ok a:0-4\n p2 send info a:5-9", {"a": "p2:0-9"}, PLAIN, second={"a": "p2:0-4"}
        )
    },
    "log_truncated": {
        "acknowledged behind what a reader has read so far": Tiny(
            "p2 send ok a:0-9>0\n r1 read a@0 p2:0-4", {"a": "p2:0-9"}, PLAIN
        )
    },
    "offset_drift": {
        "behind the position of an unclear transaction": piped(
            MORE.replace("ok", "info") + "@20 group i:5", FIVE_OF_TEN, 5
        )
    },
    "zombie_write": {
        "requested at the very time at which the init of the successor returned": Tiny(
            "@1 p1 init ok\n p2 init ok\n @2.5 p1 commit ok a:0-4\n @4 p2 commit ok a:0-4",
            {"a": "p1:0-4 p2:0-4"},
            SHARED,
        ),
        "a fencing error of positions that arrived after its own next init": Tiny(
            "@1 p1 init ok\n @2 p1 offsets i:5\n @3-4 p1 init ok\n @6 p1 commit ok a:0-4\n"
            "@7 p2 commit ok a:0-4",
            {"a": "p1:0-4 p2:0-4"},
            THREE,
            change=late_refusal,
        ),
    },
    "poll_skip": {
        "the records that a member on another host had read": Tiny(
            TEN + "\n r1 assign a\n r1 read a@0 p1:0-4\n r1 revoke a\n r2 assign a\n r2 read a@5 p1:5-7\n"
            "r2 revoke a\n r1 assign a\n r1 read a@8 p1:8-9",
            LOG,
            {"r1": {"group": "g"}, "r2": {"group": "g", "clock": "another"}},
        ),
        "the first record of an assignment without a group and an offset": Tiny(
            TEN + "\n r1 assign a\n r1 read a@3 p1:3-9", LOG
        ),
        "a member without a list of its rebalances, whose client lists those of another group": Tiny(
            TEN + "\n r1 assign b\n r1 read a@0 p1:0-2\n r2 read a@3 p1:3-6\n r1 read a@7 p1:7-9",
            LOG,
            MEMBER,
            change=moves_of_another_group,
        ),
    },
}

UNKNOWN: dict[str, Tiny] = {
    "acknowledged after the only witnesses captured the ends, and before they finished": Pair(
        "p1 commit ok a:0-4\n @40 p1 commit ok a:5-9",
        {"a": "p1:0-4 ."},
        changes=(meta(frozen=30 * SECOND, finished=50 * SECOND),),
        frozen=30,
        finished=50,
    )
}
