"""Planted test cases for what live consumers were given, and for the order of real time."""

from __future__ import annotations

from tests.planted.cases_witnesses import Alone
from tests.planted.tiny import Tiny

PLAIN = {"p2": {"transactional_id": None}, "p3": {"transactional_id": None}}
LOOSE = {"transactional_id": None, "idempotent": False, "acks": "1"}
MEMBER = {"r1": {"group": "g"}, "r2": {"group": "g"}}
TEN = "p1 commit ok a:0-9"
LOG = {"a": "p1:0-9 ."}
TWO_CLOCKS = {"p3": {"clock": "other"}}
CYCLE = "@1 p1 read b@0 p3:0\n @2 p1 commit ok a:0-0\n @1 p3 read a@0 p1:0\n @3 p3 commit ok b:0-0"
CYCLE_LOG = {"a": "p1:0 .", "b": "p3:0 ."}
ACYCLIC_LOG = {"a": "p1:0-1 .", "b": "p3:0 ."}

# Each case has the exact set of anomaly names that the checkers must report.
CAUGHT: dict[str, dict[str, tuple[Tiny, set[str]]]] = {
    "poll_skip": {
        "between two polls": (Tiny(TEN + "\n r1 read a@0 p1:0-2\n r1 read a@5 p1:5-9", LOG), {"poll_skip"}),
        "inside one poll": (Tiny(TEN + "\n r1 read a@0 p1:0-2 a@4 p1:4-9", LOG), {"poll_skip"}),
        "behind a revocation that gave the partition to another member": (
            Tiny(
                TEN + "\n r1 assign a\n r1 read a@0 p1:0-4\n r1 revoke a\n r1 poll\n r1 assign a\n"
                "r1 read a@7 p1:7-9",
                LOG,
                MEMBER,
            ),
            {"poll_skip"},
        ),
        "one record behind a marker": (
            Tiny(
                "p1 commit ok a:0-4\n p1 commit ok a:5-9\n r1 read a@0 p1:0-4\n r1 read a@7 p1:6-9",
                {"a": "p1:0-4 . p1:5-9 ."},
            ),
            {"poll_skip"},
        ),
        "the records before the first poll of an assignment": (
            Tiny(TEN + "\n r1 assign a@0\n r1 read a@3 p1:3-9", LOG),
            {"poll_skip"},
        ),
        "the records behind a seek": (
            Tiny(TEN + "\n r1 read a@0 p1:0-9\n r1 seek a@2\n r1 read a@5 p1:5-9", LOG),
            {"poll_skip"},
        ),
        "by the next owner of a partition": (
            Tiny(
                TEN + "\n r1 assign a\n r1 read a@0 p1:0-4\n r1 revoke a\n r2 assign a\n r2 read a@7 p1:7-9",
                LOG,
                MEMBER,
            ),
            {"poll_skip"},
        ),
        "by the first owner of a partition": (
            Tiny(TEN + "\n r1 assign a\n r1 read a@1 p1:1-9", LOG, MEMBER),
            {"poll_skip"},
        ),
        "by a member, without a rebalance": (
            Tiny(TEN + "\n r1 assign a\n r1 read a@0 p1:0-4\n r2 assign b\n r1 read a@7 p1:7-9", LOG, MEMBER),
            {"poll_skip"},
        ),
        "inside one poll of a member without a list of its rebalances": (
            Tiny(TEN + "\n r1 read a@0 p1:0-2 a@4 p1:4-9", LOG, MEMBER),
            {"poll_skip"},
        ),
        "behind a position that an aborted transaction had": (
            Tiny(
                "p1 commit ok i:0-9\n p9 assign i\n p9 read i@0 p1:0-4\n p9 offsets i:5\n p9 abort ok\n"
                "p9 revoke i\n p9 assign i\n p9 read i@5 p1:5-9",
                {"i": "p1:0-9 ."},
                {"p9": {"group": "g"}},
            ),
            {"poll_skip"},
        ),
        "behind a seek with an unclear result": (
            Tiny(TEN + "\n r1 read a@0 p1:0-4\n r1 seek info a@2\n r1 read a@2 p1:2 a@6 p1:6-9", LOG),
            {"poll_skip"},
        ),
        "inside one word, and the witness keeps no runs": (
            Alone(TEN + "\n r1 read a@0 p1:0-2\n r1 read a@5 p1:5-9", LOG),
            {"poll_skip"},
        ),
        "whole words, and the witness keeps no runs": (
            Alone(
                "p1 commit ok a:0-999\n r1 read a@0 p1:0-199\n r1 read a@800 p1:800-999", {"a": "p1:0-999"}
            ),
            {"poll_skip"},
        ),
        "between the records of another producer, and the witness keeps no runs": (
            Alone(
                "p1 commit ok a:0-5\n p3 commit ok a:0-5\n r1 read a@0 p1:0-1 a@2 p3:0-1\n r1 read a@9 p1:5",
                {"a": "p1:0-1 p3:0-1 . p1:2-4 . p1:5 p3:2-5 . ."},
            ),
            {"poll_skip"},
        ),
        "right behind a seek into a full word, and the witness keeps no runs": (
            Alone(TEN + "\n r1 seek a@2\n r1 read a@4 p1:4-9", LOG),
            {"poll_skip"},
        ),
        "behind a seek, and the witness keeps no runs": (
            Alone(
                "p1 commit ok a:0-2\n p1 commit ok a:3-9\n r1 seek a@0\n r1 read a@0 p1:0-1\n"
                "r1 read a@6 p1:5-9",
                {"a": "p1:0-2 . p1:3-9 ."},
            ),
            {"poll_skip"},
        ),
        "in one of two partitions": (
            Tiny(
                "p1 commit ok a:0-4 b:0-4\n r1 read a@0 p1:0-4 b@0 p1:0\n r1 read b@3 p1:3-4",
                {"a": "p1:0-4 .", "b": "p1:0-4 ."},
            ),
            {"poll_skip"},
        ),
    },
    "nonmonotonic_poll": {
        "one step back, and then on from the highest position": (
            Tiny(
                "p1 commit ok a:0-14\n r1 read a@0 p1:0-9\n r1 read a@3 p1:3-4\n r1 read a@10 p1:10-14",
                {"a": "p1:0-14"},
            ),
            {"nonmonotonic_poll"},
        ),
        "back at the next poll": (
            Tiny(TEN + "\n r1 read a@0 p1:0-4\n r1 read a@2 p1:2-9", LOG),
            {"nonmonotonic_poll"},
        ),
        "shuffled inside one poll": (
            Tiny(TEN + "\n r1 read a@1 p1:1 a@0 p1:0 a@2 p1:2-9", LOG),
            {"nonmonotonic_poll"},
        ),
        "shuffled inside the first poll of an assignment": (
            Tiny(TEN + "\n r1 assign a@0\n r1 read a@1 p1:1 a@0 p1:0 a@2 p1:2-9", LOG),
            {"nonmonotonic_poll"},
        ),
        "one record twice inside one poll": (
            Tiny(TEN + "\n r1 read a@0 p1:0-4 a@4 p1:4-9", LOG),
            {"nonmonotonic_poll"},
        ),
        "to the beginning": (
            Tiny(TEN + "\n r1 assign a@0\n r1 read a@0 p1:0-9\n r1 read a@0 p1:0-9", LOG),
            {"nonmonotonic_poll"},
        ),
        "a member, without a rebalance": (
            Tiny(TEN + "\n r1 assign a\n r1 read a@0 p1:0-4\n r1 read a@3 p1:3-9", LOG, MEMBER),
            {"nonmonotonic_poll"},
        ),
        "a member, with a rebalance of another partition": (
            Tiny(
                TEN + "\n r1 assign a b\n r1 read a@0 p1:0-4\n r1 revoke b\n r1 read a@3 p1:3-9", LOG, MEMBER
            ),
            {"nonmonotonic_poll"},
        ),
        "back, and then on from the highest record": (
            Tiny(TEN + "\n r1 read a@0 p1:0-6\n r1 read a@0 p1:0-2\n r1 read a@7 p1:7-9", LOG),
            {"nonmonotonic_poll"},
        ),
        "before the offset of a seek": (
            Tiny(TEN + "\n r1 read a@0 p1:0-4\n r1 seek a@3\n r1 read a@1 p1:1-9", LOG),
            {"nonmonotonic_poll"},
        ),
    },
    "unseen": {
        "the last record": (
            Tiny(TEN + "\n r1 assign a@0\n r1 read a@0 p1:0-8\n r1 caught-up a@11", LOG),
            {"unseen"},
        ),
        "a whole partition": (Tiny(TEN + "\n r1 assign a@0\n r1 caught-up a@11", LOG), {"unseen"}),
        "by all members of a group": (
            Tiny(
                TEN + "\n r1 assign a\n r1 read a@0 p1:0-4\n r1 revoke a\n r2 assign a\n r2 read a@5 p1:5-7\n"
                "r2 caught-up a@11",
                LOG,
                MEMBER,
            ),
            {"unseen"},
        ),
        "in the middle, so it was also skipped": (
            Tiny(TEN + "\n r1 read a@0 p1:0-4\n r1 read a@6 p1:6-9\n r1 caught-up a@11", LOG),
            {"unseen", "poll_skip"},
        ),
        "the last record, and the witness keeps no runs": (
            Alone(TEN + "\n r1 assign a@0\n r1 read a@0 p1:0-8\n r1 caught-up a@11", LOG),
            {"unseen"},
        ),
        "in a word with gaps, and the witness keeps no runs": (
            Alone(
                "p1 commit ok a:0-2\n p1 commit ok a:3-9\n r1 assign a@0\n r1 read a@0 p1:0-1\n"
                "r1 read a@5 p1:4-9\n r1 caught-up a@12",
                {"a": "p1:0-2 . p1:3-9 ."},
            ),
            {"unseen", "poll_skip"},
        ),
        "of two readers, one": (
            Tiny(
                TEN + "\n r1 assign a@0\n r1 read a@0 p1:0-9\n r1 caught-up a@11\n"
                "r2 assign a@0\n r2 read a@0 p1:0-5\n r2 caught-up a@11",
                LOG,
            ),
            {"unseen"},
        ),
    },
    "g1c": {
        "two transactions on two clocks": (Tiny(CYCLE, CYCLE_LOG, TWO_CLOCKS), {"g1c"}),
        "two transactions on one clock": (Tiny(CYCLE, CYCLE_LOG), {"g1c", "early_read"}),
        "three transactions on three clocks": (
            Tiny(
                "@1 p1 read b@0 p2:0\n @2 p1 commit ok a:0-0\n @1 p2 read b@1 p3:0\n @2 p2 commit ok b:0-0\n"
                "@1 p3 read a@0 p1:0\n @2 p3 commit ok b:0-0",
                {"a": "p1:0 .", "b": "p2:0 p3:0 ."},
                {"p2": {"clock": "second"}, "p3": {"clock": "third"}},
            ),
            {"g1c"},
        ),
        "a transaction and a send on two clocks": (
            Tiny(
                CYCLE.replace("p3 commit", "p3 send"),
                CYCLE_LOG,
                {"p3": {"clock": "other", "transactional_id": None}},
            ),
            {"g1c"},
        ),
        "two transactions with unclear ends": (
            Tiny(CYCLE.replace("commit ok", "commit info"), CYCLE_LOG, TWO_CLOCKS),
            {"g1c"},
        ),
    },
    "g1c_realtime": {
        "through a transaction that began later on the same host": (
            Tiny(
                "@1 p1 read b@0 p3:0\n @2 p1 commit ok a:0-0\n @5 p4 commit ok a:0-0\n"
                "@1 p3 read a@2 p4:0\n @2 p3 commit ok b:0-0",
                {"a": "p1:0 . p4:0 .", "b": "p3:0 ."},
                TWO_CLOCKS,
            ),
            {"g1c_realtime"},
        ),
        "through a send that was requested later on the same host": (
            Tiny(
                "@1 p1 read b@0 p3:0\n @2 p1 commit ok a:0-0\n @5 p2 send ok a:0-0\n"
                "@1 p3 read a@2 p2:0\n @2 p3 commit ok b:0-0",
                {"a": "p1:0 . p2:0", "b": "p3:0 ."},
                {**TWO_CLOCKS, "p2": {"transactional_id": None}},
            ),
            {"g1c_realtime"},
        ),
        "through both hosts": (
            Tiny(
                "@1 p1 read b@0 p3:0\n @2 p1 commit ok a:0-0\n @5 p4 commit ok a:0-0\n"
                "@1 p5 read a@2 p4:0\n @2 p5 commit ok a:0-0\n @7 p3 commit ok b:0-0",
                {"a": "p1:0 . p4:0 . p5:0 .", "b": "p3:0 ."},
                {**TWO_CLOCKS, "p5": {"clock": "other"}},
            ),
            {"g1c_realtime"},
        ),
    },
    "duplicate": {
        "a copy behind a later send, which does not make the later send early": (
            Tiny("@1-2 p2 send ok a:0-4\n @3-4 p3 send ok a:0-4", {"a": "p2:0-4 p3:0-4 p2:0"}, PLAIN),
            {"duplicate"},
        )
    },
    "early_read": {
        "a send, by a live reader": (
            Tiny("@1 r1 read a@0 p2:0-4\n @2 p2 send ok a:0-4", {"a": "p2:0-4"}, PLAIN),
            {"early_read"},
        ),
        "a send in the middle of a run of records": (
            Tiny("@1 p2 send ok a:0-4\n @5 r1 read a@3 p2:3-6\n @6 p2 send ok a:5-9", {"a": "p2:0-9"}, PLAIN),
            {"early_read"},
        ),
        "a send, by a witness that had finished": (
            Tiny("p2 send ok a:0-4\n @9 p2 send ok a:5-9", {"a": "p2:0-9"}, PLAIN, finished=8),
            {"early_read"},
        ),
        "a send without an answer": (
            Tiny("@1 r1 read a@0 p2:0-4\n @2 p2 send none a:0-4", {"a": "p2:0-4"}, PLAIN),
            {"early_read"},
        ),
    },
    "reordered": {
        "a later send at a lower offset": (
            Tiny("@1-2 p2 send ok a:0-4\n @3-4 p3 send ok a:0-4", {"a": "p3:0-4 p2:0-4"}, PLAIN),
            {"reordered"},
        ),
        "a later send at a lower offset, as acknowledged": (
            Tiny("@1-2 p2 send ok a:0-4>5\n @3-4 p3 send ok a:0-4>0", {"a": "p3:0-4 p2:0-4"}, PLAIN),
            {"reordered"},
        ),
        "a later send without an answer": (
            Tiny("@1-2 p2 send ok a:0-4\n @3 p3 send none a:0-4", {"a": "p3:0-1 p2:0-4"}, PLAIN),
            {"reordered"},
        ),
        "a send after a committed transaction": (
            Tiny("@1-2 p1 commit ok a:0-4\n @3-4 p2 send ok a:0-4", {"a": "p2:0-4 p1:0-4 ."}, PLAIN),
            {"reordered"},
        ),
        "a transaction that began after an acknowledgement": (
            Tiny(
                "@1-2 p2 send ok a:0-4\n @3 p1 begin\n @4-5 p1 commit ok a:0-4",
                {"a": "p1:0-4 p2:0-4 ."},
                PLAIN,
            ),
            {"reordered"},
        ),
        "as the acknowledgements show, and the witness keeps no runs": (
            Alone("@1-2 p2 send ok a:0-4>5\n @3-4 p3 send ok a:0-4>0", {"a": "p3:0-4 p2:0-4"}, PLAIN),
            {"reordered"},
        ),
        "without offsets of acknowledgements, and the witness keeps no runs": (
            Alone("@1-2 p2 send ok a:0-4\n @3-4 p3 send ok a:0-4", {"a": "p3:0-4 p2:0-4"}, PLAIN),
            {"reordered"},
        ),
        "inside words of several sends, and the witness keeps no runs": (
            Alone(
                "@1-2 p2 send ok a:0-9\n @3-4 p2 send ok a:10-19\n @5-6 p3 send ok a:0-9",
                {"a": "p2:0-9 p3:0-9 p2:10-19"},
                PLAIN,
            ),
            {"reordered"},
        ),
        "only an acknowledgement places the send, and the witness keeps no runs": (
            Alone(
                "@1-2 p2 send ok a:0-2\n @3-4 p2 send ok a:3-5>9\n @5-6 p3 send ok a:0-0\n"
                "@7-8 p2 send ok a:6-9",
                {"a": "p2:0-2 . . . . p3:0 . p2:3-5 . . p2:6-9"},
                PLAIN,
            ),
            {"reordered"},
        ),
        "one record of a long log": (
            Tiny(
                "@1-2 p2 send ok a:0-99\n @3-4 p3 send ok a:0-4", {"a": "p2:0-49 p3:0 p2:50-99 p3:1-4"}, PLAIN
            ),
            {"reordered"},
        ),
    },
}

NEAR_MISSES: dict[str, dict[str, Tiny]] = {
    "poll_skip": {
        "a partition that was assigned again during the poll": Tiny(
            TEN + "\n r1 assign a@0\n r1 read a@0 p1:0-4\n r1 poll\n r1 assign a@0\n r1 read a@5 p1:5-9", LOG
        ),
        "records after a poll in which the position was moved": Tiny(
            TEN + "\n r1 assign a@0\n r1 poll\n r1 revoke a\n r1 assign a@0\n r1 read a@0 p1:0-4\n "
            "r1 read a@5 p1:5-9",
            LOG,
        ),
        "markers and aborted records": Tiny(
            "p1 commit ok a:0-4\n p1 abort ok a:5-9\n p1 commit ok a:10-14\n"
            "r1 assign a@0\n r1 read a@0 p1:0-4\n r1 read a@12 p1:10-14",
            {"a": "p1:0-4 . . . . . . . p1:10-14 ."},
        ),
        "markers, and the witness keeps no runs": Alone(
            "p1 commit ok a:0-9\n p1 commit ok a:10-19\n r1 read a@0 p1:0-9\n r1 read a@11 p1:10-19",
            {"a": "p1:0-9 . p1:10-19 ."},
        ),
        "records that an earlier poll returned, and the witness keeps no runs": Alone(
            "p1 commit ok a:0-4\n p1 commit ok a:5-9\n r1 read a@0 p1:0-4\n r1 read a@6 p1:5-9\n"
            "r1 seek a@2\n r1 read a@2 p1:2-4\n r1 read a@6 p1:5-9",
            {"a": "p1:0-4 . p1:5-9 ."},
        ),
        "a seek over records between two markers, and the witness keeps no runs": Alone(
            "p1 commit ok a:0-4\n p1 commit ok a:5-9\n p1 commit ok a:10-14\n r1 read a@0 p1:0-4\n"
            "r1 seek a@11\n r1 read a@12 p1:10-14",
            {"a": "p1:0-4 . p1:5-9 . p1:10-14 ."},
        ),
        "a jump by the client's own seek": Tiny(
            TEN + "\n r1 read a@0 p1:0-2\n r1 seek a@7\n r1 read a@7 p1:7-9", LOG
        ),
        "a reader that begins in the middle": Tiny(TEN + "\n r1 read a@3 p1:3-9", LOG),
        "an assignment that begins in the middle": Tiny(TEN + "\n r1 assign a@3\n r1 read a@3 p1:3-9", LOG),
        "the records that another member had read": Tiny(
            TEN + "\n r1 assign a\n r1 read a@0 p1:0-4\n r1 revoke a\n r2 assign a\n r2 read a@5 p1:5-7\n"
            "r2 revoke a\n r1 assign a\n r1 read a@8 p1:8-9",
            LOG,
            MEMBER,
        ),
        "a member without a list of its rebalances": Tiny(
            TEN + "\n r1 read a@0 p1:0-2\n r2 read a@3 p1:3-6\n r1 read a@7 p1:7-9", LOG, MEMBER
        ),
        "a rebalance during the poll": Tiny(
            TEN + "\n r1 assign a\n r1 read a@0 p1:0-2\n r2 assign a\n r2 read a@2 p1:2-6\n r1 poll\n"
            "r1 revoke a\n r1 assign a\n r1 read a@3 p1:3 a@7 p1:7-9",
            LOG,
            MEMBER,
        ),
        "behind the position of a transaction with an unclear end": Tiny(
            "p1 commit ok i:0-9\n p9 assign i\n p9 read i@0 p1:0-4\n p9 offsets i:5\n p9 commit info\n"
            "p9 revoke i\n p9 assign i\n p9 read i@5 p1:5-9",
            {"i": "p1:0-9 ."},
            {"p9": {"group": "g"}},
        ),
    },
    "nonmonotonic_poll": {
        "back to the committed position after a rebalance": Tiny(
            TEN + "\n r1 assign a\n r1 read a@0 p1:0-6\n r1 revoke a\n r1 assign a\n r1 read a@4 p1:4-9",
            LOG,
            MEMBER,
        ),
        "back by a seek": Tiny(TEN + "\n r1 read a@0 p1:0-6\n r1 seek a@4\n r1 read a@4 p1:4-9", LOG),
        "after a seek with an unclear result, which did not move the reader": Tiny(
            TEN + "\n r1 read a@0 p1:0-4\n r1 seek info a@2\n r1 read a@5 p1:5-9", LOG
        ),
        "after a seek with an unclear result, which moved the reader": Tiny(
            TEN + "\n r1 read a@0 p1:0-4\n r1 seek info a@2\n r1 read a@2 p1:2-9", LOG
        ),
        "after an unclear poll": Tiny(TEN + "\n r1 read a@0 p1:0-4\n r1 poll info\n r1 read a@3 p1:3-9", LOG),
        "a poll that was requested before the partition came back": Tiny(
            TEN + "\n r1 assign a\n r1 read a@0 p1:0-4\n r1 revoke a\n r1 poll\n r1 assign a\n"
            "r1 read a@2 p1:2-9",
            LOG,
            MEMBER,
        ),
        "two readers read the same": Tiny(TEN + "\n r1 read a@0 p1:0-9\n r2 read a@0 p1:0-9", LOG),
        "a member without a list of its rebalances": Tiny(
            TEN + "\n r1 read a@0 p1:0-6\n r1 read a@4 p1:4-9", LOG, MEMBER
        ),
        "a rebalance during the poll": Tiny(
            TEN + "\n r1 assign a\n r1 read a@0 p1:0-4\n r1 poll\n r1 revoke a\n r1 assign a\n"
            "r1 read a@5 p1:5-6 a@3 p1:3-9",
            LOG,
            MEMBER,
        ),
        "a rebalance behind the last record of a poll": Tiny(
            TEN + "\n r1 assign a\n r1 poll\n r1 revoke a\n r1 assign a\n r1 read a@0 p1:0-4\n"
            "r1 read a@2 p1:2-9",
            LOG,
            MEMBER,
        ),
        "a later offset of another partition": Tiny(
            "p1 commit ok a:0-4 b:0-4\n r1 read a@0 p1:0-4 b@0 p1:0-4\n r1 read b@5",
            {"a": "p1:0-4 .", "b": "p1:0-4 ."},
        ),
    },
    "unseen": {
        "all records": Tiny(TEN + "\n r1 assign a@0\n r1 read a@0 p1:0-9\n r1 caught-up a@11", LOG),
        "all records from the middle on, and the witness keeps no runs": Alone(
            "p1 commit ok a:0-9\n p3 commit ok a:0-9\n r1 read a@5 p1:5-9\n r1 read a@11 p3:0-9\n"
            "r1 caught-up a@22",
            {"a": "p1:0-9 . p3:0-9 ."},
        ),
        "records of two members, and the witness keeps no runs": Alone(
            TEN + "\n r1 assign a\n r1 read a@0 p1:0-4\n r1 revoke a\n r2 assign a\n r2 read a@5 p1:5-9\n"
            "r2 caught-up a@11",
            LOG,
            MEMBER,
        ),
        "a reader that does not claim to have caught up": Tiny(
            TEN + "\n r1 assign a@0\n r1 read a@0 p1:0-4", LOG
        ),
        "records behind the end that the reader reached": Tiny(
            TEN + "\n r1 assign a@0\n r1 read a@0 p1:0-4\n r1 caught-up a@5", LOG
        ),
        "records before the beginning of the assignment": Tiny(
            TEN + "\n r1 assign a@4\n r1 read a@4 p1:4-9\n r1 caught-up a@11", LOG
        ),
        "records that another member was given": Tiny(
            TEN + "\n r1 assign a\n r1 read a@0 p1:0-4\n r1 revoke a\n r2 assign a\n r2 read a@5 p1:5-9\n"
            "r2 caught-up a@11",
            LOG,
            MEMBER,
        ),
        "aborted records and markers": Tiny(
            "p1 commit ok a:0-4\n p1 abort ok a:5-9\n r1 assign a@0\n r1 read a@0 p1:0-4\n r1 caught-up a@12",
            {"a": "p1:0-4 . . . . . . ."},
        ),
    },
    "g1c": {
        "one transaction reads the other": Tiny(
            "@2 p1 commit ok a:0-1\n @3 p3 read a@0 p1:0-1\n @4 p3 commit ok b:0-0", ACYCLIC_LOG, TWO_CLOCKS
        ),
        "each reads an earlier transaction of the other": Tiny(
            "@1 p1 commit ok a:0-0\n @2 p3 read a@0 p1:0\n @3 p3 commit ok b:0-0\n @4 p1 read b@0 p3:0\n"
            "@5 p1 commit ok a:1-1\n @6 p3 read a@2 p1:1\n @7 p3 commit ok b:1-1",
            {"a": "p1:0 . p1:1 .", "b": "p3:0 . p3:1 ."},
            TWO_CLOCKS,
        ),
        "read_uncommitted": Tiny(
            "@1 p1 read b@0 p3:0-1\n @2 p1 commit ok a:0-0\n @1 p3 read a@0 p1:0\n @3 p3 commit ok b:0-1",
            {"a": "p1:0 .", "b": "p3:0-1 ."},
            {
                "p1": {"isolation": "read_uncommitted"},
                "p3": {"clock": "other", "isolation": "read_uncommitted"},
            },
        ),
        "a reader that writes nothing": Tiny(
            "@1 p1 commit ok a:0-1\n @1 p3 commit ok b:0-0\n @2 r1 read a@0 p1:0-1 b@0 p3:0",
            ACYCLIC_LOG,
            TWO_CLOCKS,
        ),
        "a poll after the own commit": Tiny(
            "@1 p1 commit ok a:0-1\n @2 p3 read a@0 p1:0-1\n @3 p3 commit ok b:0-0\n @4 p1 read b@0 p3:0",
            ACYCLIC_LOG,
            TWO_CLOCKS,
        ),
    },
    "g1c_realtime": {
        "a transaction that ended before": Tiny(
            "@1 p4 commit ok a:0-1\n @3 p1 read b@0 p3:0\n @4 p1 commit ok a:0-0\n"
            "@1 p3 read a@0 p4:0-1\n @2 p3 commit ok b:0-0",
            {"a": "p4:0-1 . p1:0 .", "b": "p3:0 ."},
            TWO_CLOCKS,
        ),
        "three clocks, so nothing orders the transactions": Tiny(
            "@1 p1 read b@0 p3:0\n @2 p1 commit ok a:0-0\n @5 p4 commit ok a:0-1\n"
            "@1 p3 read a@2 p4:0-1\n @2 p3 commit ok b:0-0",
            {"a": "p1:0 . p4:0-1 .", "b": "p3:0 ."},
            {**TWO_CLOCKS, "p4": {"clock": "third"}},
        ),
        "a clock that is an hour ahead": Tiny(
            "@3601 p1 commit ok a:0-1\n @2 p3 read a@0 p1:0-1\n @3 p3 commit ok b:0-0",
            ACYCLIC_LOG,
            TWO_CLOCKS,
        ),
    },
    "early_read": {
        "a send, right after it was requested": Tiny(
            "@1-9 p2 send ok a:0-4\n @2 r1 read a@0 p2:0-4", {"a": "p2:0-4"}, PLAIN
        ),
        "a send of another host": Tiny(
            "@1 r1 read a@0 p2:0-4\n @2 p2 send ok a:0-4",
            {"a": "p2:0-4"},
            {**PLAIN, "r1": {"clock": "other"}},
        ),
        "a send, by a witness of another clock that had finished": Tiny(
            "p1 commit ok a:0-1\n @9 p2 send ok b:0-4",
            {"a": "p1:0-1 .", "b": "p2:0-4"},
            {"p2": {"transactional_id": None, "clock": "other"}},
            finished=8,
        ),
    },
    "reordered": {
        "two sends at the same time": Tiny(
            "@1-3 p2 send ok a:0-4\n @2-4 p3 send ok a:0-4", {"a": "p3:0-4 p2:0-4"}, PLAIN
        ),
        "the right order, and the witness keeps no runs": Alone(
            "@1-2 p2 send ok a:0-4>0\n @3-4 p3 send ok a:0-4>5\n @5-6 p2 send ok a:5-9>10",
            {"a": "p2:0-4 p3:0-4 p2:5-9"},
            PLAIN,
        ),
        "two sends at the same time, and the witness keeps no runs": Alone(
            "@1-3 p2 send ok a:0-4\n @2-4 p3 send ok a:0-4", {"a": "p3:0-4 p2:0-4"}, PLAIN
        ),
        "a later send inside a word with gaps, and the witness keeps no runs": Alone(
            "@1-2 p2 send ok a:0-4\n @3-4 p3 send ok a:0-4\n @5-6 p2 send ok a:5-9",
            {"a": "p2:0-4 . p3:0-4 . p2:5-9"},
            PLAIN,
        ),
        "a later send of another host": Tiny(
            "@1-2 p2 send ok a:0-4\n @3-4 p3 send ok a:0-4",
            {"a": "p3:0-4 p2:0-4"},
            {**PLAIN, "p3": {"transactional_id": None, "clock": "other"}},
        ),
        "a later send in another partition": Tiny(
            "@1-2 p2 send ok a:0-4\n @3-4 p3 send ok b:0-4", {"a": ". . p2:0-4", "b": "p3:0-4"}, PLAIN
        ),
        "a transaction that may have begun before": Tiny(
            "@1-2 p2 send ok a:0-4\n @3-4 p1 commit ok a:0-4", {"a": "p1:0-4 p2:0-4 ."}, PLAIN
        ),
        "an earlier send without an answer": Tiny(
            "@1-2 p2 send info a:0-4\n @3-4 p3 send ok a:0-4", {"a": "p3:0-4 p2:0-4"}, PLAIN
        ),
    },
}

PERMITTED = {
    "reordered": Tiny(
        "@1-2 p2 send ok a:0-4\n @3-4 p3 send ok a:0-4",
        {"a": "p3:0-4 p2:0-4"},
        {"p2": LOOSE, "p3": {"transactional_id": None}},
    )
}
"""A broker may lose a record that it acknowledged without acks=all, and get it later once more."""
