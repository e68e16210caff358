"""A wait for an application grows by the time in which the machine was starved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.base.errors import WaitTimeoutError
from harness.evidence.history import HistoryWriter, Lateness
from harness.run.counted_wait import MOST, wait_counted
from tests.planted.tiny import SECOND

WAKES = 10
LIMIT_S = 60.0


class Machine:
    """A clock that only waiting moves, and the run's record of how late its threads woke."""

    def __init__(self, path: Path, late_ms: dict[range, int], done_at: float | None = None) -> None:
        self.path, self.now, self.waits = path, 100 * SECOND, list[float]()
        self._late, self._done_at = late_ms, done_at
        self._history = HistoryWriter(path, run="r", client="observer", role="observer")
        self._second = 0

    def wait(self, condition: Callable[[], bool], limit: float, describe: str, **_: float) -> None:
        """Wait in simulated time. The record then has a window for each whole second."""
        assert not condition()
        began = self.now
        self.waits.append(limit)
        if self._done_at is not None and self.elapsed + limit >= self._done_at:
            self.now = 100 * SECOND + round(self._done_at * SECOND)
            return
        self.now = began + round(limit * SECOND)
        while self.elapsed - self._second >= 1:
            self._end_window()
        raise WaitTimeoutError(f"waited for {describe}", "")

    def _end_window(self) -> None:
        since = 100 * SECOND + self._second * SECOND
        late = next((ms for seconds, ms in self._late.items() if self._second in seconds), 0) * 1_000_000
        line = Lateness(
            since=since, mono=since + SECOND, wall=0, wakes=WAKES, largest=late, total=WAKES * late
        )
        self._history._write(line)
        self._second += 1

    @property
    def elapsed(self) -> float:
        """Simulated seconds since the start."""
        return (self.now - 100 * SECOND) / SECOND

    def run(self) -> str:
        """Wait for 60 s that count. Return the error, or an empty text if the condition was met."""
        try:
            wait_counted(
                lambda: False,
                LIMIT_S,
                "the group",
                observer=self.path,
                every=0.5,
                wait=self.wait,
                clock=lambda: self.now,
            )
        except WaitTimeoutError as error:
            return error.message
        return ""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "observer.jsonl"


def test_a_quiet_machine_has_no_longer_wait(path: Path) -> None:
    machine = Machine(path, {range(999): 20})

    assert machine.run() == "waited 60.0 s for the group"
    assert machine.waits == [LIMIT_S]


def test_starved_seconds_are_waited_again(path: Path) -> None:
    """A half of each of 8 seconds counts, because threads woke 40 ms late."""
    machine = Machine(path, {range(10, 18): 40})

    assert machine.run() == "waited 64.0 s for the group, 4 s of them because the machine was starved"
    assert machine.waits == [LIMIT_S, 4.0]


def test_seconds_that_are_starved_while_they_are_waited_again_count_no_more(path: Path) -> None:
    machine = Machine(path, {range(52, 64): 40})

    machine.run()

    assert machine.waits[:2] == [LIMIT_S, 4.0]
    assert machine.elapsed == 66.0


def test_the_wait_of_a_machine_that_stays_starved_has_an_end(path: Path) -> None:
    machine = Machine(path, {range(999): 200})

    message = machine.run()

    assert machine.elapsed == MOST * LIMIT_S
    assert message == "waited 180.0 s for the group, 120 s of them because the machine was starved"


def test_an_application_that_finishes_in_the_added_time_is_awaited(path: Path) -> None:
    machine = Machine(path, {range(10, 18): 40}, done_at=63.0)

    assert machine.run() == ""
    assert machine.elapsed == 63.0


def test_a_second_that_has_not_ended_does_not_count(path: Path) -> None:
    """The record has only whole seconds, and the last one may be a starved one."""
    machine = Machine(path, {})
    machine.now += SECOND // 4

    assert machine.run() == "waited 61.0 s for the group"
    assert machine.waits == [LIMIT_S, 0.5, 0.5]


def test_without_a_record_all_of_the_time_counts(path: Path) -> None:
    machine = Machine(path, {})
    machine._end_window = lambda: setattr(machine, "_second", 999)  # type: ignore[method-assign]

    assert machine.run() == "waited 60.0 s for the group"
