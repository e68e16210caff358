"""Start, lookup and removal of a cluster, which is identified by its state directory."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from harness.base import processes
from harness.base.errors import HarnessError, RefusedError, UsageError
from harness.cluster.backend import Backend
from harness.cluster.broker_settings import Profile
from harness.cluster.cluster import Cluster
from harness.cluster.layout import choose_ports, cluster_name
from harness.cluster.state_directory import BackendName, ClusterRecord, State
from harness.cluster.tap_process import no_internal_tap
from harness.kafka.admin import random_cluster_id
from harness.provision import docker_engine
from harness.provision.app_processes import describe_processes
from harness.provision.kafka_versions import DEFAULT_KAFKA, check_version

Report = Callable[[str], None]


def up(
    state: State,
    backend: BackendName | Literal["auto"],
    profile: Profile,
    report: Report,
    *,
    internal_tap: bool = False,
    kafka: str = "",
    kafka_image: str = "",
) -> tuple[Cluster, bool]:
    """Start the cluster of a state directory. If it already runs, reuse it.

    With `internal_tap`, the brokers reach each other through a wire tap. `kafka` is the version of Kafka: if
    it is empty, a running cluster of any version is reused, and a new one has the default version.
    `kafka_image` is an image of Kafka, which only containers can use. Return a pair: the healthy cluster, and
    whether this call has started it.
    """
    if kafka and not kafka_image:
        check_version(kafka)
    if backend == "process" and kafka_image:
        raise _needs_containers()
    if backend == "compose" and state.load() is None:
        docker_engine.require_engine()
    with state.locked("up"):
        existing = state.load()
        if existing and existing.whole:
            _check_kafka(state, existing, kafka, kafka_image)
            return _reuse(state, existing, backend, profile, internal_tap=internal_tap), False
        if existing:
            report(f"an earlier start of {existing.name} was interrupted: removing its nodes")
            _destroy(state, existing)
        record = ClusterRecord(
            name=cluster_name(state.path),
            backend=choose_backend(report) if backend == "auto" else backend,
            profile=profile,
            cluster_id=random_cluster_id(),
            port_base=choose_ports(state.path).base,
            internal_tap=internal_tap,
            kafka=kafka or DEFAULT_KAFKA,
            images={"kafka": kafka_image} if kafka_image else {},
        )
        if kafka_image and record.backend != "compose":
            raise _needs_containers()
        state.save(record)
        record = _prepare(state, record, kafka, report)
        try:
            return _start(state, record, report), True
        except BaseException:
            kept = keep_logs(state, record, "start")
            report("the start failed: removing its nodes" + (f" (logs: {kept})" if kept else ""))
            try:
                _destroy(state, record)
            except (HarnessError, OSError) as error:
                # Only report a failed removal. The user must see the error of the start, raised below.
                report(f"the removal failed: {error}")
            raise


def _needs_containers() -> UsageError:
    return UsageError("--kafka-image needs containers", "add --backend compose, or use --kafka VERSION")


def attach(state: State) -> Cluster:
    """Return the running cluster of this state directory. Raise RefusedError if there is none."""
    record = state.load()
    if record is None or not record.whole:
        raise RefusedError(f"no cluster is up in {state.path}", "`eos up` starts one")
    return Cluster(state, record, make_backend(state, record))


def down(state: State, *, force: bool = False) -> bool:
    """Remove the cluster of this state directory with its data. Return False if there is none.

    With `force`, do not read the cluster record, because it may be damaged or lost. The cluster's processes
    and containers are then found by its name, which is derived from the directory's path.
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
    """Remove all processes, containers and data of the cluster of this state directory.

    The search covers every back end that is available on this machine. Return whether it found anything to
    remove.
    """
    existed = bool(leftovers(state))
    for record in _by_name(state):
        _destroy(state, record)
    return existed


def leftovers(state: State) -> list[str]:
    """Describe all processes, containers and data of the cluster of this state directory.

    The search covers every back end that is available on this machine.
    """
    left = [left for record in _by_name(state) for left in make_backend(state, record).leftovers()]
    return left + [
        f"{described} of an application under test" for described in describe_processes(f"{state.apps}/")
    ]


def _by_name(state: State) -> list[ClusterRecord]:
    """Return the `ClusterRecord` of each back end that is available on this machine.

    The records are not read from disk. All have the cluster name that is derived from the state directory's
    path.
    """
    backends: list[BackendName] = (
        ["process", "compose"] if docker_engine.engine_problem() is None else ["process"]
    )
    name = cluster_name(state.path)
    return [
        ClusterRecord(name=name, backend=backend, profile="quick", cluster_id="", port_base=0)
        for backend in backends
    ]


def make_backend(state: State, record: ClusterRecord) -> Backend:
    """Return the back end that a cluster record names. Import only the module of that back end."""
    if record.backend == "process":
        from harness.cluster.process_backend import ProcessBackend

        return ProcessBackend(state, record)
    from harness.cluster.compose_backend import ComposeBackend

    return ComposeBackend(state, record)


def choose_backend(report: Report) -> BackendName:
    """Return `compose` if Docker and its compose plugin answer.

    Otherwise report the reason and return `process`.
    """
    problem = docker_engine.engine_problem()
    if problem is None:
        return "compose"
    report(f"back end: plain processes, because {problem}")
    return "process"


def _check_kafka(state: State, record: ClusterRecord, kafka: str, kafka_image: str) -> None:
    """Raise RefusedError if a running cluster has another version or image of Kafka than requested."""
    running, requested = record.kafka, kafka
    if kafka_image and record.images.get("kafka") != kafka_image:
        running, requested = f"{record.kafka} ({record.images.get('kafka', record.backend)})", kafka_image
    if requested and running != requested:
        raise RefusedError(
            f"a cluster with Kafka {running} runs in {state.path} (requested: {requested})",
            "run `eos down` first, or use another state directory: --state DIR",
        )


def _check_image(record: ClusterRecord, kafka: str) -> None:
    """Raise UsageError if the image that the user named contains another version than the requested one."""
    if kafka and record.kafka != kafka:
        raise UsageError(
            f"the image {record.images['kafka']} contains Kafka {record.kafka}, not {kafka}",
            "leave out --kafka, or use another image",
        )


def _prepare(state: State, record: ClusterRecord, kafka: str, report: Report) -> ClusterRecord:
    """Call the method `prepare` of the back end.

    If the call fails, remove the nodes' folders and the cluster record, because no node was started.
    """
    try:
        record = make_backend(state, record).prepare(report)
        _check_image(record, kafka)
    except BaseException:
        shutil.rmtree(state.nodes, ignore_errors=True)
        state.forget()
        raise
    state.save(record)
    return record


def _start(state: State, record: ClusterRecord, report: Report) -> Cluster:
    backend = make_backend(state, record)
    what = f"Kafka {record.kafka}, {backend.name}, {record.profile}"
    report(f"starting 3 controllers, 3 brokers and Toxiproxy ({what})")
    backend.start()
    cluster = Cluster(state, record, backend)
    cluster.wait_healthy()  # first wait without coordinator requests, which slow down the brokers' start
    cluster.wait_transactions_possible()
    cluster.wait_healthy()  # wait again, because the line above created the coordinators' internal topics
    state.save(msgspec.structs.replace(record, whole=True))
    return cluster


def _reuse(
    state: State,
    record: ClusterRecord,
    backend: BackendName | Literal["auto"],
    profile: Profile,
    *,
    internal_tap: bool,
) -> Cluster:
    """Return the cluster that already runs from this state directory, so that `up` can reuse it.

    Raise RefusedError if the cluster is unhealthy, or if its back end or profile is not the requested one.
    """
    if backend not in ("auto", record.backend) or profile != record.profile:
        raise RefusedError(
            f"a cluster of another kind runs in {state.path}: {record.backend}, {record.profile} "
            f"(requested: {backend}, {profile})",
            "run `eos down` first, or use another state directory: --state DIR",
        )
    if internal_tap and not record.internal_tap:
        raise no_internal_tap(state)
    cluster = Cluster(state, record, make_backend(state, record))
    if ailments := cluster.lasting_ailments():
        raise RefusedError(
            f"the running cluster of {state.path} is not healthy: {'; '.join(ailments[:3])}",
            "`eos heal` restarts and restores its nodes, `eos down` removes it",
        )
    return cluster


def _destroy(state: State, record: ClusterRecord) -> None:
    state.end_clients()
    state.end_apps()
    make_backend(state, record).destroy()
    # The compose back end has processes on the host too, such as the wire tap. End these as well.
    processes.end_all(f"{state.nodes}/")
    shutil.rmtree(state.nodes, ignore_errors=True)
    shutil.rmtree(state.intents, ignore_errors=True)
    state.forget()


def keep_logs(state: State, record: ClusterRecord, why: str) -> Path | None:
    """Copy the last lines of each node's log to <state>/kept-logs/<why>.

    Later starts do not remove this folder. This function runs after a failure and must not fail itself, so it
    skips nodes without a log.
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
