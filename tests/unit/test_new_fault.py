"""A new fault needs only one file: it is found by name, read from TOML, and healed by another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cluster.state_directory import State
from harness.faults.intents import unhealed

# Source of the new fault: it changes a file, and its own undo verb restores the file.
FAULT = """
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.base.errors import HealError, NoBiteError
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.faults.injection import Fault, FaultContext, Measured
from harness.faults.undo import UndoStep, undo_verb


@undo_verb
def reset_clock(cluster: Cluster, node: str, to: str) -> None:
    (cluster.state.path / node).write_text(to)


@dataclass
class ClocksBefore:
    clocks: dict[str, str]


@dataclass(frozen=True)
class ClockSkew(Fault[ClocksBefore]):
    name: ClassVar[str] = "clock_skew"
    capability: ClassVar[Capability] = Capability.PAUSE
    ahead_ms: int

    def before(self, context: FaultContext[ClocksBefore]) -> ClocksBefore:
        return ClocksBefore({node: (context.cluster.state.path / node).read_text() for node in context.nodes})

    def undo_steps(self, context: FaultContext[ClocksBefore]) -> list[UndoStep]:
        return [reset_clock.step(node=node, to=clock) for node, clock in context.state.clocks.items()]

    def apply(self, context: FaultContext[ClocksBefore]) -> None:
        for node, clock in context.state.clocks.items():
            (context.cluster.state.path / node).write_text(str(int(clock) + self.ahead_ms))

    def bite(self, context: FaultContext[ClocksBefore]) -> Measured:
        now = self.before(context).clocks
        if now == context.state.clocks:
            raise NoBiteError("the clock is not ahead", "see the file")
        return now

    def health(self, context: FaultContext[ClocksBefore]) -> Measured:
        if self.before(context) != context.state:
            raise HealError("the clock is still ahead", "see the file")
        return {}
"""
SCENARIO = """
[scenario]
name = "skew"
shows = "Clocks may differ."

[[workload]]
kind = "idempotent"

[[fault]]
fault = "clock_skew"
target = "kafka-2"
ahead = "1500ms"
"""
# First lines of each script. They add the new file to the package of faults, and define a cluster that is a
# folder with one file per node.
PREPARE = """
import os, sys
from pathlib import Path
from types import SimpleNamespace

import harness.faults
from harness.cluster.state_directory import State

folder = Path(sys.argv[1])
harness.faults.__path__.append(str(folder / "faults"))
cluster = SimpleNamespace(
    state=State(folder / "state"), broker_ids=(1, 2), name_of="kafka-{}".format, require=lambda _: None
)
"""
INJECT = """
from harness.faults.injection import Injection
from harness.faults import ClockSkew
from harness.scenario import load, make_fault

(entry,) = load(folder / "skew.toml").fault
assert make_fault(entry) == ClockSkew(ahead_ms=1500)
Injection(cluster, make_fault(entry), entry.target).start()
os._exit(9)  # killed: nothing of this process can heal the fault
"""
HEAL = """
from harness.faults.intents import unhealed
from harness.faults.undo import undo

(intent,) = unhealed(cluster.state)
undo(cluster, intent.undo["steps"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("faults", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "faults" / "clock_skew.py").write_text(FAULT)
    (tmp_path / "skew.toml").write_text(SCENARIO)
    for node in ("kafka-1", "kafka-2"):
        (tmp_path / "state" / node).write_text("500")
    return tmp_path


def run(script: str, folder: Path) -> int:
    command = [sys.executable, "-c", PREPARE + script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    return done.returncode


def clocks(folder: Path) -> list[str]:
    return [(folder / "state" / node).read_text() for node in ("kafka-1", "kafka-2")]


def test_a_fault_in_one_new_file_runs_from_toml_and_another_process_heals_it(folder: Path) -> None:
    assert run(INJECT, folder) == 9
    assert clocks(folder) == ["500", "2000"]
    (intent,) = unhealed(State(folder / "state"))
    assert (intent.fault, intent.target, intent.resolved) == ("clock_skew", "kafka-2", ["kafka-2"])
    assert intent.params == {"ahead_ms": 1500}
    assert intent.undo == {"steps": [{"do": "reset_clock", "node": "kafka-2", "to": "500"}]}

    assert run(HEAL, folder) == 0

    assert clocks(folder) == ["500", "500"]


def test_the_loader_checks_the_parameters_of_a_new_fault(folder: Path) -> None:
    (folder / "skew.toml").write_text(SCENARIO.replace("ahead =", "behind ="))
    script = """
import json
from harness.base.errors import UsageError
from harness.scenario import load
try:
    load(folder / "skew.toml")
except UsageError as error:
    print(json.dumps([error.message, error.hint]))
"""
    command = [sys.executable, "-c", PREPARE + script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    message, hint = json.loads(done.stdout)
    assert message == f"{folder / 'skew.toml'}:12: fault[0].behind: clock_skew has no such parameter"
    assert hint == "clock_skew takes ahead"
