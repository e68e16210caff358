"""The fold of histories into a ledger: each record has one fate, and contradictions are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.base.errors import UsageError
from harness.evidence.bit_words import split_lane_key
from harness.evidence.history import HistoryFile
from harness.evidence.ledger import FATE_NAMES, OPEN_END, UNKNOWN, Ledger, fold
from tests.planted.tiny import SECOND, Tiny

PLAIN = {"p2": {"transactional_id": None}}


def fates(history: str, settings: dict[str, dict[str, Any]] | None = None) -> list[str]:
    """Return the intervals of a history as `producer lane first-last fate`."""
    ledger = Tiny(history, {}, settings or {}).evidence().ledger
    assert ledger.problems == []
    return intervals(ledger)


def intervals(ledger: Ledger) -> list[str]:
    rows = ledger.intervals
    lines = []
    for lane, first, last, fate in zip(rows.lane, rows.first, rows.last, rows.fate, strict=True):
        producer, number = split_lane_key(int(ledger.lanes[lane]))
        end = "end" if last == OPEN_END else last
        lines.append(f"p{producer} {'abio'[number]} {first}-{end} {FATE_NAMES[int(fate)]}")
    return lines


@pytest.mark.parametrize(
    ("history", "fate"),
    [
        ("p1 commit ok a:0-4", "committed"),
        ("p1 commit info a:0-4", "unknown"),
        ("p1 commit none a:0-4", "unknown"),
        ("p1 commit fail a:0-4", "aborted"),
        ("p1 abort ok a:0-4", "aborted"),
        ("p1 abort info a:0-4", "aborted"),
        ("p1 abort none a:0-4", "aborted"),
        ("p1 commit info again a:0-4\n p1 commit ok", "committed"),
        ("p1 commit info again a:0-4\n p1 commit fail", "unknown"),
        ("p1 commit fail again a:0-4\n p1 abort ok", "aborted"),
        ("p1 commit info again a:0-4\n p1 abort ok", "aborted"),
        ("p1 commit info again a:0-4\n p1 abort info", "unknown"),
        ("p1 commit none again a:0-4\n p1 abort none", "unknown"),
        ("p1 commit fail again a:0-4\n p1 abort fail", "aborted"),
    ],
)
def test_the_end_of_a_transaction_determines_the_fate_of_all_its_records(history: str, fate: str) -> None:
    assert fates(history) == [f"p1 a 0-4 {fate}"]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ("p2 send ok a:0-4", ["p2 a 0-4 committed"]),
        ("p2 send fail a:0-4", ["p2 a 0-4 never sent"]),
        ("p2 send none a:0-4", ["p2 a 0-4 unknown"]),
        ("p2 send info a:0-4", ["p2 a 0-4 unknown"]),
        ("p2 send info a:0-4 +a:0-4", ["p2 a 0-4 committed"]),
        (
            "p2 send info a:0-9 +a:2-4 -a:9",
            ["p2 a 0-1 unknown", "p2 a 2-4 committed", "p2 a 5-8 unknown", "p2 a 9-9 never sent"],
        ),
        ("p2 send info a:0-9 +a:0-4 +a:0-4", ["p2 a 0-4 committed", "p2 a 5-9 unknown"]),
        ("p2 send info a:0-4 b:0-4 +b:0-4", ["p2 a 0-4 unknown", "p2 b 0-4 committed"]),
        ("p2 send ok a:0-4\n p2 send info a:5-9 -a:5-9", ["p2 a 0-4 committed", "p2 a 5-9 never sent"]),
    ],
)
def test_delivery_reports_determine_the_fate_without_transactions(history: str, expected: list[str]) -> None:
    assert fates(history, PLAIN) == expected


def test_open_transactions_of_a_killed_client_are_aborted_to_the_end() -> None:
    found = fates("p1 commit ok a:0-4\n p1 begin")

    assert found == [
        "p1 a 0-4 committed",
        "p1 a 5-end aborted",
        "p1 b 0-end aborted",
        "p1 i 0-end aborted",
        "p1 o 0-end aborted",
    ]


def test_a_begun_transaction_that_ended_has_no_tail() -> None:
    assert fates("p1 begin\n p1 commit ok a:0-4") == ["p1 a 0-4 committed"]


def test_an_abandoned_transaction_never_requested_a_commit() -> None:
    assert intervals(fold([history({**COMMIT, "f": "abandon"})])) == ["p1 a 0-9 aborted"]


def test_intervals_are_sorted_by_lane_whatever_the_order_of_files_and_operations() -> None:
    text = "p1 commit ok a:0-4 b:0-2\n p2 send ok a:0-9\n p1 abort ok b:3-4\n p1 commit info a:5-6"
    expected = [
        "p1 a 0-4 committed",
        "p1 a 5-6 unknown",
        "p1 b 0-2 committed",
        "p1 b 3-4 aborted",
        "p2 a 0-9 committed",
    ]

    assert fates(text, PLAIN) == expected
    assert intervals(fold([history(COMMIT), other_client()])) == intervals(
        fold([other_client(), history(COMMIT)])
    )


def other_client() -> HistoryFile:
    file = history({**COMMIT, "producer": 2}, name="p2")
    return HistoryFile(file.path, (file._data or b"").replace(b'"producer": 1', b'"producer": 2'))


def history(*lines: dict[str, Any], name: str = "p1") -> HistoryFile:
    opening = {
        "type": "open",
        "format": 1,
        "run": "r",
        "client": name,
        "role": "producer",
        "host": "h",
        "pid": 1,
        "clock": "c",
    }
    declared = {"type": "producer", "producer": 1, "lanes": [["t", 0]], "transactional_id": "x"}
    clocks = {"mono": 1, "wall": 1}
    text = "".join(json.dumps({**line, **clocks}) + "\n" for line in (opening, declared, *lines))
    return HistoryFile(Path(f"{name}.jsonl"), text.encode())


COMMIT = {"type": "invoke", "f": "commit", "op": 0, "producer": 1, "txn": 1, "sent": [[0, 0, 9]]}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([COMMIT, {**COMMIT, "op": 1, "txn": 2, "sent": [[0, 9, 12]]}], "sent by two operations"),
        ([{**COMMIT, "sent": [[7, 0, 9]]}], "never declared"),
        ([{**COMMIT, "sent": [[0, 9, 0]]}], "ends before it starts"),
        ([{"type": "ok", "f": "send", "op": 5, "acked": [[0, 0, 0, 7]]}, COMMIT], "sent nothing"),
        (
            [
                COMMIT,
                {"type": "ok", "f": "commit", "op": 0},
                {**COMMIT, "f": "abort", "op": 1, "sent": []},
                {"type": "ok", "f": "abort", "op": 1},
            ],
            "both committed and aborted",
        ),
    ],
    ids=["overlap", "undeclared lane", "backwards", "acknowledged nothing", "both"],
)
def test_a_history_that_contradicts_itself_is_a_problem(lines: list[dict[str, Any]], problem: str) -> None:
    assert problem in " ".join(fold([history(*lines)]).problems)


def test_one_producer_number_in_two_files_is_a_problem() -> None:
    ledger = fold([history(COMMIT), history(name="p2")])

    assert "already declared by another client" in ledger.problems[0]


def test_the_only_producer_of_a_client_may_be_omitted() -> None:
    line = {key: value for key, value in COMMIT.items() if key != "producer"}

    assert intervals(fold([history(line)])) == ["p1 a 0-9 unknown"]


def test_unknown_operations_are_counted_and_ignored() -> None:
    flush = {"type": "invoke", "f": "flush", "op": 0}
    ledger = fold([history(flush, {**flush, "type": "ok"}, {**COMMIT, "op": 1})])

    assert intervals(ledger) == ["p1 a 0-9 unknown"]
    assert ledger.operations == 5


def test_a_damaged_line_is_named() -> None:
    file = HistoryFile(Path("p1.jsonl"), b'{"type":"open"}\n')
    with pytest.raises(UsageError, match=r"p1\.jsonl:1"):
        fold([file])
    with pytest.raises(UsageError, match="no opening line"):
        fold([HistoryFile(Path("p1.jsonl"), b'{"type":"close","mono":1,"wall":1,"reason":"x"}\n')])


def test_a_line_of_unknown_type_is_reported() -> None:
    with pytest.raises(UsageError, match=r"p1\.jsonl:3: not a history line"):
        fold([history({"type": "thought"})])


def test_memory_grows_with_intervals_and_not_with_records() -> None:
    def of(size: int) -> Ledger:
        sent = [[0, n * size, n * size + size - 1] for n in range(100)]
        return fold([history(*[{**COMMIT, "op": n, "txn": n, "sent": [one]} for n, one in enumerate(sent)])])

    small, large = of(1), of(10**6)

    assert small.nbytes == large.nbytes
    assert small.nbytes / 100 < 100


def test_columns_are_the_same_whatever_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [{**COMMIT, "op": n, "txn": n, "sent": [[0, n, n]]} for n in range(50)]
    whole = fold([history(*lines)])
    for name in ("_USUAL_BYTES", "BLOCK_BYTES"):
        monkeypatch.setattr(f"harness.evidence.ledger.history_scan.{name}", 97)
    pieces = fold([history(*lines)])

    assert intervals(pieces) == intervals(whole)
    assert np.array_equal(pieces.groups.ask_line, whole.groups.ask_line)


def test_a_damaged_file_among_others_is_named() -> None:
    files = [history(COMMIT, {"type": "ok", "f": "commit", "op": 0}), other_client()]
    with pytest.raises(UsageError, match=r"p3\.jsonl:3: not a history line") as caught:
        fold([*files, history({"type": "thought"}, name="p3")])
    assert "changed" in caught.value.hint


def test_a_transaction_began_at_its_first_begin_line() -> None:
    case = Tiny(
        "@3 p1 begin\n @5 p1 commit ok a:0-4\n @7 p1 commit ok a:5-9\n @8 p2 send ok a:0-1", {"a": ""}
    )
    case.settings["p2"] = {"transactional_id": None}

    groups = case.evidence().ledger.groups

    began = dict(
        zip(
            zip(groups.producer.tolist(), groups.txn.tolist(), strict=True),
            groups.begun.tolist(),
            strict=True,
        )
    )
    assert began == {(1, 1): 3 * SECOND, (1, 2): 0, (2, -1): 8 * SECOND}


def test_the_last_beginning_of_a_producer_is_the_open_transaction() -> None:
    begin = {"type": "invoke", "f": "begin", "op": 0, "txn": 1}
    lines = [begin, {**COMMIT, "op": 1}, {**begin, "op": 2, "txn": 2, "producer": 1}]

    ledger = fold([history(*lines)])

    assert intervals(ledger) == ["p1 a 0-9 unknown", "p1 a 10-end aborted"]
    assert ledger.problems == []


def test_a_number_that_began_again_after_its_end_leaves_an_unknown_rest() -> None:
    begin = {"type": "invoke", "f": "begin", "op": 1, "producer": 1, "txn": 1}

    ledger = fold([history(COMMIT, begin)])

    assert intervals(ledger) == ["p1 a 0-9 unknown", "p1 a 10-end unknown"]
    assert "used for another transaction" in ledger.problems[0]


def test_transactions_that_overlap_are_not_in_turn() -> None:
    begin = {"type": "invoke", "f": "begin", "producer": 1}
    begins = [{**begin, "op": n, "txn": n + 1} for n in range(2)]
    ends = [{**COMMIT, "op": n + 2, "txn": n + 1, "sent": [[0, 5 * n, 5 * n + 4]]} for n in range(2)]

    ledger = fold([history(*begins, *ends)])

    assert [problem for problem in ledger.problems if "used for another transaction" in problem]
    assert set(ledger.intervals.fate.tolist()) == {UNKNOWN}


def test_a_number_that_ended_again_after_another_beginning_is_used_twice() -> None:
    begin = {"type": "invoke", "f": "begin", "producer": 1}
    first, again = ({**COMMIT, "op": n, "txn": 1} for n in (1, 3))

    ledger = fold([history({**begin, "op": 0, "txn": 1}, first, {**begin, "op": 2, "txn": 2}, again)])

    assert "number 1 of producer 1 was used for another transaction" in ledger.problems[0]


def test_a_lane_behind_another_lane_begins_with_its_first_sequence() -> None:
    lanes = {"type": "producer", "producer": 1, "lanes": [["t", 0], ["t", 1]], "transactional_id": "x"}

    ledger = fold([history(lanes, {**COMMIT, "sent": [[0, 0, 9], [1, 5, 9]]})])

    assert [problem for problem in ledger.problems if "no line lists sequences 0-4" in problem]
