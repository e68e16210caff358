"""The second opinion: its reasons, and what it counts when several witnesses find the same."""

from __future__ import annotations

import random

import msgspec
import pytest

from harness.evidence.checkers import second_opinion
from harness.evidence.checkers.model import Result
from harness.evidence.checkers.verdict import judge
from tests.planted.tiny import Tiny, pipeline


def opinion(case: Tiny) -> Result:
    return second_opinion.check(case.evidence())


def counts(result: Result) -> dict[tuple[str, str], int]:
    return {(anomaly.name, anomaly.unit): anomaly.count for anomaly in result.anomalies}


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (
            Tiny("p1 commit ok a:0-4\n p1 commit ok a:5-9", {"a": "p1:0-4 ."}, raw={"a": "p1:0-4 C1 p1:5-9"}),
            "1 transactions are recorded as committed, but had no marker when the log was read, such as "
            "transaction 2 of producer 1: sequences 5-9 of lane 0 of producer 1 in t-0",
        ),
        (
            Tiny("p1 commit ok a:0-4", {"a": "p1:0-4 . . ."}, raw={"a": "p1:0-4 C1 p3:7 A3"}),
            "the log has transactions that no history mentions: sequences 7-7 of lane 0 of producer 3 in t-0",
        ),
        (
            Tiny("p1 identity 7\n p1 commit ok a:0-4", {"a": "p1:0-4 ."}, raw={"a": "p1:0-4#9 C9"}),
            "producer id 9 wrote sequences 0-4 of lane 0 of producer 1 in t-0, "
            "but the producer reported only 7",
        ),
    ],
    ids=["no marker", "no history", "unknown producer id"],
)
def test_what_the_log_cannot_decide_is_a_reason(case: Tiny, reason: str) -> None:
    result = opinion(case)

    assert result.anomalies == []
    assert reason in result.reasons


def test_a_record_counts_once_however_many_witnesses_read_it() -> None:
    case = Tiny(
        "p1 commit ok a:0-4\n p1 commit ok a:5-9",
        {"a": "p1:0-4~1c . p1:5-7~1c p1:8-9~2c ."},
        raw={"a": "p1:0-4~1c C1 p1:5-7~1c p1:8-9~2c C1"},
    )
    result = opinion(case)

    assert counts(result) == {("wrong_transaction", "records"): 3}
    assert len(result.anomalies[0].examples) == 1


def test_records_of_two_witnesses_are_united() -> None:
    case = Tiny(
        "p1 commit ok a:0-9", {"a": "p1:0-5~9c p1:6-9~1c ."}, raw={"a": "p1:0-3~1c p1:4-7~9c p1:8-9~1c C1"}
    )

    assert counts(opinion(case)) == {("wrong_transaction", "records"): 8}


def test_outputs_count_once_however_many_witnesses_read_them() -> None:
    log = {"i": "p1:0-1 .", "o": "p9:0<p1:0! p9:1<p1:1$ ."}
    raw = {"i": "p1:0-1 C1", "o": "p9:0<p1:0! p9:1<p1:1$ C9"}
    result = opinion(Tiny("p1 commit ok i:0-1\n p9 commit ok o:0-1", log, expect=pipeline(), raw=raw))

    assert counts(result) == {("corrupted_output", "records"): 1}
    assert "it carries checksum" in result.anomalies[0].examples[0].what


def test_each_example_of_a_marker_names_history_lines_records_and_marker() -> None:
    case = Tiny(
        "p1 commit ok a:0-4\n p1 commit ok a:5-9",
        {"a": "p1:0-4 . . . . . . ."},
        raw={"a": "p1:0-4 C1 p1:5-9 A1"},
    )
    (anomaly,) = opinion(case).anomalies

    (example,) = anomaly.examples
    assert example.what == (
        "transaction 2 of producer 1 is recorded as committed, but the log has ABORT for sequences 5-9 of "
        "lane 0 of producer 1 in t-0"
    )
    assert [(ref.client, ref.line) for ref in example.lines] == [("p1", 5), ("p1", 6)]
    assert [(ref.first, ref.last) for ref in example.offsets] == [(6, 10), (11, 11)]


def test_a_transaction_of_more_than_one_lane_counts_once() -> None:
    case = Tiny(
        "p1 commit ok a:0-4 b:0-4",
        {"a": ". . . . . .", "b": ". . . . . ."},
        raw={"a": "p1:0-4 A1", "b": "p1:0-4 A1"},
    )

    assert counts(opinion(case)) == {("fate_mismatch", "transactions"): 1}


def test_evidence_without_markers_and_labels_is_not_judged() -> None:
    case = Tiny("p1 commit ok a:0-4", {"a": "p1:0-4 ."})

    assert "second_opinion" not in [result.property for result in judge(case.evidence()).results]


def test_readers_of_read_uncommitted_see_what_was_meant_to_be_aborted() -> None:
    case = Tiny("p1 commit ok a:0-4\n p1 commit info a:5-9", {"a": "p1:0-4~1c . p1:5-9~2a ."})
    evidence = case.evidence()
    evidence.observations[0].meta = msgspec.structs.replace(
        evidence.observations[0].meta, isolation="read_uncommitted"
    )

    assert second_opinion.check(evidence).anomalies == []


@pytest.mark.parametrize("seed", range(60))
def test_labels_and_markers_are_compared_like_record_by_record(seed: int) -> None:
    """Compare the counts of the checker with those of a naive comparison of every single record."""
    draw = random.Random(seed)
    history: list[str] = []
    raw: dict[str, list[str]] = {"a": [], "b": []}
    log: dict[str, list[str]] = {"a": [], "b": []}
    first = {"a": 0, "b": 0}
    wrong_records, wrong_fates = 0, 0
    for txn in range(1, draw.randint(2, 9)):
        end = draw.choice(["commit ok", "commit ok", "abort ok", "commit info"])
        committed = end != "abort ok" and (end == "commit ok" or draw.random() < 0.5)
        intent, sent, decisions = "a" if end == "abort ok" else "c", [], []
        for lane in draw.choice([["a"], ["b"], ["a", "b"]]):
            last = first[lane] + draw.randint(0, 4)
            sent.append(f"{lane}:{first[lane]}-{last}")
            decision = committed if draw.random() < 0.9 else not committed
            decisions.append(decision)
            for seq in range(first[lane], last + 1):
                number = txn if draw.random() < 0.9 else draw.randint(1, 9)
                meant = intent if draw.random() < 0.9 else draw.choice("ca")
                kept = end == "commit ok" or (end == "commit info" and decision)
                wrong_records += number != txn or (meant == "a" and kept)
                raw[lane].append(f"p1:{seq}~{number}{meant}")
                log[lane].append(raw[lane][-1] if decision else ".")
            raw[lane].append("C1" if decision else "A1")
            log[lane].append(".")
            first[lane] = last + 1
        history.append(f"p1 {end} {' '.join(sent)}")
        recorded = {"commit ok": {True}, "abort ok": {False}}.get(end)
        wrong_fates += len(set(decisions)) > 1 or (recorded is not None and set(decisions) != recorded)
    text = {lane: " ".join(tokens) for lane, tokens in raw.items()}
    case = Tiny("\n".join(history), {lane: " ".join(tokens) for lane, tokens in log.items()}, raw=text)

    expected = {
        ("wrong_transaction", "records"): wrong_records,
        ("fate_mismatch", "transactions"): wrong_fates,
    }
    assert counts(opinion(case)) == {name: count for name, count in expected.items() if count}
