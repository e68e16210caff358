"""Ends of partitions and positions of groups, checked from plain history lines of several observers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.evidence.checkers import log_ends, offsets
from harness.evidence.checkers.model import Evidence, Expect, Pipeline, Result, Verdict
from harness.evidence.history import HistoryFile
from harness.evidence.ledger import fold
from harness.evidence.observation import Meta, Observation, Window
from tests.planted.cases_guards import fault_elsewhere
from tests.planted.cases_witnesses import CAUGHT, MORE, piped
from tests.planted.tiny import Tiny

SECOND = 1_000_000_000
LATE = 100


def observer(name: str, *samples: dict[str, Any], clock: str = "c") -> HistoryFile:
    """Return the history of an observer; each sample has its second in `at`."""
    opening = {"type": "open", "format": 1, "run": "r", "client": name, "role": "observer"}
    opening |= {"host": "h", "pid": 1, "clock": clock, "mono": 0, "wall": 0}
    lines = [
        {"type": "sample", "mono": line.pop("at") * SECOND, "wall": 0, **line} for line in map(dict, samples)
    ]
    return HistoryFile(Path(f"{name}.jsonl"), msgspec.json.Encoder().encode_lines([opening, *lines]))


def ends(at: int, *bounds: int, partition: int = 0) -> dict[str, Any]:
    """Return a sample of log start, last stable offset and high watermark."""
    return {"at": at, "bounds": [("t", partition, *bounds)]}


def witness(
    name: str, stable: int, high: int, *, frozen: int = LATE, clock: str = "c", partition: int = 0
) -> Observation:
    window = Window("t", partition, 0, stable, high, stable)
    meta = Meta(witness=name, kind="reference", complete=True, clock=clock, windows=[window])
    meta.frozen, meta.finished = frozen * SECOND, (frozen + 1) * SECOND
    return Observation(meta)


def check(*histories: HistoryFile, views: list[Observation]) -> Result:
    return log_ends.check(Evidence(fold(histories), views))


def check_positions(*histories: HistoryFile, views: list[Observation]) -> Result:
    expect = Expect(pipeline=Pipeline(group="g", inputs=["t"]))
    return offsets.check(Evidence(fold(histories), views, expect))


def found(result: Result) -> dict[str, int]:
    return {anomaly.name: anomaly.count for anomaly in result.anomalies}


def test_the_samples_of_every_observer_are_compared_with_every_witness() -> None:
    first, second = observer("first", ends(1, 0, 5, 5)), observer("second", ends(2, 0, 9, 9))

    result = check(first, second, views=[witness("a", 9, 9), witness("b", 7, 8)])

    assert found(result) == {"log_truncated": 1}
    [anomaly] = result.anomalies
    assert "second sampled the last stable offset 9, but b later froze" in anomaly.examples[0].what
    assert (anomaly.examples[0].offsets[0].first, anomaly.examples[0].offsets[0].last) == (7, 8)


def test_partitions_are_counted_once_and_kept_apart() -> None:
    samples = observer("o", ends(1, 0, 9, 9), ends(2, 0, 9, 9, partition=1), ends(3, 0, 8, 8, partition=2))
    views = [witness("a", 4, 4), witness("b", 4, 4, partition=1), witness("c", 9, 9, partition=2)]

    assert found(check(samples, views=[*views, witness("d", 3, 3)])) == {"log_truncated": 2}


def test_two_observers_are_not_compared_with_each_other() -> None:
    # The answers of two observers may be recorded in another order than they were given.
    result = check(observer("x", ends(5, 0, 9, 9)), observer("y", ends(6, 0, 8, 8)), views=[])

    assert (found(result), result.reasons) == ({}, [])


def test_a_log_start_that_goes_back_is_a_reason() -> None:
    result = check(observer("o", ends(1, 4, 6, 6), ends(2, 0, 6, 6)), views=[witness("a", 6, 6)])

    assert found(result) == {}
    assert "t-0: the log start went back from 4 to 0" in result.reasons[0]


def test_deleted_records_move_the_log_start_forward() -> None:
    result = check(observer("o", ends(1, 0, 6, 6), ends(2, 4, 6, 6)), views=[witness("a", 6, 6)])

    assert (found(result), result.reasons) == ({}, [])


def test_a_witness_is_compared_only_with_ends_that_were_frozen_after_it_had_finished() -> None:
    early, late = witness("early", 9, 9, frozen=10), witness("late", 7, 7, frozen=20)
    assert found(check(views=[early, late])) == {"log_truncated": 1}

    growing = [witness("early", 7, 7, frozen=10), witness("late", 9, 9, frozen=20)]
    assert found(check(views=growing)) == {}

    unknown = [witness("early", 9, 9, frozen=10), witness("late", 7, 7, frozen=20)]
    unknown[1].meta.frozen = 0
    assert found(check(views=unknown)) == {}, "it may have frozen its ends before the other one finished"

    overlapping = [witness("a", 9, 9, frozen=20), witness("b", 7, 7, frozen=20)]
    assert found(check(views=overlapping)) == {}


def test_witnesses_on_two_clocks_are_not_ordered() -> None:
    result = check(views=[witness("a", 9, 9, frozen=10, clock="x"), witness("b", 7, 7, frozen=20)])

    assert result.verdict is Verdict.UNKNOWN
    assert "their clocks differ" in result.reasons[0]


def test_the_observation_of_a_live_reader_has_no_frozen_ends() -> None:
    reader = witness("r", 3, 3)
    reader.meta.kind = "client"

    assert found(check(observer("o", ends(1, 0, 9, 9)), views=[reader, witness("a", 9, 9)])) == {}


def test_a_position_beyond_every_known_end_is_a_drift() -> None:
    def at(position: int, group: str = "g") -> dict[str, int]:
        samples = observer(
            "o", {"at": 1, "group": group, "positions": [("t", 0, position)]}, ends(2, 0, 3, 8)
        )
        return found(check_positions(samples, views=[witness("a", 6, 6)]))

    assert at(9) == {"offset_drift": 1}
    assert at(8) == {}
    assert at(9, group="other") == {"offset_drift": 1}


def worker(*commits: tuple[int, int, int], lines: Sequence[dict[str, Any]] = ()) -> HistoryFile:
    """Return the history of a client that commits transactions with positions, and then has other lines.

    Each commit has the number of its transaction, the position, and the second of the request.
    """
    written: list[dict[str, Any]] = [
        {"type": "open", "format": 1, "run": "r", "client": "p", "role": "producer", "host": "h", "pid": 1}
        | {"clock": "c", "mono": 0, "wall": 0},
        {
            "type": "producer",
            "producer": 1,
            "lanes": [("t", 0)],
            "transactional_id": "i",
            "mono": 0,
            "wall": 0,
        },
    ]
    for op, (txn, position, asked) in enumerate(commits):
        common = {"producer": 1, "txn": txn, "type": "invoke"}
        written += [
            {**common, "f": "send_offsets", "op": 2 * op, "group": "g", "offsets": [("t", 0, position)]}
            | {"mono": asked * SECOND, "wall": 0},
            {**common, "f": "commit", "op": 2 * op + 1, "mono": (asked + 1) * SECOND, "wall": 0},
            {"type": "ok", "f": "commit", "op": 2 * op + 1, "mono": (asked + 2) * SECOND, "wall": 0},
        ]
    return HistoryFile(Path("p.jsonl"), msgspec.json.Encoder().encode_lines([*written, *lines]))


def test_a_sample_that_was_requested_before_a_commit_may_miss_it() -> None:
    history = worker((1, 4, 10), (2, 8, 20))

    def sampled(asked: int, at: int) -> dict[str, int]:
        sample = {"at": at, "asked": asked * SECOND, "group": "g", "positions": [("t", 0, 4)]}
        return found(check_positions(history, observer("o", sample), views=[witness("a", 9, 9)]))

    assert sampled(21, 23) == {}
    assert sampled(23, 24) == {"offset_drift": 1}


def test_the_example_of_a_partition_is_the_highest_end_that_is_gone() -> None:
    case = Tiny(
        "@1-2 p1 commit ok a:0-4\n @5 look a 9/9\n @6 look a 31/31\n @7 look a 12/12", {"a": "p1:0-4 ."}
    )

    [anomaly] = log_ends.check(case.evidence()).anomalies
    assert (anomaly.count, [example.weight for example in anomaly.examples]) == (1, [25])


def test_an_acknowledged_record_that_is_lost_is_no_truncation_as_well() -> None:
    case = Tiny("p2 send ok a:0-9>0", {"a": "p2:0-4"}, {"p2": {"transactional_id": None}})
    assert log_ends.check(case.evidence()).anomalies == []

    case.complete = False
    assert [anomaly.name for anomaly in log_ends.check(case.evidence()).anomalies] == ["log_truncated"]


def test_each_group_has_only_its_own_samples() -> None:
    samples = [
        {"at": 1 + n, "group": group, "positions": [("t", 0, position)]}
        for n, (group, position) in enumerate((("g", 3), ("other", 9)))
    ]
    result = offsets.check(Evidence(fold([observer("o", *samples, ends(5, 0, 3, 8))]), []))

    [anomaly] = result.anomalies
    assert (anomaly.name, anomaly.count) == ("offset_drift", 1)
    assert "group other was at position 9" in anomaly.examples[0].what


def test_a_fault_does_not_explain_a_position_that_stays_wrong() -> None:
    case = CAUGHT["offset_drift"]["moved in a fault, and it stays"]
    assert isinstance(case, Tiny)

    found = [e.what for anomaly in offsets.check(case.evidence()).anomalies for e in anomaly.examples]
    assert any("at position 5" in what and "no client wrote 5 after that" in what for what in found)


def test_a_witness_of_uncommitted_records_shows_no_last_stable_offset() -> None:
    early, late = witness("early", 9, 9, frozen=10), witness("late", 7, 9, frozen=20)
    early.meta.isolation = "read_uncommitted"
    assert found(check(views=[early, late])) == {}

    early.meta.isolation = "read_committed"
    assert found(check(views=[early, late])) == {"log_truncated": 1}


def test_an_acknowledged_record_that_is_read_elsewhere_is_no_truncation() -> None:
    history = "p1 commit ok a:0-4\n p1 commit info a:5-9>20"
    elsewhere, gone = (
        log_ends.check(Tiny(history, {"a": log}).evidence()) for log in ("p1:0-4 . p1:5-9 .", "p1:0-4 .")
    )

    assert found(elsewhere) == {}
    assert found(gone) == {"log_truncated": 1}


def test_a_fault_of_another_clock_explains_no_dip() -> None:
    history = "@1-2 p1 commit ok a:0-4\n @5 look a 6/6\n @6 look a 4/4\n @7 look a 6/6"
    case = Tiny(history, {"a": "p1:0-4 ."}, change=fault_elsewhere)

    [reason] = log_ends.check(case.evidence()).reasons
    assert "although no fault was injected before" in reason


def test_a_wrong_position_is_not_the_measure_of_the_next_one() -> None:
    case = piped("@6 group i:5\n @7 group i:7\n @8 group i:5\n" + MORE + "@20 group i:10")

    assert found(offsets.check(case.evidence())) == {"offset_drift": 1}


def test_a_position_before_the_high_watermark_of_a_witness_is_in_the_partition() -> None:
    samples = observer("o", {"at": 1, "group": "g", "positions": [("t", 0, 8)]})

    assert found(check_positions(samples, views=[witness("a", 6, 8)])) == {}
    assert found(check_positions(samples, views=[witness("a", 6, 7)])) == {"offset_drift": 1}


def test_the_last_positions_of_a_group_are_compared_only_if_the_time_of_their_request_is_known() -> None:
    def last(frozen: int) -> dict[str, int]:
        view = witness("consumed", 9, 9, frozen=frozen)
        view.meta.purpose, view.meta.group, view.meta.positions = "consumed", "g", [("t", 0, 4)]
        view.meta.finished = 30 * SECOND
        return found(check_positions(worker((1, 4, 10), (2, 8, 20)), views=[view, witness("a", 9, 9)]))

    assert last(0) == {}
    assert last(25) == {"offset_drift": 1}


@pytest.mark.parametrize(
    ("answer", "position", "drift"),
    [("ok", 8, {}), ("info", 8, {}), ("ok", 4, {"offset_drift": 1}), ("info", 4, {})],
)
def test_a_commit_of_positions_outside_of_transactions_is_certain_after_its_answer(
    answer: str, position: int, drift: dict[str, int]
) -> None:
    commit = {"f": "commit_offsets", "op": 2, "wall": 0}
    lines = [
        {**commit, "type": "invoke", "group": "g", "offsets": [("t", 0, 8)], "mono": 20 * SECOND},
        {**commit, "type": answer, "mono": 21 * SECOND},
    ]
    sample = {"at": 30, "group": "g", "positions": [("t", 0, position)]}
    histories = (worker((1, 4, 10), lines=lines), observer("o", sample))

    assert found(check_positions(*histories, views=[witness("a", 9, 9)])) == drift
