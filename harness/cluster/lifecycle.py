"""Bring a cluster up, find the one that is up, take it down: one cluster for a state directory."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from harness.base import processes
from harness.base.errors import HarnessError, RefusedError
from harness.cluster.backend import Backend
from harness.cluster.broker_settings import Profile
from harness.cluster.cluster import Cluster
from harness.cluster.layout import choose_ports, cluster_name
from harness.cluster.state_directory import BackendName, ClusterRecord, State
from harness.kafka.admin import random_cluster_id

Report = Callable[[str], None]


def up(
    state: State, backend: BackendName | Literal["auto"], profile: Profile, report: Report
) -> tuple[Cluster, bool]:
    """The healthy cluster of this state directory, and whether it had to be started."""
    with state.locked("up"):
        found = state.load()
        if found and found.whole:
            return _reuse(state, found, backend, profile), False
        if found:
            report(f"a start of {found.name} was cut short: removing what it left")
            _destroy(state, found)
        record = ClusterRecord(
            name=cluster_name(state.path),
            backend=choose_backend(report) if backend == "auto" else backend,
            profile=profile,
            cluster_id=random_cluster_id(),
            port_base=choose_ports(state.path).base,
        )
        state.save(record)
        record = _prepare(state, record, report)
        try:
            return _start(state, record, report), True
        except BaseException:
            kept = keep_logs(state, record, "start")
            report("the start failed: removing what it left" + (f" (logs: {kept})" if kept else ""))
            try:
                _destroy(state, record)
            except (HarnessError, OSError) as error:  # what failed first is what the user must see
                report(f"not all could be removed: {error}")
            raise


def attach(state: State) -> Cluster:
    """The cluster that is up in this state directory."""
    record = state.load()
    if record is None or not record.whole:
        raise RefusedError(f"no cluster is up in {state.path}", "`eos up` starts one")
    return Cluster(state, record, make_backend(state, record))


def down(state: State, *, force: bool = False) -> bool:
    """Remove the cluster of this state directory with its data; False if there was none.

    With `force` also where the record is damaged or lost: by the name that the directory gives a cluster.
    """
    with state.locked("down"):
        if force:
            return _sweep(state)
        record = state.load()
        if record is None:
            return False
        _destroy(state, record)
        return True


def _sweep(state: State) -> bool:
    """Remove whatever carries the mark of this directory, on each back end that can be reached."""
    found = bool(leftovers(state))
    for record in _by_name(state):
        _destroy(state, record)
    return found


def leftovers(state: State) -> list[str]:
    """What carries the mark of this directory, whatever its record says, on each back end that answers."""
    return [what for record in _by_name(state) for what in make_backend(state, record).leftovers()]


def _by_name(state: State) -> list[ClusterRecord]:
    """Records of what the directory's name may stand for, one for each back end that can be reached."""
    from harness.provision.docker_engine import engine_problem

    backends: list[BackendName] = ["process", "compose"] if engine_problem() is None else ["process"]
    name = cluster_name(state.path)
    return [
        ClusterRecord(name=name, backend=backend, profile="quick", cluster_id="", port_base=0)
        for backend in backends
    ]


def make_backend(state: State, record: ClusterRecord) -> Backend:
    """The back end of a record; the one that is not used is not imported."""
    if record.backend == "process":
        from harness.cluster.process_backend import ProcessBackend

        return ProcessBackend(state, record)
    from harness.cluster.compose_backend import ComposeBackend

    return ComposeBackend(state, record)


def choose_backend(report: Report) -> BackendName:
    """Compose where a Docker engine and the compose plugin answer, else processes, said in one line."""
    from harness.provision.docker_engine import engine_problem

    problem = engine_problem()
    if problem is None:
        return "compose"
    report(f"back end: plain processes, because {problem}")
    return "process"


def _prepare(state: State, record: ClusterRecord, report: Report) -> ClusterRecord:
    """Provide what the start needs; if that fails nothing was started, and the directory is free again."""
    try:
        record = make_backend(state, record).prepare(report)
    except BaseException:
        shutil.rmtree(state.nodes, ignore_errors=True)
        state.forget()
        raise
    state.save(record)
    return record


def _start(state: State, record: ClusterRecord, report: Report) -> Cluster:
    backend = make_backend(state, record)
    report(f"starting 3 controllers, 3 brokers and Toxiproxy ({backend.name}, {record.profile})")
    backend.start()
    cluster = Cluster(state, record, backend)
    cluster.wait_healthy()  # first: coordinators that are asked for too early slow the brokers' own start
    cluster.wait_transactions_possible()
    cluster.wait_healthy()  # last: the coordinators' own topics are there now
    state.save(msgspec.structs.replace(record, whole=True))
    return cluster


def _reuse(
    state: State, record: ClusterRecord, backend: BackendName | Literal["auto"], profile: Profile
) -> Cluster:
    """The cluster that is up, if it is the one that was asked for and is healthy."""
    if backend not in ("auto", record.backend) or profile != record.profile:
        raise RefusedError(
            f"{state.path} has a cluster of another kind up: {record.backend}, {record.profile} "
            f"(asked: {backend}, {profile})",
            "`eos down` first, or give the new one a state directory of its own: --state DIR",
        )
    cluster = Cluster(state, record, make_backend(state, record))
    if ailments := cluster.lasting_ailments():
        raise RefusedError(
            f"the cluster of {state.path} is up and not healthy: {'; '.join(ailments[:3])}",
            "`eos heal` brings back what can be brought back, `eos down` removes it",
        )
    return cluster


def _destroy(state: State, record: ClusterRecord) -> None:
    state.end_clients()
    make_backend(state, record).destroy()
    # Beside containers too there may be processes of ours, such as the wire tap.
    processes.end_all(f"{state.nodes}/")
    shutil.rmtree(state.nodes, ignore_errors=True)
    shutil.rmtree(state.intents, ignore_errors=True)
    state.forget()


def keep_logs(state: State, record: ClusterRecord, why: str) -> Path | None:
    """Copy the end of every node's log to <state>/kept-logs, where the next start does not remove it.

    A node that does not exist (yet) has no log: this runs where something has failed and must not fail too.
    """
    logs: dict[str, str] = {}
    for node in make_backend(state, record).nodes():
        with suppress(HarnessError, OSError):
            logs[node.name] = node.log(2000)
    written = {name: text for name, text in logs.items() if text}
    if not written:
        return None
    folder = state.path / "kept-logs" / re.sub(r"[^\w.-]+", "_", why)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in written.items():
        (folder / f"{name}.log").write_text(text)
    return folder
