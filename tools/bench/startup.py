"""Measure start, fail-over and memory of a cluster, and compare them with the targets.

    python -m tools.bench.startup --backend process --repeats 5

Starts and removes separate clusters in a separate state directory, through the command line as a user would.
The first one is not counted, so that jars and images are present; then one follows for each repeat. It writes
and leaves nothing else. Times are those of the whole command, including its interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harness.base.errors import HarnessError
from harness.base.waits import wait_until
from harness.cluster import lifecycle
from harness.cluster.broker_settings import SESSION_TIMEOUT_MS
from harness.cluster.cluster import Cluster
from harness.cluster.state_directory import BackendName, State
from tools.bench.node_memory import container_memory, process_memory

EOS = Path(sys.executable).with_name("eos")
HELP_REPEATS = 5  # a quarter of a second each
TOPIC = "bench-startup"
START_TARGET_S: dict[BackendName, float] = {"compose": 10.0, "process": 5.5}
MEMORY_TARGET_GB: dict[BackendName, float] = {"compose": 1.6, "process": 0.8}
TAKEOVER_TARGET_S = 1.5 * SESSION_TIMEOUT_MS / 1000


@dataclass
class Row:
    """One figure: its name, its measured values and the target that they may not exceed."""

    what: str
    unit: str
    target: float
    values: list[float] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether the median is within the target."""
        return statistics.median(self.values) <= self.target

    def cells(self) -> list[str]:
        """Return the cells of the table: name, measured values, target, met."""
        low, middle, high = min(self.values), statistics.median(self.values), max(self.values)
        measured = f"{middle:.2f} {self.unit} ({low:.2f}-{high:.2f} of {len(self.values)})"
        return [self.what, measured, f"{self.target:g} {self.unit}", "yes" if self.held else "no"]

    def plain(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {
            "what": self.what,
            "unit": self.unit,
            "values": [round(value, 3) for value in self.values],
            "median": round(statistics.median(self.values), 3),
            "target": self.target,
            "held": self.held,
        }


class Rows:
    """The figures of one back end."""

    def __init__(self, backend: BackendName) -> None:
        what = "containers" if backend == "compose" else "processes"
        self.up = Row(f"eos up ({backend}) until transactions work", "s", START_TARGET_S[backend])
        self.again = Row("eos up when the cluster is up", "s", 0.5)
        self.help = Row("eos --help", "s", 0.25)
        self.memory = Row(f"memory of the six idle nodes ({what})", "GB", MEMORY_TARGET_GB[backend])
        self.takeover = Row("from the kill of a leader until another serves", "s", TAKEOVER_TARGET_S)

    @property
    def all(self) -> list[Row]:
        """All rows, in the order of the table."""
        return [self.up, self.again, self.help, self.memory, self.takeover]


def eos(*arguments: str) -> float:
    """Run a command as a user would and return how long it took."""
    start = time.perf_counter()
    done = subprocess.run([EOS, *arguments], capture_output=True, text=True, timeout=1800, check=False)
    took = time.perf_counter() - start
    if done.returncode != 0:
        problem = f"ended with exit code {done.returncode}: {done.stderr.strip()[-800:]}"
        raise HarnessError(f"`eos {' '.join(arguments)}` {problem}", "run `eos doctor`")
    return took


@contextmanager
def directory() -> Iterator[Path]:
    """Yield a state directory; remove it afterwards, together with a cluster that is still in it."""
    path = Path(tempfile.mkdtemp(prefix="eos-bench-"))
    try:
        yield path
    finally:
        lifecycle.down(State(path))
        shutil.rmtree(path)  # not earlier: `down` finds the nodes by the record in it


def measure(backend: BackendName, repeats: int, report: Callable[[str], None]) -> tuple[Rows, str]:
    """Measure everything `repeats` times; also return the kind of memory that was counted."""
    rows = Rows(backend)
    rows.help.values = [eos("--help") for _ in range(HELP_REPEATS)]
    kind = ""
    with directory() as path:
        arguments = ("--state", str(path))
        for number in range(repeats + 1):
            report(f"cluster {number} of {repeats}" + (", not counted" if number == 0 else ""))
            took = eos("up", "--backend", backend, *arguments)
            if number > 0:
                rows.up.values.append(took)
                rows.again.values.append(eos("up", "--backend", backend, *arguments))
                cluster = lifecycle.attach(State(path))
                memory, kind = memory_gb(cluster)
                rows.memory.values.append(memory)
                rows.takeover.values.append(takeover_s(cluster))
            eos("down", *arguments)
    return rows, kind


def memory_gb(cluster: Cluster) -> tuple[float, str]:
    """Return the memory of all brokers and controllers, and how it was counted."""
    nodes = [*cluster.brokers, *cluster.controllers]
    if cluster.record.backend == "compose":
        taken = sum(container_memory(cast(Any, node).container) for node in nodes)
        return taken / 1e9, "charged to the containers, without inactive file cache"
    found = [process_memory(node.status().pid or 0) for node in nodes]
    return sum(taken for taken, _ in found) / 1e9, " and ".join(sorted({kind for _, kind in found}))


def takeover_s(cluster: Cluster) -> float:
    """Return the seconds from the SIGKILL of a leader until another broker leads and answers."""
    cluster.create_topic(TOPIC, [[1, 2, 3]])
    leader = cluster.leader_of(TOPIC, 0)

    def served() -> bool:
        return cluster.partition(TOPIC, 0).leader != leader and bool(cluster.end_offsets(TOPIC))

    start = time.perf_counter()
    cluster.node(leader).kill()
    wait_until(served, 60, f"a leader other than broker {leader} to serve", every=0.02)
    return time.perf_counter() - start


def table(rows: list[Row]) -> str:
    """Aligned columns."""
    lines = [["measurement", "result (median, min-max)", "target", "met"], *(row.cells() for row in rows)]
    wide = [max(len(line[column]) for line in lines) for column in range(4)]
    lines.insert(1, ["-" * width for width in wide])
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, wide, strict=True)).rstrip() for line in lines
    )


def main() -> None:
    """Measure one back end and print the table, or one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=["auto", "compose", "process"], default="auto")
    parser.add_argument("--repeats", type=int, default=3, help="number of counted clusters (default: 3)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be 1 or more")

    def report(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    load, cores = os.getloadavg()[0], os.cpu_count()
    backend = lifecycle.choose_backend(report) if options.backend == "auto" else options.backend
    try:
        rows, kind = measure(backend, options.repeats, report)
    except HarnessError as error:
        report(f"error: {error.message}\n\nhint: {error.hint}")
        sys.exit(error.exit_code)
    if options.json:
        machine = {"backend": backend, "cores": cores, "load_before": round(load, 1), "memory_is": kind}
        print(json.dumps(machine | {"figures": [row.plain() for row in rows.all]}, indent=2))
        return
    print(table(rows.all))
    print(f"\n{backend}, {cores} cores, load before {load:.1f}; memory: {kind}")


if __name__ == "__main__":
    main()
