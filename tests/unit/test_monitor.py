"""What a run's watch credits to which phase, and what a run says of its own cost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from harness.base.processes import memory_of
from harness.run.fleet import Fleet, FleetTotals
from harness.run.monitor import Monitor
from harness.run.resource_usage import ResourceUsage


class Done:
    """A fleet that has done so much."""

    def __init__(self) -> None:
        self.acknowledged = 0

    def totals(self) -> FleetTotals:
        return FleetTotals(acknowledged=self.acknowledged)


def test_what_a_client_that_is_gone_was_sending_is_on_the_way_no_more() -> None:
    def client(name: str) -> Any:
        progress = SimpleNamespace(acknowledged=9, committed=1, aborted=0, unknown=0, in_flight=5)
        return SimpleNamespace(spec=SimpleNamespace(client=name), progress=lambda: progress)

    fleet: Any = Fleet(cast(Any, None), cast(Any, None), "r", 1, Path(), Path())
    fleet.clients = [client("p-1"), client("p-1~1")]
    fleet._replaced = {"p-1"}

    assert fleet.totals() == FleetTotals(acknowledged=18, committed=2, in_flight=5)


def test_a_phase_that_is_shorter_than_a_look_has_what_was_done_in_it() -> None:
    fleet: Any = Done()
    watch = Monitor(cast(Any, None), fleet, cast(Any, None), lambda _: None, cast(Any, None))

    for phase, acknowledged in (("settle", 0), ("steady", 5), ("faults", 12), ("drain", 12)):
        fleet.acknowledged = acknowledged
        watch.enter(phase)
    fleet.acknowledged = 20
    watch.enter("verify")

    assert watch.phase == "verify"
    assert {p: n for p, n in watch.acknowledged_in.items() if n} == {"settle": 5, "steady": 7, "drain": 8}
    assert not watch.acknowledged_in.get("faults")


def test_the_memory_of_a_process_is_told_with_its_children_or_without() -> None:
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


def test_growth_is_seen_from_the_first_looks_to_the_last() -> None:
    cost = ResourceUsage()
    held = []
    for _ in range(20):
        cost.look({"the largest client": [os.getpid()], "Spark's live job": []})
        held.append(bytearray(b"x") * (5 << 20))

    told = re.findall(r"(\d+) and (\d+) MB", cost.told())
    assert len(told) == 2, "who never lived is not told"
    assert all(80 <= int(last) - int(first) <= 110 for first, last in told), cost.told()
