"""Checks of this machine for `eos doctor`: green, amber or red findings, each problem with a hint."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import click
import psutil

from harness.base.errors import HarnessError
from harness.base.ports import describe_port_owner, port_taken
from harness.cluster.layout import choose_ports, preferred_ports
from harness.cluster.state_directory import BackendName, State
from harness.faults.intents import unhealed
from harness.provision.jars import altered_jars
from harness.provision.java import find_java
from harness.provision.kafka_runtime import cached_runtime
from harness.provision.paths import cache_dir
from harness.provision.toxiproxy_binary import toxiproxy_binaries

Grade = Literal["green", "amber", "red"]
_COLOURS = {"green": "green", "amber": "yellow", "red": "red"}
_NEEDED_MEMORY_GB = {"process": 1.5, "compose": 2.5}
_NEEDED_DISK_GB = 3.0


class Finding(NamedTuple):
    """The result of one check of this machine: its grade (green, amber or red), a description, and a hint."""

    grade: Grade
    what: str
    hint: str = ""

    def line(self, *, colour: bool) -> str:
        """Format the finding as `green  Java 17 ...`, with the hint on its own line."""
        grade = f"{self.grade:5}"
        if colour and "NO_COLOR" not in os.environ:
            grade = click.style(grade, fg=_COLOURS[self.grade])
        return f"{grade}  {self.what}" + (f"\n       hint: {self.hint}" if self.hint else "")


def examine(state: State, backend: BackendName | Literal["auto"]) -> list[Finding]:
    """Run every check: of the machine, of the provisioned files, and of what earlier commands left behind."""
    docker = _docker(backend)
    chosen: BackendName = "process" if backend == "process" or docker.grade != "green" else "compose"
    checks: list[Callable[[], list[Finding]]] = [
        lambda: [_python(), _java(), docker],
        lambda: [_cores(), *([] if _is_up(state) else [_memory(chosen)]), _disk(state)],
        lambda: _provisions(chosen),
        lambda: [_clock()],
        lambda: _cluster(state),
    ]
    return [finding for check in checks for finding in check()]


def _python() -> Finding:
    # This finding is always green, because the package cannot be installed on an older Python.
    return Finding("green", f"Python {platform.python_version()}")


def _java() -> Finding:
    try:
        java = find_java()
    except HarnessError as error:
        return Finding("red", error.message, error.hint)
    return Finding("green", f"Java {java.major} ({java.executable})")


def _docker(backend: str) -> Finding:
    from harness.provision.docker_engine import HINTS, compose_version, engine_problem, engine_version

    problem = engine_problem()
    if problem is None:
        return Finding("green", f"Docker engine {engine_version()}, compose plugin {compose_version()}")
    if backend == "compose":
        return Finding("red", problem, HINTS[problem])
    if backend == "process":
        return Finding("green", f"{problem}: the process back end needs no Docker")
    without = "the process back end will be used, which cannot cut links between nodes"
    return Finding("amber", f"{problem}: {without}", HINTS[problem])


def _cores() -> Finding:
    cores = os.cpu_count() or 1
    if cores < 2:
        return Finding(
            "amber", f"{cores} core: time limits assume two or more", "use a machine with two cores"
        )
    return Finding("green", f"{cores} cores")


def _is_up(state: State) -> bool:
    """Return whether a cluster is up.

    The nodes of that cluster already use the memory that they need. The free memory is therefore not checked.
    """
    try:
        record = state.load()
    except HarnessError:
        return False
    return record is not None and record.whole


def _memory(backend: BackendName) -> Finding:
    needed = _NEEDED_MEMORY_GB[backend]
    free = _available_memory_gb()
    if free < needed:
        return Finding("red", f"{free:.1f} GB of memory free, six nodes need {needed}", "end other programs")
    return Finding("green", f"{free:.1f} GB of memory free")


def _available_memory_gb() -> float:
    return float(psutil.virtual_memory().available) / 1e9


def _disk(state: State) -> Finding:
    folder = next(parent for parent in (state.path, *state.path.parents) if parent.exists())
    free = shutil.disk_usage(folder).free / 1e9
    if free < _NEEDED_DISK_GB:
        return Finding(
            "red", f"{free:.1f} GB free at {folder}, a run needs {_NEEDED_DISK_GB:.0f}", f"df -h {folder}"
        )
    return Finding("green", f"{free:.0f} GB free at {folder}")


def _provisions(backend: BackendName) -> list[Finding]:
    findings = []
    if altered := altered_jars(["kafka", "client", "tools", "spark"]):
        names = ", ".join(jar.name for jar in altered)
        findings.append(
            Finding(
                "red",
                f"jars with another hash than the pinned one: {names}",
                f"rm {' '.join(map(str, altered))}",
            )
        )
    if backend == "process":
        ready = toxiproxy_binaries().server.exists() and cached_runtime().archive.exists()
        findings.append(
            Finding("green", f"Kafka and Toxiproxy in {cache_dir()}")
            if ready
            else Finding(
                "amber",
                "the first start will fetch and build Kafka and Toxiproxy",
                "eos up --backend process",
            )
        )
    else:
        from harness.provision.images import find_images

        missing = [name for name, image in find_images().items() if image is None]
        findings.append(
            Finding("amber", f"the first start will pull or build images: {', '.join(missing)}", "eos up")
            if missing
            else Finding("green", "images are present")
        )
    return findings


def _clock() -> Finding:
    """Check the wall clock: a wrong clock breaks TLS, downloads and the times in reports."""
    newest = Path(__file__).stat().st_mtime
    if time.time() < newest - 86_400:
        return Finding(
            "red", f"the clock shows {time.ctime()}, older than this program", "timedatectl set-ntp true"
        )
    return Finding("green", f"the clock shows {time.strftime('%Y-%m-%d %H:%M:%S %Z')}")


def _cluster(state: State) -> list[Finding]:
    """Check the cluster of the state directory, and what earlier commands left there."""
    from harness.cluster import lifecycle

    try:
        record = state.load()
    except HarnessError as error:
        return [Finding("red", error.message, error.hint)]
    if record is None:
        lost = lifecycle.leftovers(state)
        what = f"a cluster without a record left {', '.join(lost[:3])}"
        findings = [Finding("red", what, f"eos down --force --state {state.path}")] if lost else []
        return [*findings, _ports(state)]
    if not record.whole:
        try:
            with state.locked("doctor"):
                return [Finding("amber", f"a start in {state.path} was interrupted", "eos down")]
        except HarnessError as error:  # the start is in progress
            return [Finding("amber", error.message, error.hint)]
    findings = [Finding("green", f"a cluster runs in {state.path} ({record.backend})")]
    if intents := unhealed(state):
        faults = ", ".join(f"{i.fault} on {' '.join(i.resolved)}" for i in intents)
        findings.append(Finding("red", f"not healed: {faults}", "eos heal"))
    if ailments := lifecycle.attach(state).look():
        findings.append(Finding("red", f"not healthy: {'; '.join(ailments[:3])}", "eos heal, or eos down"))
    return findings


def _ports(state: State) -> Finding:
    """Report the ports that a cluster would use, and the processes that already use the preferred ports."""
    try:
        chosen = choose_ports(state.path)
    except HarnessError as error:
        return Finding("red", error.message, "ss -ltnp")
    block = f"{chosen.base} to {chosen.base + len(chosen.all) - 1}"
    busy = [port for port in preferred_ports(state.path).all if port_taken(port)]
    if busy:
        owners = "; ".join(describe_port_owner(port) for port in busy[:3])
        taken = f"ports {block} will be used, because the preferred ports are taken ({owners})"
        return Finding("amber", taken, "no action is needed unless you want to end that process")
    return Finding("green", f"ports {block} are free")
