"""Benchmark of the start, the memory and the fail-over of a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from harness.base.errors import HarnessError
from harness.base.waits import wait_until
from harness.cli.options import backend_option, log
from harness.cluster import lifecycle
from harness.cluster.broker_settings import SESSION_TIMEOUT_MS
from harness.cluster.cluster import Cluster
from harness.cluster.state_directory import BackendChoice, BackendName, State
from tools.bench.command import benchmark, json_option, rounds_option
from tools.bench.figure import Figure, Part, show
from tools.bench.node_memory import container_memory, process_memory

EOS = Path(sys.executable).with_name("eos")
HELP_ROUNDS = 5
TOPIC = "bench-startup"
START_TARGET_S: dict[BackendName, float] = {"compose": 10.0, "process": 5.5}
MEMORY_TARGET_GB: dict[BackendName, float] = {"compose": 1.6, "process": 0.8}
FAIL_OVER_TARGET_S = 1.5 * SESSION_TIMEOUT_MS / 1000


def eos(*arguments: str) -> float:
    """Run an `eos` command as a user does, and return its duration in seconds."""
    start = time.perf_counter()
    done = subprocess.run([EOS, *arguments], capture_output=True, text=True, timeout=1800, check=False)
    took = time.perf_counter() - start
    if done.returncode != 0:
        output = done.stderr.strip()[-800:]
        problem = f"`eos {' '.join(arguments)}` ended with exit code {done.returncode}: {output}"
        raise HarnessError(problem, "run `eos doctor`")
    return took


@contextmanager
def temporary_state() -> Iterator[Path]:
    """Create a state directory. After the block, remove the directory and the cluster that it describes."""
    path = Path(tempfile.mkdtemp(prefix="eos-bench-"))
    try:
        yield path
    finally:
        lifecycle.down(State(path))
        shutil.rmtree(path)  # only after `down`, which finds the nodes through a file in this directory


def measure(backend: BackendName, rounds: int) -> tuple[list[Figure], str]:
    """Measure every figure `rounds` times; also return the kind of memory that was counted."""
    kind_of_node = "containers" if backend == "compose" else "processes"
    name = f"eos up ({backend}), all present, until transactions work"
    up = Figure(name, "s", most=START_TARGET_S[backend])
    again = Figure("eos up when it is up", "s", most=0.5)
    help_ = Figure("eos --help", "s", [eos("--help") for _ in range(HELP_ROUNDS)], most=0.25)
    memory = Figure(f"memory of the six idle nodes ({kind_of_node})", "GB", most=MEMORY_TARGET_GB[backend])
    fail_over = Figure("leader killed until another serves", "s", most=FAIL_OVER_TARGET_S)
    kind_of_memory = ""
    with temporary_state() as path:
        arguments = ("--state", str(path))
        for number in range(rounds + 1):
            log(f"cluster {number} of {rounds}" + (", does not count" if number == 0 else ""))
            seconds = eos("up", "--backend", backend, *arguments)
            if number > 0:
                up.values.append(seconds)
                again.values.append(eos("up", "--backend", backend, *arguments))
                cluster = lifecycle.attach(State(path))
                gigabytes, kind_of_memory = memory_gb(cluster)
                memory.values.append(gigabytes)
                fail_over.values.append(fail_over_s(cluster))
            eos("down", *arguments)
    return [up, again, help_, memory, fail_over], kind_of_memory


def memory_gb(cluster: Cluster) -> tuple[float, str]:
    """Return the memory of all brokers and controllers in gigabytes, and the kind of memory, such as PSS."""
    nodes = [*cluster.brokers, *cluster.controllers]
    if cluster.record.backend == "compose":
        total = sum(container_memory(cast(Any, node).container) for node in nodes)
        return total / 1e9, "charged to the containers, without inactive file cache"
    measured = [process_memory(node.status().pid or 0) for node in nodes]
    return sum(size for size, _ in measured) / 1e9, " and ".join(sorted({kind for _, kind in measured}))


def fail_over_s(cluster: Cluster) -> float:
    """Kill a partition's leader with SIGKILL; return the seconds until another broker leads and serves it."""
    cluster.create_topic(TOPIC, [[1, 2, 3]])
    leader = cluster.leader_of(TOPIC, 0)

    def served() -> bool:
        return cluster.partition(TOPIC, 0).leader != leader and bool(cluster.end_offsets(TOPIC))

    start = time.perf_counter()
    cluster.node(leader).kill()
    wait_until(served, 60, f"another broker than {leader} to lead and serve the partition", every=0.02)
    return time.perf_counter() - start


@benchmark("startup", "--backend process --rounds 5")
@rounds_option(3, "Number of clusters that count.")
@backend_option
@json_option
def main(rounds: int, backend: BackendChoice, *, as_json: bool) -> None:
    """Measure start, memory and fail-over of a cluster against their targets.

    The command starts and removes clusters in a temporary state directory with the command line, as a user
    does. The first cluster does not count: it fetches jars and images. Times include the start of the Python
    interpreter.
    """
    load, cores = os.getloadavg()[0], os.cpu_count()
    chosen = lifecycle.choose_backend(log) if backend == "auto" else backend
    figures, kind = measure(chosen, rounds)
    machine = f"{chosen}, {cores} cores, load average before {load:.1f}; memory: {kind}"
    show([Part([machine], figures)], as_json=as_json)


if __name__ == "__main__":
    main()
