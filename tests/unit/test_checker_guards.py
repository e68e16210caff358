"""Guards of the checkers: evidence that is incomplete, of another group or of another isolation level."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest

from harness.evidence.checkers import coverage, fencing, given_records, offsets
from harness.evidence.checkers.bitsets import BitSet
from harness.evidence.checkers.given_records import gone_records
from harness.evidence.checkers.model import Collector, Evidence, Example, Expect, Result, Verdict
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import HistoryFile
from harness.evidence.ledger import fold
from harness.evidence.observation import WORD, Observation
from tests.planted.cases_records import PLAIN
from tests.planted.cases_systems import PIPE, SHARED, TEN, piped
from tests.planted.cases_witnesses import Pair
from tests.planted.tiny import Line, Tiny


def with_view(evidence: Evidence, view: Observation, **fields: object) -> Evidence:
    """Return the evidence with one more observation, whose metadata have the given values."""
    meta = msgspec.structs.replace(view.meta, **fields)
    return dataclasses.replace(
        evidence, observations=[*evidence.observations, dataclasses.replace(view, meta=meta)]
    )


def without_runs(case: Tiny) -> Evidence:
    evidence = case.evidence()
    for view in evidence.observations:
        view.runs = None
    return evidence


def reasons_of(judgement: Judgement) -> str:
    return " ".join(reason for result in judgement.results for reason in result.reasons)


def test_a_reason_for_unknown_does_not_hide_an_anomaly() -> None:
    out = Collector("order", "records")
    out.compared = 1
    out.reasons.append("the witness is damaged")
    out.add("reordered", "records", 1, [Example(what="late")])

    assert out.result().verdict is Verdict.INVALID


def test_no_neighbours_to_compare_leave_the_order_unknown() -> None:
    case = Tiny("p2 send ok a:0", {"a": "p2:0"}, PLAIN, expect=Expect(properties=["order"]))

    assert case.judge().verdict is Verdict.UNKNOWN


def test_a_witness_with_read_uncommitted_proves_nothing_about_committed_records() -> None:
    history = "p1 commit ok a:0-4\n p1 abort ok a:5-9\n p1 commit info a:10-14"
    committed, dirty = {"a": "p1:0-4" + " ." * 12}, {"a": "p1:0-4 . p1:5-9 . p1:10-14"}
    other = Tiny(history, dirty).evidence().observations[0]
    evidence = with_view(
        Tiny(history, committed).evidence(), other, witness="dirty", isolation="read_uncommitted"
    )

    assert judge(evidence).names() == []
    assert judge(evidence).verdict is Verdict.VALID


@pytest.mark.parametrize("missing", [1, 7])
def test_a_large_transaction_is_torn_as_well(missing: int) -> None:
    case = Tiny(
        "p1 commit info a:0-1999\n p1 commit ok a:2000-2004", {"a": f"p1:{missing}-1999 . p1:2000-2004 ."}
    )

    assert case.judge().names() == ["torn_transaction"]


@pytest.mark.parametrize(
    ("acked", "log"),
    [
        ("a:0-4>0", ". . . . . . . . . . p2:0-4"),
        ("a:0-4>50", "p2:0-4"),
        ("a:0-300>0", "p2:0-255 " + ". " * 400 + "p2:256-300"),
    ],
    ids=["read above", "read below", "only the last record"],
)
def test_an_acknowledged_offset_is_compared_with_the_words_of_a_witness(acked: str, log: str) -> None:
    evidence = without_runs(Tiny(f"p2 send ok {acked}", {"a": log}, PLAIN))

    assert judge(evidence).names() == ["inconsistent_offset"]


def test_a_witness_that_kept_the_runs_of_a_part_of_its_records_is_compared_by_words() -> None:
    evidence = Tiny("p2 send ok a:0-9\n r1 read a@2 p2:2-8", {"a": "p2:0-9"}, PLAIN).evidence()
    runs = evidence.observations[0].runs
    assert runs is not None
    evidence.observations[0].runs = runs[:0]

    assert judge(evidence).names() == []


def test_offsets_that_only_one_source_reports_are_not_compared() -> None:
    history = "p1 commit ok a:0-9"
    alone = Tiny(history, {"a": "p1:0-9 ."}).judge()
    demanded = Tiny(history, {"a": "p1:0-9 ."}, expect=Expect(properties=["offsets"])).judge()
    read_twice = Tiny(f"{history}\n r1 read a@2 p1:2-5\n r1 read a@4 p1:4-5", {"a": "p1:0-9 ."}).judge()

    assert "offsets" not in [result.property for result in alone.results]
    assert demanded.verdict is Verdict.UNKNOWN
    assert [r.compared for r in read_twice.results if r.property == "offsets"] == [4]


def test_offsets_of_several_sources_count_once() -> None:
    history = "p2 send ok a:0-9>0\n r1 read a@0 p2:0-9\n r2 read a@5 p2:5-9"
    judgement = Tiny(history, {"a": "p2:0-9"}, PLAIN).judge()

    assert [r.compared for r in judgement.results if r.property == "offsets"] == [10]


def test_a_reader_that_was_cut_short_proves_no_missing_output() -> None:
    case = piped(TEN)
    half = piped(TEN.replace("p9:9<p1:9", ".")).evidence().observations[0]
    evidence = with_view(case.evidence(), half, witness="short", complete=False)

    assert judge(evidence).names() == []
    assert judge(evidence).verdict is Verdict.VALID


def test_inputs_that_were_not_read_to_the_position_are_unknown() -> None:
    evidence = piped(TEN).evidence()
    consumed = next(view for view in evidence.observations if view.meta.purpose == "consumed")
    consumed.meta.complete = False

    judgement = judge(evidence)

    assert judgement.verdict is Verdict.UNKNOWN
    assert "no witness read the inputs up to the position of group g" in reasons_of(judgement)


def test_the_inputs_of_another_group_do_not_count() -> None:
    evidence = piped(TEN).evidence()
    other = piped(TEN, consumed=5).evidence()
    consumed = next(view for view in other.observations if view.meta.purpose == "consumed")

    assert judge(with_view(evidence, consumed, group="another")).verdict is Verdict.VALID


def test_inputs_that_the_group_had_not_read_are_a_note() -> None:
    unread = "group g had not read 4 of 10 inputs when the run ended; "
    unread += "inputs that were not read need no output (docs/workloads.md)"
    assert unread not in judge(piped(TEN).evidence()).notes
    assert unread in judge(piped(TEN, consumed=6).evidence()).notes


def test_positions_that_transactions_add_to_another_group_do_not_count() -> None:
    evidence = piped(TEN).evidence()
    for client in evidence.ledger.clients:
        for _, line in client.invokes("send_offsets"):
            line.group = "another"

    assert judge(evidence).names() == []


def test_a_group_behind_the_positions_of_its_committed_transactions_is_a_drift() -> None:
    evidence = piped(TEN, PIPE.replace("group i:10", "group i:5")).evidence()
    judgement = judge(evidence)

    (drift,) = [a for result in judgement.results for a in result.anomalies]
    assert (drift.name, drift.unit, drift.count) == ("offset_drift", "positions", 1)
    assert "a committed transaction wrote 10" in drift.examples[0].what


def test_records_of_two_lanes_and_of_two_partitions_are_different_words() -> None:
    rows = np.zeros(3, WORD)
    rows["producer"], rows["lane"], rows["partition"] = 1, [0, 1, 1], [0, 1, 2]
    rows["bits"][:, 0] = [1, 2, 4]
    records = BitSet.of(rows)

    assert records.first(8) == [(1, 0, [0]), (1, 1, [1, 2])]
    assert len(records.minus(BitSet.of(rows[:1]))) == 2


@pytest.mark.parametrize("certain", [0, 20, 85])
def test_the_share_of_unknown_records_is_reported_if_it_is_large(certain: int) -> None:
    history = f"p2 send info a:0-{99 - certain}" + (f"\n p2 send ok a:{100 - certain}-99" if certain else "")
    judgement = Tiny(history, {"a": "p2:0-99"}, PLAIN).judge()
    sentence = f"the outcome of {100 - certain} of the 100 sent records ({100 - certain}%) is unknown"

    assert (sentence in " ".join(judgement.notes)) is (certain < 80)
    assert (sentence in reasons_of(judgement)) is (certain == 0)
    assert judgement.verdict is (Verdict.VALID if certain else Verdict.UNKNOWN)
    assert next(r.compared for r in judgement.results if r.property == "exactly_once") == certain


def test_records_that_no_witness_read_to_the_end_are_not_compared() -> None:
    log = {"a": "p2:0-4", "b": "p2:0-4"}
    judgement = Tiny("p2 send ok a:0-4 b:0-4", log, PLAIN, hw={"b": 40}).judge()

    assert next(r.compared for r in judgement.results if r.property == "exactly_once") == 5


def coverage_of(evidence: Evidence) -> Result:
    return coverage.check(evidence)


def test_a_caveat_of_the_run_is_a_reason() -> None:
    case = Tiny("p1 commit ok a:0-4", {"a": "p1:0-4 ."}, expect=Expect(caveats=["nothing measures the disk"]))

    result = coverage_of(case.evidence())

    assert (result.verdict, result.reasons) == (Verdict.UNKNOWN, ["nothing measures the disk"])


def test_histories_of_two_runs_are_a_reason() -> None:
    evidence = Tiny("p1 commit ok a:0-4\n p2 commit ok b:0-4", {"a": "p1:0-4 .", "b": "p2:0-4 ."}).evidence()
    assert coverage_of(evidence).verdict is Verdict.VALID

    opening = evidence.ledger.clients[1].opening
    assert opening is not None
    evidence.ledger.clients[1].opening = msgspec.structs.replace(opening, run="another1")

    assert coverage_of(evidence).reasons == ["the histories belong to several runs: another1, r7k2m9qa"]


def test_a_history_without_a_line_is_a_reason() -> None:
    evidence = Tiny("p1 commit ok a:0-4", {"a": "p1:0-4 ."}).evidence()
    empty = fold([HistoryFile(Path("p9.jsonl"), b'{"type": "op')])
    evidence.ledger.clients += empty.clients

    assert "p9: the history has no complete line" in coverage_of(evidence).reasons


def test_transactions_before_both_inits_of_a_pair_do_not_count() -> None:
    history = """
        @1-5 p1 init ok
        @2-3 p2 init ok
        @4 p2 commit ok a:0-4
        @4.5 p2 commit ok a:5-9
        @6 p1 commit ok a:0-4
        @7 p2 commit ok a:10-14
        @8 p1 commit ok a:5-9
    """
    judgement = Tiny(history, {"a": "p2:0-9 p1:0-4 p2:10-14 p1:5-9"}, SHARED).judge()
    (anomaly,) = [a for result in judgement.results for a in result.anomalies]

    assert (anomaly.name, anomaly.count) == ("zombie_write", 1)
    assert "transaction 3" in anomaly.examples[0].what


def test_a_run_is_compared_at_its_last_record_too() -> None:
    case = Pair(
        "p2 send ok a:0-9",
        {"a": "p2:0-9"},
        PLAIN,
        spark={"a": "p2:0-4 . p2:5-9"},
        complete=False,
        expect=Expect(),
    )
    (gone,) = gone_records(case.evidence())

    # The witness recorded no runs. The only offset that its word excludes is that of the last record.
    assert (gone.seq.tolist(), gone.offset.tolist(), gone.absent.tolist()) == ([9], [9], [False])


def test_a_claim_is_compared_with_the_claim_that_reaches_furthest() -> None:
    # place, first offset, end, producer, lane, sequence minus offset
    claims = np.array([(0, 0, 10, 2, 0, 0), (0, 1, 2, 2, 0, 0), (0, 5, 6, 2, 0, 2)])

    before, after, compared = offsets._contradictions(claims)
    assert (before.tolist(), after.tolist(), compared) == ([0], [2], 2)


@pytest.mark.parametrize("name", sorted(fencing.FENCED_NAMES))
def test_every_name_of_a_fencing_error_ends_the_tenure(name: str) -> None:
    case = Tiny(
        f"p1 init ok\n p1 commit ok a:0-4\n p1 commit info!{name}!fatal\n p1 commit ok a:5-9",
        {"a": "p1:0-4 . p1:5-9 ."},
    )
    assert set(fencing.FENCED_NAMES) >= {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}

    [anomaly] = [a for result in case.judge().results for a in result.anomalies if a.name == "zombie_write"]
    assert anomaly.count == 1


def test_reads_of_another_host_behind_the_end_are_undecided() -> None:
    case = Tiny(
        "p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-9",
        {"a": "p2:0-4"},
        {**PLAIN, "r1": {"clock": "another"}},
        finished=8,
    )

    [reason] = given_records.undecided_reads(case.evidence())
    assert "r1 was given records behind the end" in reason
    case.settings["r1"] = {}
    assert given_records.undecided_reads(case.evidence()) == []


def test_the_first_and_the_last_record_of_an_acknowledgement_are_compared() -> None:
    case = Tiny("p2 send ok a:0-9>0\n p2 send ok a:10>10", {"a": "p2:0-10"}, PLAIN)

    assert offsets.check(without_runs(case)).compared == 3


def test_a_property_that_the_run_demands_is_unknown_if_it_compared_nothing() -> None:
    log = {"a": "p1:0-4 ."}
    left_out = Tiny("p1 commit ok a:0-4", log).judge()
    demanded = Tiny("p1 commit ok a:0-4", log, expect=Expect(properties=["offsets", "exactly_once"])).judge()

    assert "offsets" not in [result.property for result in left_out.results]
    assert {result.property: result.verdict for result in demanded.results} == {
        "exactly_once": Verdict.VALID,
        "offsets": Verdict.UNKNOWN,
    }


def test_a_case_without_an_example_names_its_witness() -> None:
    out = Collector("exactly_once", "records")
    out.add("lost", "records", frozenset({1}), {}, witness="spark")

    [anomaly] = out.result().anomalies
    assert anomaly.witnesses == ["spark"]


def test_a_large_transaction_can_be_torn() -> None:
    case = Tiny("p1 commit ok a:0-1199 b:0", {"a": "p1:0-1198 . .", "b": "p1:0 ."})

    assert "torn_transaction" in case.judge().names()


def test_a_record_belongs_to_an_interval_of_its_own_lane_only() -> None:
    ledger = Tiny("p1 commit ok a:0-9 b:5-9", {"a": ""}).evidence().ledger
    lane, seq = np.array([0, 0, 1, 1, 2]), np.array([3, 12, 3, 7, 3])

    at, known = ledger.interval_at(lane, seq)
    assert known.tolist() == [True, False, False, True, False]
    assert ledger.intervals.lane[at[known]].tolist() == [0, 1]


def test_a_reader_of_the_group_s_inputs_was_given_their_records() -> None:
    history = "p2 send ok i:0-4\n p2 send info i:5-9"
    whole = Tiny(history, {"i": "p2:0-9"}, PLAIN, consumed=10).evidence()
    consumed = next(view for view in whole.observations if view.meta.purpose == "consumed")
    evidence = Tiny(history, {"i": "p2:0-4 . . . . ."}, PLAIN).evidence()

    assert judge(evidence).names() == []
    assert judge(with_view(evidence, consumed)).names() == ["lost"]


def test_reads_behind_the_end_of_an_incomplete_witness_need_no_decision() -> None:
    case = Tiny(
        "p2 send ok a:0-4\n p2 send info a:5-9\n r1 read a@5 p2:5-9",
        {"a": "p2:0-4"},
        {**PLAIN, "r1": {"clock": "another"}},
        finished=8,
        complete=False,
    )

    assert given_records.undecided_reads(case.evidence()) == []


def test_a_fault_that_was_not_healed_is_no_fault_that_met_no_work() -> None:
    case = Tiny("p1 commit ok a:0-4\n @5 fault f1 intent\n @6 fault f1 bite", {"a": "p1:0-4 ."})

    assert coverage_of(case.evidence()).reasons == ["f1: kill on one was not healed"]


def test_a_fault_is_not_compared_with_records_whose_requests_are_missing() -> None:
    def without_requests(lines: dict[str, list[Line]]) -> None:
        lines["p1"] = [line for line in lines["p1"] if line["type"] != "invoke"]

    case = Tiny(
        "p1 commit ok a:0-4\n @5 fault f1 intent\n @6 fault f1 bite\n @7 fault f1 healed",
        {"a": "p1:0-4 ."},
        change=without_requests,
    )

    assert coverage_of(case.evidence()).reasons[-1] == (
        "f1: kill on one cannot be compared with the operations: none of them has a time of the same clock"
    )
