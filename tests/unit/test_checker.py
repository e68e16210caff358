"""The verdict: merged results of checkers, crashes of checkers, disagreeing witnesses, and limits."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from harness.evidence.checkers import verdict as verdict_module
from harness.evidence.checkers.bitsets import BitSet
from harness.evidence.checkers.model import Evidence, Expect, Verdict, worst
from harness.evidence.checkers.verdict import Limit, judge
from harness.evidence.checkers.visibility_index import VisibilityIndex, ranges
from harness.evidence.observation import WORD, Findings, Meta, Observation, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import Identity
from tests.planted.cases_systems import PIPE, TEN, piped
from tests.planted.tiny import Tiny

GOOD = Tiny("p1 commit ok a:0-4 b:0-4\n p1 close", {"a": "p1:0-4 .", "b": "p1:0-4 ."})
BAD = Tiny("p1 commit ok a:0-4 b:0-4\n p1 close", {"a": "p1:0-3 .", "b": "p1:0-4 ."})


def test_the_worst_verdict_wins_and_none_is_unknown() -> None:
    assert worst([Verdict.VALID, Verdict.UNKNOWN, Verdict.VALID]) is Verdict.UNKNOWN
    assert worst([Verdict.UNKNOWN, Verdict.INVALID]) is Verdict.INVALID
    assert worst([]) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("case", "held", "code"),
    [(GOOD, True, 0), (GOOD, False, 3), (BAD, True, 1), (BAD, False, 1)],
    ids=["valid", "limit breached", "anomaly", "anomaly before limit"],
)
def test_limits_are_checked_separately_from_safety(case: Tiny, held: bool, code: int) -> None:
    limit = Limit(name="recovery", measured=1.0 if held else 9.0, limit=2.0, unit="s")
    judgement = judge(case.evidence(), [limit])

    assert judgement.exit_code == code
    assert judgement.breached == ([] if held else ["recovery"])
    assert judgement.verdict is (Verdict.VALID if case is GOOD else Verdict.INVALID)


def test_a_checker_that_crashes_is_unknown_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_: Evidence) -> None:
        raise ZeroDivisionError("half way")

    monkeypatch.setitem(verdict_module.CHECKERS, "order", crash)
    judgement = GOOD.judge()

    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.exit_code == 2
    order = next(result for result in judgement.results if result.property == "order")
    assert order.reasons == ["the checker crashed: ZeroDivisionError: half way"]


def test_a_crash_does_not_hide_an_anomaly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(verdict_module.CHECKERS, "order", lambda _: 1 / 0)

    assert BAD.judge().verdict is Verdict.INVALID


def with_second_witness(case: Tiny, other: Tiny) -> Evidence:
    evidence = case.evidence()
    second = other.evidence().observations[0]
    meta = msgspec.structs.replace(second.meta, witness="raw-log")
    return dataclasses.replace(
        evidence, observations=[*evidence.observations, dataclasses.replace(second, meta=meta)]
    )


def test_two_witnesses_that_agree_are_valid() -> None:
    assert judge(with_second_witness(GOOD, GOOD)).verdict is Verdict.VALID


def test_two_witnesses_that_disagree_make_a_run_unknown() -> None:
    unknown = "p1 commit ok a:0-4 b:0-4\n p3 send info a:0-4"
    settings = {"p3": {"transactional_id": None}}
    one = Tiny(unknown, {"a": "p1:0-4 . p3:0-1 .", "b": "p1:0-4 ."}, settings)
    two = Tiny(unknown, {"a": "p1:0-4 . p3:0-2", "b": "p1:0-4 ."}, settings)

    judgement = judge(with_second_witness(one, two))

    assert judgement.verdict is Verdict.UNKNOWN
    assert "raw-log read 1 records that reader-all did not, such as sequences 2" in str(judgement.results)


def test_the_worst_examples_come_first_and_the_rest_are_counted() -> None:
    history = "\n".join(f"p1 commit ok a:{n * 20}-{n * 20 + 19}" for n in range(12))
    log = " ".join(f"p1:{n * 20}-{n * 20 + 18 - n}" for n in range(12))
    judgement = Tiny(history, {"a": log}).judge()

    lost = judgement.results[0].anomalies[0]
    assert (lost.name, lost.count) == ("lost", sum(range(1, 13)))
    assert [example.weight for example in lost.examples] == [12, 11, 10, 9, 8, 7, 6, 5]
    assert "220-239" in lost.examples[0].what
    assert [ref.line for ref in lost.examples[0].lines] == [25, 26]


def test_an_observation_with_fewer_records_than_sequences_is_unknown() -> None:
    evidence = GOOD.evidence()
    evidence.observations[0].words["n"][0] -= 1

    assert judge(evidence).verdict is Verdict.UNKNOWN


def test_late_records_without_a_producer_are_unknown() -> None:
    evidence = GOOD.evidence()
    evidence.observations[0].meta.late = Findings(compared=3, count=1)

    assert judge(evidence).verdict is Verdict.UNKNOWN


def test_an_output_too_many_has_the_history_lines_of_both_writers() -> None:
    history = PIPE.replace("o:0-4", "o:0-4>0").replace("o:5-9", "o:5-9>6") + "\n p8 commit ok o:0-0>12"
    case = piped(f"{TEN} p8:0<p1:5 .", history)
    (anomaly,) = (a for result in case.judge().results for a in result.anomalies)
    assert anomaly.name == "processed_twice"
    for example in anomaly.examples:
        assert {ref.topic for ref in example.offsets} == {"out"}
        assert [ref.client for ref in example.lines] == ["p8", "p8", "p9", "p9"], "request and answer of each"
        assert [ref.first for ref in example.offsets] == [12, 6]


def test_only_expected_properties_are_checked() -> None:
    evidence = dataclasses.replace(BAD.evidence(), expect=Expect(properties=["order"]))

    assert [result.property for result in judge(evidence).results] == ["order"]


def test_ranks_agree_with_counting_one_by_one() -> None:
    generator = np.random.default_rng(7)
    present = np.flatnonzero(generator.random(2_000) < 0.5)
    records = Records()
    for offset, seq in enumerate(present.tolist()):
        records.add(0, offset, Identity("r7k2m9qa", 1, 0, seq))
    windows = [Window(topic="t", partition=0, start=0, lso=1, hw=1, read_to=1)]
    observation = observe(Meta(witness="w", kind="reference", windows=windows), records)
    seen = VisibilityIndex(Tiny("p1 commit ok a:0-1999", {}).evidence().ledger, observation)
    seqs = np.arange(2_100)

    assert np.array_equal(seen.rank(np.zeros_like(seqs), seqs), np.searchsorted(present, seqs))
    assert seen.sequences(0, 60, 300) == present[(present >= 60) & (present <= 300)].tolist()


def test_an_empty_observation_has_no_ranks() -> None:
    seen = VisibilityIndex(
        Tiny("p1 commit ok a:0-9", {}).evidence().ledger, Observation(Meta(witness="w", kind="spark"))
    )

    assert seen.visible.tolist() == [0]
    assert len(BitSet.of(np.zeros(0, WORD))) == 0


def test_numbers_are_written_as_ranges() -> None:
    assert ranges([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert ranges([]) == ""
    assert ranges(list(range(0, 20, 2))) == "0, 2, 4, 6, 8, 10 and 4 more ranges"
