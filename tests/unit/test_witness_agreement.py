"""Reasons that the comparison of two witnesses gives: what differs, where, and over which offsets."""

from __future__ import annotations

import numpy as np
import pytest

from harness.evidence.checkers import coverage, witness_agreement
from harness.evidence.checkers.model import Expect
from harness.evidence.observation import Observation
from tests.planted.cases_records import PLAIN
from tests.planted.cases_witnesses import Pair, finding, meta, words
from tests.planted.tiny import Tiny

HISTORY = "p2 send info a:0-599 b:0-9"


def reasons(pair: Pair) -> list[str]:
    return coverage.check(pair.evidence()).reasons


def compared(pair: Pair) -> int:
    return coverage.check(pair.evidence()).compared


def pair(first: dict[str, str], second: dict[str, str], **more: object) -> Pair:
    return Pair(HISTORY, first, PLAIN, spark=second, **more)  # type: ignore[arg-type]


WHOLE = {"a": "p2:0-599", "b": "p2:0-9"}


def test_only_partitions_that_both_witnesses_read_count_as_compared() -> None:
    # Two lanes, and the partitions that were compared.
    assert compared(pair(WHOLE, WHOLE)) == 4
    assert compared(pair(WHOLE, {"a": WHOLE["a"]})) == 3


def test_a_partition_that_one_promised_witness_did_not_read_is_named() -> None:
    assert reasons(pair(WHOLE, {"a": WHOLE["a"]})) == [
        "reader-all and spark were not compared in t-1: spark did not read it"
    ]


def test_different_frozen_ends_are_named_with_both_ends() -> None:
    assert reasons(pair(WHOLE, {**WHOLE, "b": "p2:0-9 . ."})) == [
        "witnesses read t-1 with different frozen ends: reader-all 10, spark 12"
    ]


def test_different_starts_are_named_although_all_records_are_after_both() -> None:
    def start_at_2(view: Observation) -> None:
        view.meta.windows[1].start = 2

    log = {**WHOLE, "b": ". . p2:0-9"}
    assert reasons(pair(log, log, changes=(start_at_2,))) == [
        "witnesses read t-1 with different starts: reader-all 0, spark 2"
    ]


def test_the_common_range_is_compared_although_the_ends_differ() -> None:
    longer = {**WHOLE, "a": "p2:0-99 . p2:100-599"}
    [ends, difference] = reasons(pair(WHOLE, longer))
    assert "different frozen ends: reader-all 600, spark 601" in ends
    assert "in t-0: of producer 2 lane 0, sequences 0-255" in difference
    assert "at offsets 0-255 and spark read 256 records at offsets 0-256" in difference


def test_records_after_the_common_end_are_no_difference() -> None:
    shorter = {"a": "p2:0-299", "b": "p2:0-9"}
    assert reasons(pair(shorter, WHOLE)) == [
        "witnesses read t-0 with different frozen ends: reader-all 300, spark 600"
    ]
    assert reasons(pair(shorter, WHOLE, runs=True)) == reasons(pair(shorter, WHOLE))


def test_a_word_that_crosses_the_common_end_must_contain_the_records_before_it() -> None:
    shorter, longer = {**WHOLE, "a": "p2:0-299"}, {**WHOLE, "a": "p2:0-259 . p2:261-599"}
    [_, missing] = reasons(pair(shorter, longer))
    assert "reader-all read 1 records that spark did not, such as sequences 260" in missing


def test_runs_before_the_common_end_are_compared_offset_by_offset() -> None:
    [_, difference, *_] = reasons(
        pair({"a": "p2:0-1 . p2:2", "b": WHOLE["b"]}, {"a": "p2:0 . p2:1-9", "b": WHOLE["b"]}, runs=True)
    )
    assert difference.startswith("witnesses disagree in t-0: reader-all read sequences 0-1 of producer 2")


def test_the_numbers_of_copies_are_compared() -> None:
    [reason] = reasons(pair(WHOLE, WHOLE, changes=(words(n=1), meta(records=611))))
    assert "reader-all read 256 records at offsets 0-255 and spark read 257 records" in reason


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("foreign", "foreign records: reader-all counted 0, spark counted 3"),
        ("repeats", "repeated records: reader-all counted 0, spark counted 3"),
        ("twice", "extra outputs: reader-all counted 0, spark counted 3"),
        ("late", "late records: reader-all counted 0, spark counted 3"),
    ],
)
def test_findings_are_compared(kind: str, text: str) -> None:
    assert reasons(pair(WHOLE, WHOLE, changes=(finding(kind, count=3),))) == [
        f"witnesses disagree about {text}"
    ]


def test_two_ways_to_count_late_records_are_no_difference() -> None:
    swapped = {**WHOLE, "b": "p2:1 p2:0 p2:2-9"}
    assert reasons(pair(swapped, swapped, changes=(finding("late", count=2),))) == []


def test_findings_of_other_windows_are_not_compared() -> None:
    assert reasons(pair(WHOLE, {**WHOLE, "i": "?"})) == []


def test_an_incomplete_promised_witness_is_named_with_its_reason() -> None:
    incomplete = (meta(complete=False, detail="not read to the end in time: t-1"),)
    assert reasons(pair(WHOLE, WHOLE, changes=incomplete)) == [
        "witness spark is incomplete: not read to the end in time: t-1"
    ]


def test_a_promised_witness_that_is_complete_in_one_observation_keeps_its_promise() -> None:
    case = pair(WHOLE, WHOLE)
    evidence = case.evidence()
    evidence.observations += pair(WHOLE, WHOLE, changes=(meta(complete=False),)).evidence().observations[-1:]
    assert coverage.check(evidence).reasons == []


def test_words_that_do_not_add_up_to_the_reported_records_are_named() -> None:
    [reason] = reasons(pair(WHOLE, WHOLE, changes=(meta(records=7),)))
    assert reason == "witness spark reports 7 records, but its words contain 610"


def test_a_live_reader_is_no_promised_witness() -> None:
    case = Tiny("p1 commit ok a:0-4\n r1 read a@0 p1:0-4", {"a": "p1:0-4 ."}, expect=Expect(witnesses=["r1"]))
    assert coverage.check(case.evidence()).reasons == ["witness r1 left no observation"]


def test_runs_are_united_only_if_offsets_and_sequences_follow_each_other() -> None:
    # offset, producer, lane, sequence, count
    rows = np.array([(0, 1, 0, 0, 2), (2, 1, 0, 2, 1), (3, 1, 0, 9, 1), (5, 1, 0, 10, 1), (6, 2, 0, 11, 1)])

    united = witness_agreement._united(rows)
    assert united.tolist() == [[0, 1, 0, 0, 3], [3, 1, 0, 9, 1], [5, 1, 0, 10, 1], [6, 2, 0, 11, 1]]


def test_a_record_that_only_one_witness_read_is_named_in_every_partition() -> None:
    missing, _ = reasons(pair(WHOLE, {**WHOLE, "b": "p2:0-8 ."}))

    assert missing == (
        "witnesses disagree: reader-all read 1 records that spark did not, such as sequences 9 of producer 2 "
        "lane 1"
    )


def test_late_records_are_not_compared_if_the_witnesses_take_other_copies_for_the_first_one() -> None:
    # The second copy of record 0 is in partition b. Only the first copy of a record can be late.
    log = {"a": "p2:1 p2:0", "b": "p2a:0"}
    case = pair(log, {"b": log["b"], "a": log["a"]})
    late = [view.meta.late.count for view in case.evidence().observations]

    assert late == [1, 0]
    assert reasons(case) == []
