"""The second opinion: its reasons, and what it counts when several witnesses find the same."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from harness.base.errors import UsageError
from harness.evidence import observation
from harness.evidence.checkers import second_opinion
from harness.evidence.checkers.model import Result
from harness.evidence.checkers.verdict import judge
from tests.planted.cases_opinion import without_id
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


IN_TWO = "p1 commit ok a:0-4\n p1 commit ok b:5-9"
PLAIN = {"p2": {"transactional_id": None}}


@pytest.mark.parametrize(
    ("history", "raw"),
    [
        ("p1 commit ok a:0-4\n p1 commit ok a:10-14", {"a": "p1:0-4~1c C1 p1:7~9c C1 p1:10-14~2c C1"}),
        (IN_TWO, {"a": "p1:0-4~1c C1", "b": "p1:2~9c C1 p1:5-9~2c C1"}),
        ("p3 commit ok a:0-4", {"a": "p3:0-4~1c C3 p1:0-4~9c C1"}),
    ],
    ids=["between two intervals", "before the first interval of its lane", "of an undeclared producer"],
)
def test_a_record_that_no_history_lists_is_in_no_wrong_transaction(history: str, raw: dict[str, str]) -> None:
    log = {name: " ".join("." for _ in range(20)) for name in raw}
    result = opinion(Tiny(history, log, raw=raw))

    assert counts(result) == {}
    assert any("the log has transactions that no history mentions" in reason for reason in result.reasons)


def test_an_open_transaction_is_not_compared_and_needs_a_marker_only_if_it_committed() -> None:
    history, log = "p1 commit ok a:0-4\n p1 commit {} a:5-9", {"a": "p1:0-4 ."}
    raw = {"a": "p1:0-4 C1 p1:5-9"}
    certain, unknown = (opinion(Tiny(history.format(how), log, raw=raw)) for how in ("ok", "none"))

    assert (certain.compared, unknown.compared) == (1, 1)
    assert len(certain.reasons) == 1
    assert unknown.reasons == []


def test_open_transactions_of_two_producers_are_not_mixed() -> None:
    case = Tiny(
        "p3 commit ok b:0\n p1 commit none a:0-4\n p2 commit none a:0-4",
        {"a": "", "b": "p3:0 ."},
        raw={"a": "p1:0-4 p2:0-4", "b": "p3:0 C3"},
    )

    assert counts(opinion(case)) == {}


def test_sends_need_no_transaction() -> None:
    case = Tiny("p2 send ok a:0-4", {"a": "p2:0-4"}, PLAIN, raw={"a": "p2:0-4"})

    assert counts(opinion(case)) == {}


def test_outputs_are_compared_with_the_input_of_their_own_lane() -> None:
    log = {"i": "p1:0 p2:0", "o": "p9:0<p1:0$ p9:1<p2:0$ ."}
    result = opinion(Tiny("p1 commit ok i:0\n p2 commit ok i:0\n p9 commit ok o:0-1", log, expect=pipeline()))

    assert counts(result) == {}
    assert result.compared == 2


def test_wrong_checksums_are_those_of_the_witness_that_found_the_most() -> None:
    log = {"i": "p1:0 .", "o": "p9:0<p1:0$ ."}
    raw = {"i": "p1:0 C1", "o": "p9:0<p1:0! C9"}
    case = Tiny("p1 commit ok i:0\n p9 commit ok o:0", log, expect=pipeline(), raw=raw)

    assert counts(opinion(case)) == {("corrupted_output", "records"): 1}


@pytest.mark.parametrize(
    ("table", "old", "new", "problem"),
    [
        ("labels", '"n":5', '"n":4', "labels.jsonl contains 4 records"),
        ("labels", '"partition":0', '"partition":7', "labels.jsonl names a window"),
        ("markers", '"partition":0', '"partition":7', "markers.jsonl names a window"),
    ],
)
def test_tables_of_labels_and_markers_are_checked_when_they_are_read(
    table: str, old: str, new: str, problem: str, tmp_path: Path
) -> None:
    case = Tiny("p1 commit ok a:0-4", {"a": "p1:0-4~1c ."}, raw={"a": "p1:0-4~1c C1"})
    observed = case.evidence().observations[-1]
    observation.save(observed, tmp_path)
    loaded = observation.load(tmp_path)
    for name in ("labels", "markers"):
        assert getattr(loaded, name).tolist() == getattr(observed, name).tolist() != []

    path = tmp_path / f"{table}.jsonl"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError, match=problem):
        observation.load(tmp_path)


def test_a_send_needs_no_marker() -> None:
    case = Tiny(
        "p1 commit ok b:0-1\n p2 send ok a:0-4",
        {"a": "", "b": "p1:0-1 ."},
        raw={"a": "p2:0-4", "b": "p1:0-1 C1"},
        change=without_id,
    )

    assert opinion(case).reasons == []


def test_two_transactions_without_a_marker_between_them_are_one_example() -> None:
    case = Tiny(
        "p1 commit ok a:0 b:0\n p1 commit ok a:1 b:1",
        {"a": "p1:0 p1:1 p1b:0 p1b:1 ."},
        raw={"a": "p1:0 p1:1 p1b:0 p1b:1 C1"},
    )

    with_examples = [(len(anomaly.examples), anomaly.count) for anomaly in opinion(case).anomalies]
    assert with_examples == [(1, 1)]


def test_the_proof_of_a_producer_id_is_its_first_report() -> None:
    case = Tiny(
        "p2 identity 8\n p2 identity 8\n p1 commit ok a:0-4", {"a": "p1:0-4 ."}, raw={"a": "p1:0-4#8 C8"}
    )

    [anomaly] = opinion(case).anomalies
    # The history of p2 has an opening line and a declaration; each report is a request and an answer.
    assert [ref.line for ref in anomaly.examples[0].lines if ref.client == "p2"] == [4]


def test_the_intent_of_a_record_with_a_wrong_number_is_not_compared() -> None:
    numbers = " ".join(f"p1:{seq}~{70 + seq % 2}{'c' if seq < 8 else 'a'}" for seq in range(20))

    [anomaly] = opinion(Tiny("p1 commit ok a:0-19", {"a": f"{numbers} ."})).anomalies
    assert anomaly.count == 20
    assert all(" carry transaction 7" in example.what for example in anomaly.examples)


def test_labels_are_listed_in_the_order_of_their_records() -> None:
    labels = (
        Tiny("p1 commit ok a:0-3", {"a": "p1:0~2c p1:1~1c p1:2-3~2c ."}).evidence().observations[0].labels
    )

    assert labels is not None
    assert labels[["first", "last", "txn"]].tolist() == [(0, 0, 2), (1, 1, 1), (2, 3, 2)]


def test_an_output_whose_input_was_not_read_is_not_compared() -> None:
    case = Tiny(
        "p1 commit ok i:0-4\n p9 commit ok o:0",
        {"i": "p1:0-4 .", "o": "p9:0<p1:2$ ."},
        expect=pipeline(),
        raw={"i": "p1:0-1 C1", "o": "p9:0<p1:2$ C9"},
    )
    whole, short = (view.meta.corrupted for view in case.evidence().observations)

    assert (whole.compared, whole.count) == (1, 0)
    assert (short.compared, short.count) == (0, 0)
