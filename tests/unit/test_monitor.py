"""The monitor of a run: progress by phase, and the use of processor and memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

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


def test_the_end_offsets_of_every_partition_are_written_to_the_history() -> None:
    written: list[Any] = []
    fleet: Any = SimpleNamespace(topics={"t": 2, "u": 1}, totals=FleetTotals, active=list, ended=list)
    ends = {"t": {0: EndOffsets(9, 7), 1: EndOffsets(4, 4)}, "u": {0: EndOffsets(0, 0)}}
    metadata = SimpleNamespace(partitions=[])
    cluster: Any = SimpleNamespace(
        end_offsets=lambda topic: ends[topic], admin=SimpleNamespace(metadata=lambda _: metadata)
    )
    spark: Any = SimpleNamespace(restart_if_dead=lambda: None, progress=lambda _: "", pids=[])
    history: Any = SimpleNamespace(sample=written.append)
    monitor = Monitor(cluster, fleet, history, lambda _: None, spark)

    monitor.stop(last_sample=True)

    assert written == [[("t", 0, 0, 7, 9), ("t", 1, 0, 4, 4), ("u", 0, 0, 0, 0)]]


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
        held.append(bytearray(b"x") * (5 << 20))

    growth = re.findall(r"(\d+) and (\d+) MB", usage.describe())
    assert len(growth) == 2, "a kind without a process is left out"
    assert all(80 <= int(last) - int(first) <= 110 for first, last in growth), usage.describe()
