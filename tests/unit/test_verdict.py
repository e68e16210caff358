"""The verdict and its summary: which properties are checked, and how counts of several results combine."""

from __future__ import annotations

import msgspec
import pytest

from harness.base.errors import ExitCode
from harness.evidence.checkers.check_run import summarise
from harness.evidence.checkers.model import Anomaly, Example, Result, Verdict
from harness.evidence.checkers.reading_lag import reading_lags
from harness.evidence.checkers.verdict import Judgement, Limit, held_to_exactly_once, judge, properties_of
from harness.evidence.observation import Meta, Observation
from harness.evidence.run_directory import IDLE_PHASES
from tests.planted.tiny import Tiny, pipeline
from tests.unit.test_run_directory import INFO

PLAIN = {"p2": {"transactional_id": None}, "p3": {"transactional_id": None}}


def anomaly(name: str, count: int, *, witness: str = "reader") -> Anomaly:
    example = Example(what=f"{count} of them", weight=count, witness=witness)
    return Anomaly(name=name, count=count, unit="records", examples=[example], witnesses=[witness])


def result(name: str, **lists: list[Anomaly]) -> Result:
    return Result(property=name, verdict=Verdict.INVALID, compared=9, unit="records", **lists)


def judgement(*results: Result) -> Judgement:
    return Judgement(
        verdict=Verdict.INVALID, exit_code=int(ExitCode.ANOMALY), operations=1, results=[*results]
    )


def test_permitted_and_forbidden_cases_of_one_anomaly_add_up() -> None:
    both = result(
        "order", anomalies=[anomaly("reordered", 2)], permitted=[anomaly("reordered", 3, witness="s")]
    )

    [merged] = held_to_exactly_once(both).anomalies
    assert (merged.count, merged.witnesses, len(merged.examples)) == (5, ["reader", "s"], 2)


def test_a_limit_may_be_reached() -> None:
    assert Limit(name="recovery", measured=2.0, limit=2.0, unit="s").held
    assert not Limit(name="recovery", measured=2.1, limit=2.0, unit="s").held


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        (
            Limit(name="recovery", measured=70.5, limit=60.0, unit="s"),
            "needed 70.5 s to work again, and limits.",
        ),
        (
            Limit(name=IDLE_PHASES, measured=1, limit=0, unit="phases", where="phase steady"),
            "no record was acknowledged in phase steady, so the run does not show",
        ),
        (Limit(name=IDLE_PHASES, measured=1, limit=0, unit="phases"), "acknowledged in a phase, so"),
        (Limit(name="size", measured=3, limit=2, unit="MB"), "measured were 3 MB, and the limit is 2 MB"),
    ],
)
def test_an_exceeded_limit_is_explained(limit: Limit, sentence: str) -> None:
    assert sentence in limit.breach
    held = msgspec.structs.replace(limit, measured=limit.limit)
    assert held.breach == ""


def test_a_limit_without_a_place_is_written_as_by_earlier_versions() -> None:
    limit = Limit(name="recovery", measured=2.0, limit=2.0, unit="s")
    assert set(msgspec.to_builtins(limit)) == {"name", "measured", "limit", "unit"}


def test_a_changelog_and_a_raw_log_have_properties_of_their_own() -> None:
    log = {"i": "p1:0 .", "o": "p9:0<p1:0 .", "c": "p9:0=0:1/0 ."}
    case = Tiny("p1 commit ok i:0\n p9 commit ok o:0 c:0", log, expect=pipeline(changelog="log"))
    evidence = case.evidence()
    assert {"aggregates", "pipeline", "fencing"} <= set(properties_of(evidence))

    for view in evidence.observations:
        view.meta.epochs.compared = 0
    evidence.expect.pipeline = None
    assert not {"aggregates", "pipeline", "fencing"} & set(properties_of(evidence))


def test_damaged_evidence_leaves_no_result_that_compared_nothing() -> None:
    evidence = Tiny("p2 send ok a:0", {"a": "p2:0"}, PLAIN).evidence()
    idle = {r.property for r in judge(evidence).results if not (r.compared or r.anomalies)}
    evidence.damage = ["history/p2.jsonl is missing"]

    left = {r.property: r.verdict for r in judge(evidence).results}
    assert idle
    assert not idle & left.keys()
    assert set(left.values()) == {Verdict.UNKNOWN}


def test_the_summary_has_the_largest_count_of_each_anomaly() -> None:
    judged = judgement(
        result("exactly_once", anomalies=[anomaly("lost", 5)], permitted=[anomaly("duplicate", 2)]),
        result("atomicity", anomalies=[anomaly("lost", 3)]),
    )
    summary = summarise(INFO, judged, [])

    assert (summary.anomalies, summary.permitted) == ({"lost": 5}, {"duplicate": 2})


def test_the_records_of_a_run_are_those_of_a_complete_witness_of_all_topics() -> None:
    views = [
        Observation(Meta(witness="reader", kind="reference", complete=True, records=7)),
        Observation(Meta(witness="spark", kind="spark", complete=False, records=9)),
        Observation(
            Meta(witness="consumed", kind="reference", complete=True, purpose="consumed", records=11)
        ),
    ]

    assert summarise(INFO, judgement(), views).records == 7


def test_a_lag_is_known_only_for_acknowledged_records_of_one_clock() -> None:
    log = {"a": "p2:0-4", "b": "p3:0"}
    elsewhere = {**PLAIN, "p2": {**PLAIN["p2"], "clock": "elsewhere"}}
    known = Tiny(
        "@1-2 p2 send ok a:0-4\n p3 send ok b:0\n @3 r1 read a@0 p2:0\n @9 r1 read a@1 p2:1", log, PLAIN
    )
    other = Tiny(known.history, log, elsewhere)
    unknown = Tiny(known.history.replace("p2 send ok", "p2 send none"), log, PLAIN)

    assert reading_lags(known.evidence()) == [
        "r1: it got each record at most 6.0 s after the acknowledgement"
    ]
    assert reading_lags(other.evidence()) == []
    assert reading_lags(unknown.evidence()) == []
