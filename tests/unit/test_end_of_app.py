"""The end of an application without a group: it is ready, writes nothing, and has nothing open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.kafka.admin import EndOffsets
from harness.run.app_runner import AppRunner
from harness.run.output_growth import OutputGrowth

LIMIT_S = 60.0
REQUEST_S = 30.0
"""With it, an application that has written must be silent for 40 s."""


class Stage:
    """An application runner whose clock, output and supervisor are set by the test."""

    def __init__(self) -> None:
        self.now, self.end, self.stable, self.ready = 0.0, 0, 0, True
        app = SimpleNamespace(group="")
        output = SimpleNamespace(topic="out", is_topic=True)
        cluster = SimpleNamespace(end_offsets=lambda _: {0: EndOffsets(self.end, self.stable)})
        run: Any = SimpleNamespace(
            cluster=cluster, scenario=SimpleNamespace(app=app, input=[], output=[output])
        )
        self.runner = AppRunner(run)
        self.runner._supervisor = SimpleNamespace(is_ready=lambda: self.ready)  # type: ignore[assignment]
        self.runner._growth = OutputGrowth(lambda: self.now)

    def look(self, at: float, end: int, *, stable: int | None = None, ready: bool = True) -> bool:
        self.now, self.end, self.ready = at, end, ready
        self.stable = end if stable is None else stable
        return self.runner._is_silent(REQUEST_S, LIMIT_S)


def written() -> Stage:
    """Return a stage with an application that has written at 1 s."""
    stage = Stage()
    stage.look(0, 0)
    stage.look(1, 5)
    return stage


def test_an_application_that_writes_nothing_has_finished() -> None:
    stage = written()
    assert not stage.look(40, 5)
    assert stage.look(41, 5)


def test_an_application_that_has_never_written_is_given_the_whole_limit() -> None:
    stage = Stage()
    stage.look(0, 0)
    assert not stage.look(59, 0)
    assert stage.look(60, 0)


def test_the_time_until_an_instance_is_ready_is_no_silence() -> None:
    stage = written()
    assert not stage.look(35, 5, ready=False)
    assert not stage.look(74, 5)
    assert stage.look(75, 5)


def test_an_open_transaction_is_awaited_and_its_end_is_a_growth() -> None:
    stage = written()
    stage.look(2, 9, stable=5)
    assert not stage.look(50, 9, stable=5)
    assert not stage.look(60, 10)
    assert not stage.look(61, 10)
    assert stage.look(180, 10)
