"""The drain phase of a run: the order in which clients stop, what it waits for, and what it measures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.base.errors import WaitTimeoutError
from harness.kafka.admin import EndOffsets
from harness.run import fault_program
from harness.run.fault_program import DRAIN_EXTRA_S
from harness.run.verification import expectation
from harness.scenario import find, load
from tests.unit.test_run_shutdown import Lines, a_program

OPEN, STABLE = EndOffsets(9, 7), EndOffsets(9, 9)


def draining(monkeypatch: pytest.MonkeyPatch, ends: list[EndOffsets]) -> tuple[Any, list[str]]:
    """Return a program whose partition has these ends, one after the other, and the steps that it takes."""
    program, steps = a_program(monkeypatch, []), []

    def end_offsets(_: str) -> dict[int, EndOffsets]:
        steps.append("ends")
        return {0: ends.pop(0) if len(ends) > 1 else ends[0]}

    def stop(*, readers: bool) -> list[Any]:
        steps.append("stop readers" if readers else "stop the others")
        return []

    program._run.cluster.end_offsets = end_offsets
    program._fleet = SimpleNamespace(topics={"t": 1}, stop=stop, kill=lambda: steps.append("kill"))
    return program, steps


def test_readers_stop_after_every_transaction_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    program, steps = draining(monkeypatch, [OPEN, STABLE])

    program._drain()

    assert steps == ["stop the others", "ends", "ends", "stop readers", "kill"]


def test_a_transaction_that_does_not_end_is_reported_and_readers_still_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, steps = draining(monkeypatch, [OPEN])
    program._run.scenario = load(find("jitter"))
    lines: Lines = []
    program._run.events.phase = lambda name, detail="": lines.append((name, detail))
    limits: list[float] = []

    def wait(condition: Any, limit: float, describe: str, **_: Any) -> None:
        assert not condition()
        limits.append(limit)
        raise WaitTimeoutError(f"no {describe}", "look")

    monkeypatch.setattr(fault_program, "wait_until", wait)
    program._drain()

    assert limits == [expectation(program._run.scenario).transaction_timeout_ms / 1000 + DRAIN_EXTRA_S]
    assert ("drain", "no every transaction to end") in lines
    assert steps[-2:] == ["stop readers", "kill"]


def test_the_last_sample_is_taken_after_the_clients_have_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    samples: list[dict[str, Any]] = []
    made: dict[str, Any] = {}
    program = a_program(monkeypatch, [])
    monitor = fault_program.Monitor()
    monitor.stop = lambda **more: samples.append(more)
    program._run.scenario = load(find("running-totals"))
    monkeypatch.setattr(fault_program, "Monitor", lambda *_, **more: made.update(more) or monitor)
    program._run.shutdown.each = lambda *steps: steps[2]()

    program.carry_out(None, SimpleNamespace(invoke=lambda _: 0, info=lambda *_: None))

    assert samples[0] == {"last_sample": True}
    assert made["groups"] == [w.group for w in program._run.scenario.workload if w.kind == "pipeline"]
    assert made["groups"]


def test_a_run_whose_monitor_failed_is_recorded_as_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    program, noted = a_program(monkeypatch, []), []
    observer = SimpleNamespace(invoke=lambda _: 0, info=lambda _, error: noted.append(error.message))
    monitor = fault_program.Monitor()

    program.carry_out(None, observer)
    before = list(noted)
    monitor.failure = "refused"
    program.carry_out(None, observer)

    assert [message for message in noted[len(before) :] if message not in before] == [
        "its monitor failed: refused"
    ]


@pytest.mark.parametrize(
    ("acknowledged", "idle"),
    [({}, 2), ({"steady": 5}, 1), ({"faults": 5}, 1), ({"steady": 0, "faults": 1}, 1), ({"recover": 5}, 2)],
)
def test_a_phase_without_progress_breaks_a_limit(
    acknowledged: dict[str, int], idle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = a_program(monkeypatch, [])
    monitor = fault_program.Monitor()
    monitor.acknowledged_in = acknowledged

    [limit] = program.carry_out(None, SimpleNamespace(invoke=lambda _: 0, info=lambda *_: None))

    assert (limit.name, limit.measured, limit.held) == ("phases without progress", idle, False)
    assert limit.where.count("phase ") == idle
    assert not any(f"phase {phase}" in limit.where for phase, count in acknowledged.items() if count)
    monitor.acknowledged_in = {"steady": 1, "faults": 1}
    [limit] = program.carry_out(None, SimpleNamespace(invoke=lambda _: 0, info=lambda *_: None))
    assert (limit.measured, limit.held) == (0, True)


def test_caveats_of_the_cluster_are_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    program = a_program(monkeypatch, [])
    program._planned = [SimpleNamespace(entry=SimpleNamespace(capability="links"))]
    program._run.cluster.caveats = lambda needed: [f"nothing measures {', '.join(needed)}"]

    assert program.expectation().caveats == ["nothing measures links"]


def test_only_a_changelog_is_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    created: dict[str, Any] = {}
    program = a_program(monkeypatch, [])
    scenario = program._run.scenario = load(find("running-totals"))
    program._run.cluster.create_topic = lambda topic, _, config: created.update({topic: config})
    program._fleet.topics = {"t": 1, **dict.fromkeys(scenario.changelogs, 1)}

    program.carry_out(None, SimpleNamespace(invoke=lambda _: 0, info=lambda *_: None))

    assert scenario.changelogs
    assert created.pop("t") == {}
    assert created == {changelog: {"cleanup.policy": "compact"} for changelog in scenario.changelogs}
