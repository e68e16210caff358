"""Planted test cases for the second opinion: markers, labels and checksums against the histories."""

from __future__ import annotations

from tests.planted.tiny import Line, Tiny, pipeline

PLAIN = {"p2": {"transactional_id": None}}
SAME_ID = {"p1": {"transactional_id": "x"}, "p2": {"transactional_id": "x"}}
ENOUGH = "p1 commit ok a:0-4\n"
STATEFUL = "p1 commit ok i:0-1\n p9 offsets i:2\n p9 commit ok o:0-1\n group i:2"

Lines = dict[str, list[Line]]


def without_id(lines: Lines) -> None:
    """Declare that producers p2 and p3 have no transactional id, although they write in transactions."""
    for line in (line for name in ("p2", "p3") for line in lines.get(name, ())):
        if line["type"] == "producer":
            line["transactional_id"] = None


def id_of_init(lines: Lines) -> None:
    """Let the answer to the init of p2 report the producer id 8."""
    next(line for line in lines["p2"] if line["type"] == "ok")["pid"] = 8


def unnamed(lines: Lines) -> None:
    """Remove the producer from the operations of p2: its client has no other one."""
    for line in lines["p2"]:
        if line["type"] == "invoke":
            del line["producer"]


def refused(lines: Lines) -> None:
    """Let the answer of p2 with a producer id be a failure."""
    next(line for line in lines["p2"] if line["type"] == "ok")["type"] = "fail"


CAUGHT: dict[str, dict[str, tuple[Tiny, set[str]]]] = {
    "fate_mismatch": {
        "recorded as committed, under an ABORT marker": (
            Tiny(
                "p1 commit ok a:0-4\n p1 commit ok a:5-9",
                {"a": "p1:0-4 . . . . . . ."},
                raw={"a": "p1:0-4 C1 p1:5-9 A1"},
            ),
            {"fate_mismatch", "lost"},
        ),
        "recorded as aborted, under a COMMIT marker": (
            Tiny(
                "p1 commit ok a:0-4\n p1 abort ok a:5-5",
                {"a": "p1:0-4 . p1:5 ."},
                raw={"a": "p1:0-4 C1 p1:5 C1"},
            ),
            {"fate_mismatch", "aborted_read"},
        ),
        "an unknown one, committed in one partition and aborted in the other": (
            Tiny(
                "p1 commit ok a:0-4\n p1 commit info a:5-9 b:0-4",
                {"a": "p1:0-4 . p1:5-9 .", "b": ". . . . . ."},
                raw={"a": "p1:0-4 C1 p1:5-9 C1", "b": "p1:0-4 A1"},
            ),
            {"fate_mismatch", "torn_transaction"},
        ),
        "committed in one of three partitions, of a client that was killed": (
            Tiny(
                "p1 commit ok a:0-4\n p1 begin",
                {"a": "p1:0-4 . . .", "b": "p1:0 ."},
                raw={"a": "p1:0-4 C1 p1:5 A1", "b": "p1:0 C1"},
            ),
            {"fate_mismatch", "aborted_read"},
        ),
    },
    "wrong_transaction": {
        "records of transaction 77, meant to be aborted, in transaction 1": (
            Tiny("p1 commit ok a:0-4", {"a": "p1:0-4~77a ."}),
            {"wrong_transaction"},
        ),
        "one record of the next transaction": (
            Tiny("p1 commit ok a:0-4\n p1 commit ok a:5-9", {"a": "p1:0-4~1c . p1:5~1c p1:6-9~2c ."}),
            {"wrong_transaction"},
        ),
        "all of a lane is shifted by one transaction": (
            Tiny(
                "p1 commit ok a:0-2\n p1 abort ok a:3-5\n p1 commit ok a:6-8",
                {"a": "p1:0-2~2c . . . . . p1:6-8~4c ."},
            ),
            {"wrong_transaction"},
        ),
        "the right number, meant to be aborted, committed": (
            Tiny("p1 commit ok a:0-4\n p1 commit ok a:5-9", {"a": "p1:0-4~1c . p1:5-9~2a ."}),
            {"wrong_transaction"},
        ),
        "meant to be aborted, unknown, and readable": (
            Tiny("p1 commit ok a:0-4\n p1 commit info a:5-5", {"a": "p1:0-4~1c . p1:5~2a ."}),
            {"wrong_transaction"},
        ),
        "a record of a transaction in a send": (
            Tiny("p2 send ok a:0-4", {"a": "p2:0-3 p2:4~3c"}, PLAIN),
            {"wrong_transaction"},
        ),
        "an aborted record that only the raw log has": (
            Tiny(
                "p1 commit ok a:0-4\n p1 abort ok a:5-5",
                {"a": "p1:0-4~1c . . ."},
                raw={"a": "p1:0-4~1c C1 p1:5~9a A1"},
            ),
            {"wrong_transaction"},
        ),
        "two transactions without a marker between them": (
            Tiny(
                "p1 commit ok a:0-4\n p1 commit ok a:5-9",
                {"a": "p1:0-4 p1:5-9 ."},
                raw={"a": "p1:0-4 p1:5-9 C1"},
            ),
            {"wrong_transaction"},
        ),
        "one record was written without a transaction": (
            Tiny("p1 commit ok a:0-4", {"a": "p1:0-4 ."}, raw={"a": "p1:0-3 p1:4#-1 C1"}),
            {"wrong_transaction"},
        ),
        "an aborted record was written again without a transaction": (
            Tiny(
                "p1 commit ok b:0-1\n p1 abort ok a:0-4",
                {"a": ". . . . . . p1:0", "b": "p1:0-1 ."},
                raw={"a": "p1:0-4 A1 p1:0#-1", "b": "p1:0-1 C1"},
            ),
            {"wrong_transaction", "aborted_read", "torn_transaction"},
        ),
        "a send, written in a transaction of another producer": (
            Tiny(
                "p1 commit ok b:0-1\n p2 send ok a:0-4",
                {"a": "p2:0-4 .", "b": "p1:0-1 ."},
                raw={"a": "p2:0-4#1 C1", "b": "p1:0-1 C1"},
                change=without_id,
            ),
            {"wrong_transaction"},
        ),
        "sends of two producers without a transactional id, written in one transaction": (
            Tiny(
                "p1 commit ok b:0-1\n p2 send ok a:0-4\n p3 send ok a:0-4",
                {"a": "p2:0-4 p3:0-4 .", "b": "p1:0-1 ."},
                raw={"a": "p2:0-4#7 p3:0-4#7 C7", "b": "p1:0-1 C1"},
                change=without_id,
            ),
            {"wrong_transaction"},
        ),
        "written under a producer id that the init of another client returned": (
            Tiny(
                "p2 init ok\n p1 commit ok a:0-4",
                {"a": "p1:0-4 ."},
                raw={"a": "p1:0-4#8 C8"},
                change=id_of_init,
            ),
            {"wrong_transaction"},
        ),
        "written under a producer id that another client reported without naming its only producer": (
            Tiny(
                "p2 identity 8\n p1 commit ok a:0-4",
                {"a": "p1:0-4 ."},
                raw={"a": "p1:0-4#8 C8"},
                change=unnamed,
            ),
            {"wrong_transaction"},
        ),
        "written under the producer id of another transactional id": (
            Tiny(
                "p1 commit ok a:0-4\n p2 commit ok b:0-4",
                {"a": "p1:0-4 .", "b": "p2:0-4 ."},
                raw={"a": "p1:0-4 C1", "b": "p2:0-4#1 C1"},
            ),
            {"wrong_transaction"},
        ),
        "written under a producer id that only another client reported": (
            Tiny("p2 identity 8\n p1 commit ok a:0-4", {"a": "p1:0-4 ."}, raw={"a": "p1:0-4#8 C8"}),
            {"wrong_transaction"},
        ),
        "written under a producer id that another client reported": (
            Tiny(
                "p1 identity 7\n p1 commit ok a:0-4\n p2 identity 8\n p2 commit ok b:0-4",
                {"a": "p1:0-4 .", "b": "p2:0-4 ."},
                raw={"a": "p1:0-4#8 C8", "b": "p2:0-4#8 C8"},
            ),
            {"wrong_transaction"},
        ),
    },
    "corrupted_output": {
        "one output": (
            Tiny(STATEFUL, {"i": "p1:0-1 .", "o": "p9:0<p1:0$ p9:1<p1:1! ."}, expect=pipeline(), consumed=2),
            {"corrupted_output"},
        ),
        "every output": (
            Tiny(STATEFUL, {"i": "p1:0-1 .", "o": "p9:0<p1:0! p9:1<p1:1! ."}, expect=pipeline(), consumed=2),
            {"corrupted_output"},
        ),
        "the second of two outputs of an input": (
            Tiny(
                "p1 commit ok i:0-0\n p9 offsets i:1\n p9 commit ok o:0-1\n group i:1",
                {"i": "p1:0 .", "o": "p9:0<p1:0/0$ p9:1<p1:0/1! ."},
                expect=pipeline(outputs=2),
                consumed=1,
            ),
            {"corrupted_output"},
        ),
    },
}

NEAR_MISSES: dict[str, dict[str, Tiny]] = {
    "fate_mismatch": {
        "an unknown one that committed": Tiny(
            "p1 commit ok a:0-4\n p1 commit info a:5-9 b:0-4",
            {"a": "p1:0-4 . p1:5-9 .", "b": "p1:0-4 ."},
            raw={"a": "p1:0-4 C1 p1:5-9 C1", "b": "p1:0-4 C1"},
        ),
        "an unknown one that aborted": Tiny(
            "p1 commit ok a:0-4\n p1 commit none a:5-9 b:0-4",
            {"a": "p1:0-4 . . . . . . .", "b": ". . . . . ."},
            raw={"a": "p1:0-4 C1 p1:5-9 A1", "b": "p1:0-4 A1"},
        ),
        "an aborted one, and a marker without records": Tiny(
            "p1 commit ok a:0-4\n p1 abort ok a:5-5",
            {"a": "p1:0-4 . . . ."},
            raw={"a": "p1:0-4 C1 p1:5 A1 A1"},
        ),
        "transactions of two producers interleave": Tiny(
            "p1 commit ok a:0-1\n p2 abort ok a:0-1",
            {"a": "p1:0 . p1:1 . . ."},
            raw={"a": "p1:0 p2:0 p1:1 p2:1 A2 C1"},
        ),
        "a killed client's transaction was aborted": Tiny(
            "p1 commit ok a:0-4\n p1 begin", {"a": "p1:0-4 . . . ."}, raw={"a": "p1:0-4 C1 p1:5-6 A1"}
        ),
    },
    "wrong_transaction": {
        "the right labels": Tiny(
            "p1 commit ok a:0-4\n p1 abort ok a:5-9\n p1 commit ok a:10-14",
            {"a": "p1:0-4~1c . . . . . . . p1:10-14~3c ."},
            raw={"a": "p1:0-4~1c C1 p1:5-9~2a A1 p1:10-14~3c C1"},
        ),
        "meant to be committed, but aborted": Tiny(
            "p1 commit ok a:0-4\n p1 abort ok a:5-9",
            {"a": "p1:0-4~1c . . . . . . ."},
            raw={"a": "p1:0-4~1c C1 p1:5-9~2c A1"},
        ),
        "records without labels": Tiny(
            "p1 commit ok a:0-4\n p1 commit ok a:5-9",
            {"a": "p1:0-4~1c . p1:5-9 ."},
            raw={"a": "p1:0-4~1c C1 p1:5-9 C1"},
        ),
        "one transaction in two lanes of one partition, alternately": Tiny(
            "p1 commit ok a:0-1 b:0-0",
            {"a": "p1:0~1c p1:1~1c .", "b": "p1:0~1c ."},
            raw={"a": "p1:0-1~1c C1", "b": "p1:0~1c C1"},
        ),
        "sends with a partly known result": Tiny(
            "p2 send info a:0-9 +a:0-4 -a:9\n p2 send ok a:10-12\n p1 commit ok a:0-0",
            {"a": "p2:0-6 p2:10-12 p1:0~1c ."},
            PLAIN,
        ),
        "a successor with the same transactional id and producer id": Tiny(
            "p1 identity 7\n p1 commit ok a:0-4\n p2 identity 7\n p2 commit ok a:0-4",
            {"a": "p1:0-4 . p2:0-4 ."},
            SAME_ID,
            raw={"a": "p1:0-4#7 C7 p2:0-4#7 C7"},
        ),
        "a producer id that another client failed to get": Tiny(
            "p2 identity 8\n p1 commit ok a:0-4", {"a": "p1:0-4 ."}, raw={"a": "p1:0-4#8 C8"}, change=refused
        ),
        "the producer id changed": Tiny(
            "p1 identity 7\n p1 commit ok a:0-4\n p1 identity 8\n p1 commit ok a:5-9",
            {"a": "p1:0-4 . p1:5-9 ."},
            raw={"a": "p1:0-4#7 C7 p1:5-9#8 C8"},
        ),
    },
    "corrupted_output": {
        "outputs with the checksum of their input": Tiny(
            STATEFUL, {"i": "p1:0-1 .", "o": "p9:0<p1:0$ p9:1<p1:1$ ."}, expect=pipeline(), consumed=2
        ),
        "an output without a checksum": Tiny(
            STATEFUL, {"i": "p1:0-1 .", "o": "p9:0<p1:0$ p9:1<p1:1 ."}, expect=pipeline(), consumed=2
        ),
        "an input that was sent with a label": Tiny(
            STATEFUL,
            {"i": "p1:0-1~1c .", "o": "p9:0<p1:0~1c$ p9:1<p1:1~1c$ ."},
            expect=pipeline(),
            consumed=2,
        ),
        "an output in an aborted transaction": Tiny(
            "p1 commit ok i:0-1\n p9 abort ok o:0-0\n p9 offsets i:2\n p9 commit ok o:1-2\n group i:2",
            {"i": "p1:0-1 .", "o": ". . p9:1<p1:0$ p9:2<p1:1$ ."},
            expect=pipeline(),
            consumed=2,
        ),
    },
}

UNKNOWN: dict[str, Tiny] = {
    "a transaction recorded as committed has no marker": Tiny(
        "p1 commit ok a:0-4\n p1 commit ok a:5-9",
        {"a": "p1:0-4 ."},
        hw={"a": 11},
        raw={"a": "p1:0-4 C1 p1:5-9"},
    ),
    "the log has an aborted transaction that no history mentions": Tiny(
        "p1 commit ok a:0-4", {"a": "p1:0-4 . . ."}, raw={"a": "p1:0-4 C1 p3:0 A3"}
    ),
    "a producer id that its client never reported": Tiny(
        "p1 identity 7\n p1 commit ok a:0-4", {"a": "p1:0-4 ."}, raw={"a": "p1:0-4#9 C9"}
    ),
}
