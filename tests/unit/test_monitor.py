"""The monitor of a run: progress by phase, and the use of processor and memory."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.base.errors import RefusedError
from harness.base.events import ClientEnded
from harness.base.processes import memory_of
from harness.kafka.admin import EndOffsets
from harness.run.fleet import Fleet, FleetTotals
from harness.run.monitor import Monitor
from harness.run.resource_usage import ResourceUsage


class FleetStub:
    """A fleet with a given number of acknowledged records."""

    def __init__(self) -> None:
        self.acknowledged = 0

    def totals(self) -> FleetTotals:
        return FleetTotals(acknowledged=self.acknowledged)


def test_records_in_flight_of_a_crashed_client_do_not_count() -> None:
    def client(name: str) -> Any:
        progress = SimpleNamespace(acknowledged=9, committed=1, aborted=0, unknown=0, in_flight=5)
        return SimpleNamespace(spec=SimpleNamespace(client=name), progress=lambda: progress)

    fleet: Any = Fleet(cast(Any, None), cast(Any, None), "r", 1, Path(), Path(), cast(Any, None))
    fleet.clients = [client("p-1"), client("p-1~1")]
    fleet._replaced = {"p-1"}

    assert fleet.totals() == FleetTotals(acknowledged=18, committed=2, in_flight=5)


def test_a_phase_shorter_than_a_sample_is_credited_with_its_progress() -> None:
    fleet: Any = FleetStub()
    monitor = Monitor(cast(Any, None), fleet, cast(Any, None), lambda _: None, cast(Any, None))

    for phase, acknowledged in (("settle", 0), ("steady", 5), ("faults", 12), ("drain", 12)):
        fleet.acknowledged = acknowledged
        monitor.enter(phase)
    fleet.acknowledged = 20
    monitor.enter("verify")

    assert monitor.phase == "verify"
    assert {p: n for p, n in monitor.acknowledged_in.items() if n} == {"settle": 5, "steady": 7, "drain": 8}
    assert not monitor.acknowledged_in.get("faults")


class Sampled:
    """Stub of a cluster with two topics and the positions of one group, and of the history."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: list[dict[str, Any]] = []
        self.ends: dict[str, Any] = {
            "t": {0: EndOffsets(9, 7), 1: EndOffsets(4, 4)},
            "u": {0: EndOffsets(0, 0)},
        }
        self.positions: dict[Any, int] | OSError = {("t", 1): 3, ("t", 0): 6}
        self.asked: list[str] = []
        starts = {"t": {0: 2, 1: 0}, "u": {0: 0}}
        admin = SimpleNamespace(
            metadata=lambda _: SimpleNamespace(partitions=[]), list_offsets=lambda topic, _: starts[topic]
        )
        monkeypatch.setattr("harness.run.monitor.stable_offsets", self._stable_offsets)
        fleet: Any = SimpleNamespace(topics={"t": 2, "u": 1}, totals=FleetTotals, active=list, ended=list)
        cluster: Any = SimpleNamespace(end_offsets=self._end_offsets, admin=admin)
        spark: Any = SimpleNamespace(restart_if_dead=lambda: None, progress=lambda _: ("", None), pids=[])
        history: Any = SimpleNamespace(sample=self._sample)
        self.monitor = Monitor(cluster, fleet, history, lambda _: None, spark, groups=["g"])

    def _sample(self, bounds: Any = (), **more: Any) -> None:
        self.written.append({"bounds": bounds, **more})

    def _end_offsets(self, topic: str) -> Any:
        if isinstance(self.ends[topic], OSError):
            raise self.ends[topic]
        return self.ends[topic]

    def _stable_offsets(self, _: object, group: str) -> Any:
        self.asked.append(group)
        if isinstance(self.positions, OSError):
            raise self.positions
        return self.positions


def test_the_bounds_of_every_partition_and_the_positions_of_groups_are_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampled = Sampled(monkeypatch)
    before = time.monotonic_ns()

    sampled.monitor.stop(last_sample=True)

    bounds, positions = sampled.written
    assert bounds["bounds"] == [("t", 0, 2, 7, 9), ("t", 1, 0, 4, 4), ("u", 0, 0, 0, 0)]
    assert (positions["group"], positions["positions"]) == ("g", [("t", 0, 6), ("t", 1, 3)])
    assert before <= bounds["asked"] <= positions["asked"] <= time.monotonic_ns()


def test_pending_positions_and_unreachable_leaders_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = Sampled(monkeypatch)
    sampled.positions = OSError("pending")
    sampled.monitor.stop(last_sample=True)
    assert [line["bounds"][0] for line in sampled.written] == [("t", 0, 2, 7, 9)]

    sampled = Sampled(monkeypatch)
    sampled.ends["u"] = ConnectionError("u-0 has no leader")
    sampled.monitor.stop(last_sample=True)
    assert (sampled.written, sampled.asked) == ([], [])


def test_an_error_of_a_sample_is_kept_and_ends_the_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.monitor.EVERY_S", 0.01)
    sampled = Sampled(monkeypatch)
    refused = RefusedError("OffsetFetchRequest is refused", "a bug")
    monkeypatch.setattr("harness.run.monitor.stable_offsets", Raise(refused))
    sampled.monitor.start()
    sampled.monitor._thread.join(30)
    assert not sampled.monitor._thread.is_alive()
    assert sampled.monitor.failure == "OffsetFetchRequest is refused"

    sampled = Sampled(monkeypatch)
    sampled.monitor.stop(last_sample=True)
    assert sampled.monitor.failure == ""
    monkeypatch.setattr("harness.run.monitor.stable_offsets", Raise(ValueError("not a number")))
    sampled.monitor.stop(last_sample=True)
    assert "not a number" in sampled.monitor.failure


class Raise:
    """A function that always raises the same error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, *_: object) -> None:
        raise self.error


def a_monitor(monkeypatch: pytest.MonkeyPatch, events: list[Any]) -> Any:
    """Return a monitor of a cluster without faults; it appends its events to `events`."""
    monitor: Any = Sampled(monkeypatch).monitor
    monitor._emit = events.append
    return monitor


def test_a_phase_is_never_credited_with_less_than_nothing() -> None:
    fleet: Any = FleetStub()
    monitor = Monitor(cast(Any, None), fleet, cast(Any, None), lambda _: None, cast(Any, None))

    for phase, acknowledged in (("settle", 0), ("steady", 10), ("faults", 7), ("drain", 12)):
        fleet.acknowledged = acknowledged
        monitor.enter(phase)

    assert {p: n for p, n in monitor.acknowledged_in.items() if p} == {"settle": 10, "steady": 0, "faults": 2}


def test_the_end_of_a_client_is_reported_once_and_not_while_the_run_stops_its_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[Any] = []
    monitor = a_monitor(monkeypatch, events)
    client = SimpleNamespace(spec=SimpleNamespace(client="p-1"), exit_code=lambda: 1, log=lambda: "a\nb\n")
    monitor._fleet.ended = lambda: [client]

    def loop(phase: str) -> list[tuple[str, int | None, str]]:
        events.clear()
        monitor.phase = phase
        waits = [False, False, True]
        monitor._stopped = SimpleNamespace(wait=lambda _: waits.pop(0), is_set=lambda: False)
        monitor._loop()
        return [(e.client, e.exit_code, e.last_line) for e in events if isinstance(e, ClientEnded)]

    assert loop("drain") == []
    assert loop("steady") == [("p-1", 1, "b")]
    assert loop("faults") == []


def test_the_last_sample_does_not_start_spark_again(monkeypatch: pytest.MonkeyPatch) -> None:
    restarts: list[str] = []
    monitor = a_monitor(monkeypatch, [])
    monitor._spark.restart_if_dead = lambda: restarts.append(monitor.phase)

    monitor.phase = "steady"
    monitor._report_progress()
    monitor.phase = "drain"
    monitor.stop(last_sample=True)

    assert restarts == ["steady"]


def test_the_lag_is_that_of_the_worst_partition_and_never_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    sampled = Sampled(monkeypatch)
    sampled.monitor._emit = events.append

    sampled.monitor._report_progress()
    sampled.ends = {"t": {0: EndOffsets(4, 7), 1: EndOffsets(3, 4)}, "u": {0: EndOffsets(8, 9)}}
    sampled.monitor._report_progress()
    sampled.ends["u"] = ConnectionError("u-0 has no leader")
    sampled.monitor._report_progress()

    assert [event.lso_lag for event in events] == [2, 0, None]


def test_the_memory_of_a_process_is_measured_with_or_without_its_children() -> None:
    hundred_mb = "held = bytearray(b'x') * (100 << 20); print(flush=True); input()"
    parent = (
        "import subprocess, sys; "
        f"subprocess.run([sys.executable, '-c', {hundred_mb!r}], stdin=sys.stdin, check=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        alone, together = memory_of(process.pid), memory_of(process.pid, children=True)
        process.communicate(b"\n")

    assert 0 < alone < 100 << 20 < together
    assert memory_of(process.pid) == 0


def test_memory_growth_is_measured_from_the_first_samples_to_the_last() -> None:
    usage = ResourceUsage()
    held = []
    for _ in range(20):
        usage.sample({"the largest client": [os.getpid()], "Spark's driver": []})
        # Memory of the heap may be memory that an earlier test has freed, so take new pages.
        held.append(mmap.mmap(-1, 5 << 20))
        held[-1].write(b"x" * (5 << 20))

    growth = re.findall(r"(\d+) and (\d+) MB", usage.describe())
    assert len(growth) == 2, "a kind without a process is left out"
    assert all(80 <= int(last) - int(first) <= 110 for first, last in growth), usage.describe()
