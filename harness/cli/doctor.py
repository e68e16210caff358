"""What a run needs of this machine: each finding green, amber or red, with a command to paste."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

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
_COLOURS = {"green": 32, "amber": 33, "red": 31}
_NEEDED_MEMORY_GB = {"process": 1.5, "compose": 2.5}
_NEEDED_DISK_GB = 3.0


class Finding(NamedTuple):
    """One thing that was looked at."""

    grade: Grade
    what: str
    hint: str = ""

    def line(self, *, colour: bool) -> str:
        """`green  Java 17 ...`, with the hint on a line of its own."""
        grade = f"{self.grade:5}"
        if colour and "NO_COLOR" not in os.environ:
            grade = f"\x1b[{_COLOURS[self.grade]}m{grade}\x1b[0m"
        return f"{grade}  {self.what}" + (f"\n       hint: {self.hint}" if self.hint else "")


def examine(state: State, backend: BackendName | Literal["auto"]) -> list[Finding]:
    """Everything that decides whether a run can start, from the machine to what an earlier run left."""
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
    # An older one cannot get here: the package does not install on it.
    return Finding("green", f"Python {platform.python_version()}")


def _java() -> Finding:
    try:
        java = find_java()
    except HarnessError as error:
        return Finding("red", error.message, error.hint)
    return Finding("green", f"Java {java.major} ({java.executable})")


def _docker(backend: str) -> Finding:
    from harness.provision.docker_engine import compose_version, engine_problem, engine_version

    problem = engine_problem()
    if problem is None:
        return Finding("green", f"Docker engine {engine_version()}, compose plugin {compose_version()}")
    hint = "start the engine; on a Debian-like machine of your own, as root: scripts/install-docker.sh"
    if backend == "compose":
        return Finding("red", problem, hint)
    return Finding("amber", f"{problem}: plain processes will be used, which cannot be partitioned", hint)


def _cores() -> Finding:
    cores = os.cpu_count() or 1
    if cores < 2:
        return Finding(
            "amber", f"{cores} core: timings are made for two or more", "give the machine another core"
        )
    return Finding("green", f"{cores} cores")


def _is_up(state: State) -> bool:
    """Whether a cluster is up that has its memory already."""
    try:
        record = state.load()
    except HarnessError:
        return False
    return record is not None and record.whole


def _memory(backend: BackendName) -> Finding:
    needed = _NEEDED_MEMORY_GB[backend]
    free = _available_memory_gb()
    if free < needed:
        return Finding(
            "red", f"{free:.1f} GB of memory free, six nodes need {needed}", "end what you do not need"
        )
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
    if altered := altered_jars(["kafka", "tools", "spark"]):
        names = ", ".join(jar.name for jar in altered)
        findings.append(
            Finding("red", f"changed since they were fetched: {names}", f"rm {' '.join(map(str, altered))}")
        )
    if backend == "process":
        ready = toxiproxy_binaries().server.exists() and cached_runtime().archive.exists()
        findings.append(
            Finding("green", f"Kafka and Toxiproxy in {cache_dir()}")
            if ready
            else Finding(
                "amber",
                "Kafka and Toxiproxy are fetched and built by the first start",
                "eos up --backend process",
            )
        )
    else:
        from harness.provision.images import find_images

        missing = [name for name, image in find_images().items() if image is None]
        findings.append(
            Finding(
                "amber", f"images of {', '.join(missing)} are pulled or built by the first start", "eos up"
            )
            if missing
            else Finding("green", "images present")
        )
    return findings


def _clock() -> Finding:
    """A wall clock far off breaks TLS, package downloads and every time that a report shows."""
    newest = Path(__file__).stat().st_mtime
    if time.time() < newest - 86_400:
        return Finding(
            "red", f"the clock says {time.ctime()}, older than this program", "timedatectl set-ntp true"
        )
    return Finding("green", f"the clock says {time.strftime('%Y-%m-%d %H:%M:%S %Z')}")


def _cluster(state: State) -> list[Finding]:
    """What is up, and what an earlier command left."""
    from harness.cluster import lifecycle

    try:
        record = state.load()
    except HarnessError as error:
        return [Finding("red", error.message, error.hint)]
    if record is None:
        lost = lifecycle.leftovers(state)
        what = f"left of a cluster whose record is lost: {', '.join(lost[:3])}"
        found = [Finding("red", what, f"eos down --force --state {state.path}")] if lost else []
        return [*found, _ports(state)]
    if not record.whole:
        return [Finding("amber", f"a start in {state.path} was cut short", "eos down")]
    findings = [Finding("green", f"a cluster is up in {state.path} ({record.backend})")]
    if intents := unhealed(state):
        faults = ", ".join(f"{i.fault} on {' '.join(i.resolved)}" for i in intents)
        findings.append(Finding("red", f"not healed: {faults}", "eos heal"))
    if ailments := lifecycle.attach(state).look():
        findings.append(Finding("red", f"not healthy: {'; '.join(ailments[:3])}", "eos heal, or eos down"))
    return findings


def _ports(state: State) -> Finding:
    """The block that a start would take; who sits in the block of first choice is worth a word."""
    try:
        chosen = choose_ports(state.path)
    except HarnessError as error:
        return Finding("red", error.message, "ss -ltnp")
    block = f"{chosen.base} to {chosen.base + len(chosen.all) - 1}"
    busy = [port for port in preferred_ports(state.path).all if port_taken(port)]
    if busy:
        owners = "; ".join(describe_port_owner(port) for port in busy[:3])
        taken = f"ports {block} will be used, because the first choice is taken ({owners})"
        return Finding("amber", taken, "nothing to do, unless it is yours and forgotten")
    return Finding("green", f"ports {block} are free")
