"""Counts are of distinct records and transactions, whatever the number of witnesses that found them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from harness.evidence.checkers import visibility_index
from harness.evidence.checkers.check_run import describe
from harness.evidence.checkers.distinct import Copies, Grouped, RecordSet, Tally
from harness.evidence.checkers.model import Anomaly, Collector, Evidence, Example, join_names
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.observation import Findings, Observation, Spot
from tests.planted.cases_records import PLAIN
from tests.planted.cases_witnesses import Pair
from tests.planted.test_checker_planted import CAUGHT
from tests.planted.tiny import Tiny

SINGLE = [
    pytest.param(case, id=f"{name}: {label}") for name, label, case, _ in CAUGHT if not isinstance(case, Pair)
]


def copy_of(view: Observation, *, runs: bool) -> Observation:
    """Return the observation of another witness that read exactly the same."""
    meta = dataclasses.replace(view).meta
    meta = type(meta)(**{name: getattr(meta, name) for name in meta.__struct_fields__})
    meta.witness = f"{view.meta.witness}-2"
    return dataclasses.replace(view, meta=meta, runs=view.runs if runs else None)


def counts_of(judgement: Judgement) -> list[tuple[str, str, str, int, int]]:
    return [
        (result.property, anomaly.name, anomaly.unit, anomaly.count, len(anomaly.examples))
        for result in judgement.results
        for anomaly in (*result.anomalies, *result.permitted)
    ]


def compared_of(judgement: Judgement) -> dict[str, int]:
    """Return what each checker compared, except those that compare witnesses with each other."""
    between_witnesses = ("coverage", "offsets", "log_ends")
    return {r.property: r.compared for r in judgement.results if r.property not in between_witnesses}


def anomaly_of(evidence: Evidence, name: str) -> Anomaly:
    (anomaly,) = [a for result in judge(evidence).results for a in result.anomalies if a.name == name]
    return anomaly


@pytest.mark.parametrize("runs", [True, False], ids=["with runs", "without runs"])
@pytest.mark.parametrize("case", SINGLE)
def test_a_second_witness_that_read_the_same_changes_no_count(case: Tiny, runs: bool) -> None:
    evidence = case.evidence()
    once = judge(evidence)
    copies = [
        copy_of(view, runs=runs or view.meta.purpose != "all")
        for view in evidence.observations
        if view.meta.kind != "client"
    ]
    twice = judge(dataclasses.replace(evidence, observations=[*evidence.observations, *copies]))

    assert counts_of(twice) == counts_of(once)
    assert compared_of(twice) == compared_of(once)


def test_fifty_duplicates_seen_by_two_witnesses_are_fifty_duplicates() -> None:
    log = {"a": "p2:0-99 p2:0-49"}
    anomaly = anomaly_of(Pair("p2 send ok a:0-99", log, PLAIN).evidence(), "duplicate")

    assert (anomaly.count, anomaly.witnesses) == (50, ["reader-all", "spark"])
    assert [example.witness for example in anomaly.examples] == ["reader-all and spark"]
    assert anomaly.counted == "50 records, seen by reader-all and spark"


@pytest.mark.parametrize("order", [1, -1], ids=["cause last", "cause first"])
def test_the_witness_that_has_the_cause_describes_the_case(order: int) -> None:
    plain, with_cause = Example(what="5 records"), Example(what="5 records (new producer id)")
    out = Collector("exactly_once", "committed records")
    for witness, example in (("reader", plain), ("raw-log", with_cause))[::order]:
        out.add("duplicate", "records", Tally({"a": 5}), {"a": example}, witness=witness)

    (anomaly,) = out.result().anomalies
    assert [(e.what, e.witness) for e in anomaly.examples] == [
        ("5 records (new producer id)", "raw-log and reader")
    ]


@pytest.mark.parametrize("runs", [True, False], ids=["with runs", "named examples"])
def test_different_duplicates_of_two_witnesses_add_up(runs: bool) -> None:
    one, other = {"a": "p2:0-9 p2:3 ."}, {"a": "p2:0-9 . p2:4"}
    case = Pair("p2 send ok a:0-9", one, PLAIN, spark=other, runs=runs)

    assert anomaly_of(case.evidence(), "duplicate").count == 2


def test_different_losses_of_two_witnesses_add_up() -> None:
    case = Pair("p2 send ok a:0-9", {"a": "p2:0-7 . ."}, PLAIN, spark={"a": ". p2:1-8 ."})
    anomaly = anomaly_of(case.evidence(), "lost")

    assert (anomaly.count, anomaly.witnesses) == (3, ["reader-all", "spark"])


def test_a_record_that_is_lost_for_a_reader_and_by_its_acknowledgement_counts_once() -> None:
    case = Tiny("p2 send ok a:0-9\n r1 read a@8 p2:8-9\n r2 read a@9 p2:9", {"a": "p2:0-7"}, PLAIN)
    anomaly = anomaly_of(case.evidence(), "lost")

    assert anomaly.count == 2
    assert len(anomaly.examples) == 1


def test_an_example_of_a_lost_record_names_the_reader_and_the_line_of_its_poll() -> None:
    case = Tiny("p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-9", {"a": "p2:0-4"}, PLAIN)
    anomaly = anomaly_of(case.evidence(), "lost")

    (example,) = anomaly.examples
    assert (anomaly.count, example.weight) == (5, 5)
    assert "r1 was given sequences 5-9" in example.what
    assert ("r1", 3) in [(ref.client, ref.line) for ref in example.lines]


def test_an_example_of_a_lost_transaction_names_its_readers() -> None:
    case = Tiny(
        "p1 commit ok a:0-4\n p1 commit info a:5-9\n r1 read a@6 p1:5\n r2 read a@8 p1:7", {"a": "p1:0-4"}
    )
    anomaly = anomaly_of(case.evidence(), "lost")

    (example,) = anomaly.examples
    assert (anomaly.count, example.weight) == (5, 5)
    assert "transaction 2 of producer 1 was read by r1 and r2, but 5 of its records" in example.what
    assert {"r1", "r2"} <= {ref.client for ref in example.lines}


def test_late_records_that_witnesses_name_differently_add_up() -> None:
    evidence = Pair("p2 send ok a:0-9", {"a": "p2:0-9"}, PLAIN).evidence()
    for view, offset in zip(evidence.committed_views(), (3, 4), strict=True):
        spot = Spot(topic="t", partition=0, offset=offset, producer=2, lane=0, seq=1, other_seq=2)
        view.meta.late = Findings(compared=9, count=1, by_producer=[(2, 1)], examples=[spot])

    assert anomaly_of(evidence, "reordered").count == 2


def test_different_records_that_one_witness_read_at_one_offset_are_inconsistent() -> None:
    evidence = Tiny("p2 send ok a:0-9", {"a": "p2:0-9"}, PLAIN).evidence()
    [view] = evidence.committed_views()
    spot = Spot(topic="t", partition=0, offset=3, producer=2, lane=0, seq=3, other_offset=3, other_seq=4)
    view.meta.clashes = Findings(compared=10, count=2, by_producer=[(2, 2)], examples=[spot])

    assert anomaly_of(evidence, "inconsistent_offset").count == 2


def test_the_text_names_the_witnesses() -> None:
    text = describe(judge(Pair("p2 send ok a:0-9", {"a": "p2:0-9 p2:3"}, PLAIN).evidence()))

    assert "  duplicate: 1 records, seen by reader-all and spark\n" in text
    assert text.count("such as sequence 3") == 1


def test_names_are_joined_as_text() -> None:
    assert [join_names(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


def test_a_record_set_unites_subtracts_and_counts() -> None:
    lane, first, last = np.array([0, 0, 3]), np.array([0, 250, 10]), np.array([9, 600, 10])
    records = RecordSet.of_intervals(lane, first, last)
    middle = RecordSet.of_intervals(np.array([0]), np.array([255]), np.array([256]))

    assert len(records) == 10 + 351 + 1
    assert len(records | records) == len(records)
    assert len(records - middle) == len(records) - 2
    assert (records - middle).first(1) == [(0, [*range(10), *range(250, 255)])]
    assert len(RecordSet() | RecordSet()) == 0


def test_groups_of_records_are_united_one_by_one() -> None:
    def group(key: str, first: int, last: int) -> Grouped:
        return Grouped({key: RecordSet.of_intervals(*(np.array([n]) for n in (0, first, last)))})

    assert len(group("a", 0, 4) | group("a", 3, 9)) == 10
    assert len(group("a", 0, 4) | group("b", 3, 9)) == 5 + 7


def test_a_tally_is_the_largest_count_or_the_number_of_names() -> None:
    one = Tally({"a": 3, "b": 1}, {"a": frozenset({1})})
    two = Tally({"a": 2}, {"a": frozenset({2, 3, 4, 5})})

    assert (len(one), len(two), len(one | two)) == (4, 4, 6)


def test_copies_of_one_word_are_named_or_counted() -> None:
    named = np.array([[7, 1, 50], [7, 2, 51]])
    one = Copies(np.array([7]), np.array([2]), named)
    two = Copies(np.array([7, 8]), np.array([1, 4]), np.array([[7, 1, 60]]))

    assert (len(one), len(one | one), len(one | two)) == (2, 2, 3 + 4)


def test_a_collector_merges_examples_with_one_key() -> None:
    out = Collector("order", "records")
    for witness, weight in (("spark", 2), ("reader", 5)):
        example = Example(what=f"seen {weight} times", weight=weight)
        out.add("lost", "records", frozenset({1, 2}), {"case": example}, witness=witness)
    (anomaly,) = out.result().anomalies

    assert (anomaly.count, anomaly.witnesses) == (2, ["reader", "spark"])
    assert [(e.what, e.witness) for e in anomaly.examples] == [("seen 5 times", "reader and spark")]


def test_intervals_are_counted_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    history = "\n".join(f"p2 send ok a:{n}-{n}" for n in range(7))
    case = Tiny(history, {"a": "p2:0-4 p2:6"}, PLAIN)
    monkeypatch.setattr(visibility_index, "CHUNK", 2)

    assert anomaly_of(case.evidence(), "lost").count == 1


def test_a_zombie_that_a_fence_explains_is_in_no_pair_of_overlapping_inits() -> None:
    shared = {"p1": {"transactional_id": "x"}, "p2": {"transactional_id": "x"}}
    history = """@1-5 p1 init ok
        @2-3 p2 init ok
        @6-7 p1 commit info!_FENCED
        @8-9 p1 commit ok a:0-1
        @10-11 p2 commit ok b:0-1"""
    judgement = Tiny(history, {"a": "p1:0-1 .", "b": "p2:0-1 ."}, shared).judge()
    counts = [a.count for result in judgement.results for a in result.anomalies if a.name == "zombie_write"]
    assert counts == [1]
