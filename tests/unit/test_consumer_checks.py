"""Counts of the checks of consumers, sets of offsets, and the lag of readers."""

from __future__ import annotations

import random

from harness.evidence.checkers.model import Verdict
from harness.evidence.checkers.offset_ranges import OffsetRanges
from harness.evidence.checkers.verdict import Judgement
from tests.planted.tiny import Tiny

TEN = "p1 commit ok a:0-9"
LOG = {"a": "p1:0-9 ."}


def counts(judgement: Judgement) -> dict[str, int]:
    return {a.name: a.count for result in judgement.results for a in result.anomalies}


def test_a_record_that_two_readers_skip_counts_once() -> None:
    history = TEN + "\n r1 read a@0 p1:0-2\n r2 read a@0 p1:0-3\n r1 read a@6 p1:6-9\n r2 read a@7 p1:7-9"

    assert counts(Tiny(history, LOG).judge()) == {"poll_skip": 4}


def test_a_record_that_two_readers_were_not_given_counts_once() -> None:
    readers = "\n".join(f"r{n} assign a@0\n r{n} read a@0 p1:0-{n}\n r{n} caught-up a@11" for n in (3, 5))

    assert counts(Tiny(f"{TEN}\n{readers}", LOG).judge()) == {"unseen": 6}


def test_a_send_that_two_witnesses_read_early_or_out_of_order_counts_once() -> None:
    plain = {"p2": {"transactional_id": None}, "p3": {"transactional_id": None}}
    early = "@1 r1 read a@0 p2:0-4\n @1 r2 read a@2 p2:2-4\n @2 p2 send ok a:0-4"
    inverted = "@1-2 p2 send ok a:0-4\n @3-4 p3 send ok a:0-4\n @5 r1 read a@0 p3:0-4 a@5 p2:0-4"

    assert counts(Tiny(early, {"a": "p2:0-4"}, plain).judge()) == {"early_read": 5}
    assert counts(Tiny(inverted, {"a": "p3:0-4 p2:0-4"}, plain).judge()) == {"reordered": 1}


def test_an_incomplete_witness_shows_no_skip() -> None:
    history = TEN + "\n r1 read a@0 p1:0-2\n r1 read a@5 p1:5-9"

    judgement = Tiny(history, LOG, complete=False).judge()

    assert judgement.names() == []
    assert judgement.verdict is Verdict.UNKNOWN


def test_the_worst_lag_of_a_reader_is_noted() -> None:
    history = (
        "@1-2 p1 commit ok a:0-4\n @3-4 p1 commit ok a:5-9\n @3 r1 read a@0 p1:0-4\n @11 r1 read a@6 p1:5-9\n"
        "r1 seek a@0\n @60 r1 read a@0 p1:0-4\n @80 r2 read a@0 p1:0-4"
    )

    notes = Tiny(history, {"a": "p1:0-4 . p1:5-9 ."}).judge().notes

    assert [note for note in notes if "at most" in note] == [
        "r1: it got each record at most 7.0 s after the acknowledgement",
        "r2: it got each record at most 0.0 s after the acknowledgement",
    ]


def test_sets_of_offsets_agree_with_python_sets() -> None:
    draw = random.Random(5)
    for _ in range(300):
        starts = [[draw.randint(0, 30) for _ in range(draw.randint(0, 6))] for _ in range(2)]
        pairs = [[(first, first + draw.randint(0, 6)) for first in part] for part in starts]
        sets = [{offset for low, high in part for offset in range(low, high)} for part in pairs]
        ranges = [OffsetRanges.of(part) for part in pairs]
        low, high = sorted(draw.sample(range(36), 2))
        inside = set(range(low, high))

        assert members(ranges[0]) == sets[0]
        assert len(ranges[0]) == len(sets[0])
        assert members(ranges[0].minus(ranges[1])) == sets[0] - sets[1]
        assert members(ranges[0].within(low, high)) == sets[0] & inside
        assert ranges[0].count(low, high) == len(sets[0] & inside)


def members(ranges: OffsetRanges) -> set[int]:
    return {offset for first, end in ranges.pairs() for offset in range(first, end)}


def test_a_skip_begins_behind_the_highest_record_that_was_given_before() -> None:
    history = TEN + "\n r1 read a@0 p1:0-6\n r1 read a@0 p1:0-2\n r1 read a@8 p1:8-9"
    judgement = Tiny(history, LOG).judge()

    assert counts(judgement) == {"poll_skip": 1, "nonmonotonic_poll": 1}
    [skip] = [a for result in judgement.results for a in result.anomalies if a.name == "poll_skip"]
    assert "it was given offset 8 instead of 7" in skip.examples[0].what


def test_an_inversion_that_kafka_forbids_is_not_listed_as_permitted_too() -> None:
    plain = {"p2": {"transactional_id": None}, "p3": {"transactional_id": None}}
    history = "@1-2 p2 send ok a:0-4\n @3-4 p3 send ok a:0-4"
    judgement = Tiny(history, {"a": "p3:0-4 p2:0-4"}, plain).judge()

    assert counts(judgement) == {"reordered": 1}
    assert [anomaly for result in judgement.results for anomaly in result.permitted] == []
