"""The record of how late threads wake: the thread that keeps it, its lines, and what does not count."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from harness.base.waits import wait_until
from harness.evidence.checkers import starvation
from harness.evidence.checkers.starvation import GAP_NS, NOTHING, Lost, Record, lost_time, notes
from harness.evidence.history import (
    HistoryClosed,
    HistoryFile,
    HistoryOpened,
    HistoryWriter,
    Lateness,
    Line,
    lateness_recorder,
)
from harness.evidence.history.lateness_recorder import SLEEP_S, LatenessRecorder, read_pressure
from harness.evidence.ledger import scan
from tests.planted.cases_starvation import SLOW, STARVED
from tests.planted.tiny import SECOND, Tiny

SLEEP = round(SLEEP_S * SECOND)


class Times:
    """A clock that only sleeping moves. Each sleep takes the next of the given latenesses longer."""

    def __init__(self, *late: int) -> None:
        self.now = 5 * SECOND
        self.late = list(late)

    def sleep(self, seconds: float) -> bool:
        self.now += round(seconds * SECOND) + self.late.pop(0)
        return not self.late


def windows(*late: int) -> list[Lateness]:
    """Return the lines about sleeps that end this late."""
    times, lines = Times(*late), list[Lateness]()
    recorder = LatenessRecorder(lines.append, times.now, sleep=times.sleep, clock=lambda: times.now)
    recorder.run()
    return lines


def test_a_window_lasts_a_second_and_has_the_largest_and_the_total_lateness() -> None:
    first, last = windows(0, 2, 0, 7, 0, 0, 0, 0, 0, 0, 5, 3)
    assert (first.since, first.mono - first.since) == (5 * SECOND, SECOND + 9)
    assert (first.wakes, first.largest, first.total) == (10, 7, 9)
    assert (last.since, last.mono) == (first.mono, first.mono + 2 * SLEEP + 8)
    assert (last.wakes, last.largest, last.total) == (2, 5, 8)


def test_a_late_wake_makes_the_window_longer_and_none_is_missing() -> None:
    lines = windows(0, 3 * SECOND, 0, 2 * SECOND, 0)
    assert [line.largest for line in lines] == [3 * SECOND, 2 * SECOND, 0]
    assert [line.since for line in lines[1:]] == [line.mono for line in lines[:-1]]


def test_a_wake_before_its_time_is_not_late() -> None:
    (line,) = windows(-5)
    assert (line.wakes, line.largest, line.total) == (1, 0, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("some avg10=0.0 avg60=0.0 avg300=0.0 total=17\nfull avg10=0.0 total=3\n", 17),
        ("full avg10=0.0 total=3\n", None),
        ("some avg10=0.0\n", None),
        ("", None),
        ("some total=x\n", None),
        (None, None),
    ],
)
def test_the_pressure_is_read_where_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, expected: int | None
) -> None:
    path = tmp_path / "cpu"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(lateness_recorder, "PRESSURE", path)
    assert read_pressure() == expected


def test_the_pressure_of_a_window_is_the_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cpu"
    monkeypatch.setattr(lateness_recorder, "PRESSURE", path)
    path.write_text("some total=100\n")
    times, lines = Times(0), list[Lateness]()

    def sleep(seconds: float) -> bool:
        path.write_text("some total=350\n")
        return times.sleep(seconds)

    LatenessRecorder(lines.append, times.now, sleep=sleep, clock=lambda: times.now).run()
    assert [line.pressure for line in lines] == [250]
    assert [line.pressure for line in windows(0)] == [0]
    path.unlink()
    assert [line.pressure for line in windows(0)] == [None]


def lines_of(path: Path) -> list[Line]:
    return [line for _, line in HistoryFile(path).read()]


def test_a_history_records_lateness_from_its_opening_to_its_closing_line(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with HistoryWriter(path, run="r", client="c", role="idempotent", lateness=True) as history:
        history.sample([("t", 0, 0, 1, 1)])
        wait_until(lambda: any(isinstance(line, Lateness) for line in lines_of(path)), 30, "a window")
    lines = lines_of(path)
    opening, closing = lines[0], lines[-1]
    assert isinstance(opening, HistoryOpened)
    assert opening.lateness
    assert isinstance(closing, HistoryClosed)
    assert closing.lines == len(lines)
    record = [line for line in lines if isinstance(line, Lateness)]
    assert len(record) >= 2
    assert record[0].since == opening.mono
    assert [line.since for line in record[1:]] == [line.mono for line in record[:-1]]
    scanned = scan(HistoryFile(path))
    assert scanned.lateness[:, :5].tolist() == [
        [line.since, line.mono, line.wakes, line.largest, line.total] for line in record
    ]
    assert [type(lines[number - 1]) for number in scanned.lateness[:, 5]] == [Lateness] * len(record)
    assert starvation._problem(scanned) == ""


def test_a_history_without_a_record_promises_none(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    HistoryWriter(path, run="r", client="c", role="observer").close()
    assert [type(line) for line in lines_of(path)] == [HistoryOpened, HistoryClosed]
    assert not msgspec.to_builtins(lines_of(path)[0]).get("lateness", False)


def test_a_history_that_was_closed_twice_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    history = HistoryWriter(path, run="r", client="c", role="observer", lateness=True)
    history.close("gave up")
    history.close()
    assert [line.reason for line in lines_of(path) if isinstance(line, HistoryClosed)] == ["gave up"]


def test_lines_of_the_record_are_no_operations() -> None:
    quiet = Tiny(SLOW, {"a": "p1:0-4 ."}).evidence().ledger
    recorded = Tiny(SLOW, {"a": "p1:0-4 ."}, late={"p1": ""}).evidence().ledger
    assert recorded.operations == quiet.operations
    assert recorded.clients[0].lines > quiet.clients[0].lines


RECORD = Record(*(np.array(column) * SECOND for column in ([10, 11, 12, 14], [0, 1, 1])), np.array([1, 9, 5]))
"""Windows of 1, 1 and 2 s: the first counts, the second does not, and of the third a half counts."""


@pytest.mark.parametrize(
    ("start", "end", "starved", "unknown", "largest"),
    [
        (10, 11, 0, 0, 0),
        (11, 12, 1, 0, 9),
        (11.5, 12, 0.5, 0, 9),
        (11.5, 13, 1, 0, 9),
        (12, 14, 1, 0, 5),
        (13, 14, 0.5, 0, 5),
        (10, 14, 2, 0, 9),
        (8, 14, 2, 0, 9),
        (7, 14, 2, 3, 9),
        (10, 20, 2, 6, 9),
        (20, 23, 0, 3, 0),
        (20, 22, 0, 0, 0),
        (14, 11, 0, 0, 0),
    ],
)
def test_a_part_of_a_window_is_lost_in_proportion(
    start: float, end: float, starved: float, unknown: float, largest: int
) -> None:
    lost = RECORD.within(round(start * SECOND), round(end * SECOND))
    assert lost == Lost(round(starved * SECOND), round(unknown * SECOND), largest)


def test_without_a_record_everything_is_unknown() -> None:
    assert NOTHING.within(3, 9 * SECOND) == Lost(unknown=9 * SECOND - 3)
    assert GAP_NS == 2 * SECOND


def find_reasons(case: Tiny) -> list[str]:
    return [reason for result in case.judge().results for reason in result.reasons]


def test_reasons_name_the_operation_the_lost_time_and_how_many_more_there_are() -> None:
    two = SLOW + "@11-74 p3 commit ok b:0-4\n @12-73 p4 commit ok i:0-4"
    logs = {"a": "p1:0-4 .", "b": "p3:0-4 .", "i": "p4:0-4 ."}
    (reason,) = find_reasons(Tiny(two, logs, late={"oracle": STARVED}))
    assert reason.startswith("transaction 1 of producer 1 got its answer after 65.0 s, but the machine was")
    assert "woke up to 400 ms late; 2 more operations likewise" in reason


def test_a_missing_record_has_a_reason_of_its_own() -> None:
    case = Tiny(SLOW, {"a": "p1:0-4 ."}, late={"oracle": ""})
    evidence = case.evidence()
    (observer,) = [client for client in evidence.ledger.clients if client.name == "oracle"]
    observer.lateness = observer.lateness[:0]
    lost = lost_time(evidence, observer, 10 * SECOND, 75 * SECOND)
    assert lost == Lost(unknown=65 * SECOND)
    assert lost.text().startswith("there is no record of 65.0 s of this")


@pytest.mark.parametrize(("late", "number"), [("", 0), ("0-76:10", 0), ("20-30:400", 1)])
def test_a_note_names_the_time_in_which_the_machine_was_starved(late: str, number: int) -> None:
    found = notes(Tiny(SLOW, {"a": "p1:0-4 ."}, late={"oracle": late}).evidence())
    assert len(found) == number
    assert all("the machine was starved in 10 of 76 s" in note for note in found)
