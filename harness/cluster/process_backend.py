"""The process back end: six Kafka JVMs and Toxiproxy on loopback. It needs Java and Python, but no Docker."""

from __future__ import annotations

import json
import shutil
import signal
from collections import deque
from collections.abc import Callable
from pathlib import Path

from harness.base import processes
from harness.base.errors import RefusedError
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.cluster.backend import capabilities_of
from harness.cluster.broker_settings import heap_options, jvm_options, settings_for
from harness.cluster.layout import BROKER_IDS, CONTROLLER_IDS, HOST, BrokerListener, Ports, node_name
from harness.cluster.nodes import Condition, NodeStatus, Role, segments_in
from harness.cluster.state_directory import BackendName, ClusterRecord, State
from harness.cluster.tap_process import tap_command, tap_folder
from harness.provision.kafka_runtime import KafkaRuntime, ensure_kafka
from harness.provision.toxiproxy_binary import ensure_toxiproxy

STOP_LIMIT_S = 20.0
_VERSION_FILE = "kafka-version"  # in the folder of a node whose version was changed


class ProcessNode:
    """A node that runs as one process: a Kafka JVM or Toxiproxy. Its files are in `folder`."""

    def __init__(
        self, name: str, node_id: int, role: Role, folder: Path, command: Callable[[], list[str]]
    ) -> None:
        self.name = name
        self.node_id = node_id
        self.role = role
        self.folder = folder
        self._command = command

    @property
    def _mark(self) -> str:
        return str(self.folder)

    def _pid(self) -> int | None:
        try:
            return int((self.folder / "pid").read_text())
        except FileNotFoundError:
            return None

    def status(self) -> NodeStatus:
        """Return whether the process runs, is frozen or has ended, with its process id or exit code."""
        pid = self._pid()
        state = processes.state_of(pid, self._mark) if pid else ProcessState.GONE
        if state is ProcessState.GONE:
            return NodeStatus(Condition.EXITED, processes.exit_code(self.folder))
        return NodeStatus(Condition.PAUSED if state is ProcessState.STOPPED else Condition.RUNNING, pid=pid)

    def start(self) -> None:
        """Start the process if it does not run. Its data is kept."""
        if self.status().condition is Condition.EXITED:
            processes.start_supervised(self._command(), self.folder)

    def stop(self) -> None:
        """Send SIGTERM and wait until the process has ended."""
        self._end(signal.SIGTERM, STOP_LIMIT_S)

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has ended and its exit code has been written to a file."""
        self._end(signal.SIGKILL, 10)

    def pause(self) -> None:
        """Send SIGSTOP and wait until the process is frozen."""
        self._signal(signal.SIGSTOP, Condition.PAUSED)

    def resume(self) -> None:
        """Send SIGCONT and wait until the process runs."""
        if self.status().condition is Condition.PAUSED:
            self._signal(signal.SIGCONT, Condition.RUNNING)

    def log(self, lines: int = 200) -> str:
        """Return the last lines of the node's log file. `lines` is their number."""
        try:
            with (self.folder / "log").open(errors="replace") as file:
                return "".join(deque(file, maxlen=lines))
        except FileNotFoundError:
            return ""

    def segments(self, partition: str, scratch: Path) -> list[Path]:  # noqa: ARG002  # no copy is needed
        """Return the log segment files of a partition's replica on this node."""
        return segments_in(self.folder / "data" / partition, self.name, partition)

    def _signal(self, what: signal.Signals, expected: Condition) -> None:
        pid = self._pid()
        if pid is None or not processes.send(pid, self._mark, what):
            raise RefusedError(
                f"{self.name} does not run", "`eos status` shows the nodes, `eos up` starts them"
            )
        wait_until(lambda: self.status().condition is expected, 5, f"{self.name} to be {expected}")

    def _end(self, what: signal.Signals, limit: float) -> None:
        pid = self._pid()
        if pid is None or not processes.send(pid, self._mark, what):
            return
        if what is signal.SIGTERM:  # a frozen process does not handle SIGTERM
            processes.send(pid, self._mark, signal.SIGCONT)
        wait_until(
            lambda: self.status().condition is Condition.EXITED and self.status().exit_code is not None,
            limit,
            f"{self.name} to end after {what.name}",
            every=0.01,
        )


class ProcessBackend:
    """Back end that runs the six Kafka nodes and Toxiproxy as plain processes."""

    name: BackendName = "process"
    capabilities = capabilities_of("process")

    def __init__(self, state: State, record: ClusterRecord) -> None:
        self._state = state
        self._record = record
        self._ports = Ports(record.port_base)
        self._nodes = self._make_nodes()

    def nodes(self) -> list[ProcessNode]:
        """Return the nodes in their start order: controllers, Toxiproxy, brokers."""
        return self._nodes

    def prepare(self, report: Callable[[str], None]) -> ClusterRecord:
        """Fetch or build the jars and binaries that are missing.

        Write the configuration and data directory of each node.
        """
        runtime = ensure_kafka(report, self._record.kafka)
        ensure_toxiproxy(report)
        for node in self._nodes:
            if node.role == "proxy":
                node.folder.mkdir(parents=True, exist_ok=True)
                (node.folder / "proxies.json").write_text(json.dumps(self._proxies(), indent=2))
            elif not (node.folder / "data" / "meta.properties").exists():
                runtime.format(node.folder / "data", self._record.cluster_id, node.node_id)
                (node.folder / "server.properties").write_text(self._properties(node))
        return self._record

    def version_of(self, node: str) -> str:
        """Return the version of Kafka with which a node starts."""
        return self._version_in(self._state.nodes / node)

    def provide_version(self, version: str) -> None:
        """Fetch the jars of a version of Kafka."""
        ensure_kafka(lambda _: None, version)

    def set_version(self, node: str, version: str) -> None:
        """Set the version of Kafka with which a node starts the next time. It must not run."""
        (found,) = (one for one in self._nodes if one.name == node)
        self.provide_version(version)
        (found.folder / _VERSION_FILE).write_text(version)
        (found.folder / "server.properties").write_text(self._properties(found))

    def _version_in(self, folder: Path) -> str:
        file = folder / _VERSION_FILE
        return file.read_text() if file.exists() else self._record.kafka

    def start(self) -> None:
        """Start the nodes without waiting for any of them, because the Kafka nodes wait for each other."""
        if self._record.internal_tap:
            # Start it before the brokers, because they cannot copy each other's records without it.
            processes.start_supervised(
                tap_command(self._state, self._record, BrokerListener.INTERNAL),
                tap_folder(self._state, BrokerListener.INTERNAL),
            )
        for node in self._nodes:
            node.start()

    def destroy(self) -> None:
        """Send SIGKILL to every process that runs from this state directory. Delete the nodes' folders."""
        processes.end_all(f"{self._state.nodes}/")
        shutil.rmtree(self._state.nodes, ignore_errors=True)

    @property
    def links(self) -> None:
        """Always None: links between processes on loopback cannot be cut."""
        return None

    def leftovers(self) -> list[str]:
        """Describe the processes and data of the cluster that still exist, one line for each."""
        left = [f"process {p.pid}: {p.command[:80]}" for p in processes.find(f"{self._state.nodes}/")]
        return left + ([f"folder {self._state.nodes}"] if self._state.nodes.exists() else [])

    def _make_nodes(self) -> list[ProcessNode]:
        def make(name: str, node_id: int, role: Role) -> ProcessNode:
            folder = self._state.nodes / name
            return ProcessNode(name, node_id, role, folder, lambda: self._command(role, folder))

        return [
            *(make(node_name(i), i, "controller") for i in CONTROLLER_IDS),
            make("toxiproxy", 0, "proxy"),
            *(make(node_name(i), i, "broker") for i in BROKER_IDS),
        ]

    def _command(self, role: Role, folder: Path) -> list[str]:
        if role == "proxy":
            server = ensure_toxiproxy(lambda _: None).server
            return [
                str(server),
                "-host",
                HOST,
                "-port",
                str(self._ports.toxiproxy_api),
                "-config",
                str(folder / "proxies.json"),
                "-proxy-metrics",
            ]
        runtime: KafkaRuntime = ensure_kafka(lambda _: None, self._version_in(folder))
        options = [*heap_options(role, self._record.profile), *jvm_options(self._record.profile)]
        # A JVM that is killed leaves the libraries that it unpacked. Here they are removed with the cluster.
        (folder / "tmp").mkdir(exist_ok=True)
        options.append(f"-Djava.io.tmpdir={folder / 'tmp'}")
        return runtime.command("kafka.Kafka", str(folder / "server.properties"), options=options)

    def _proxies(self) -> list[dict[str, object]]:
        from harness.cluster.proxy_names import proxy_map

        return proxy_map(
            upstream=lambda broker, listener: f"{HOST}:{self._ports.inner(listener, broker)}",
            listen=lambda broker, listener: f"{HOST}:{self._ports.toxiproxy(listener, broker)}",
        )

    def _properties(self, node: ProcessNode) -> str:
        ports, version = self._ports, self._version_in(node.folder)
        voters = ",".join(f"{i}@{HOST}:{ports.controller(i)}" for i in CONTROLLER_IDS)
        values = {
            "node.id": str(node.node_id),
            "process.roles": node.role,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(node.folder / "data"),
        }
        if node.role == "controller":
            values |= settings_for("controller", version)
            values["listeners"] = f"CONTROLLER://{HOST}:{ports.controller(node.node_id)}"
        else:
            values |= settings_for("broker", version)
            listeners = list(BrokerListener)
            values["listeners"] = ",".join(f"{d}://{HOST}:{ports.inner(d, node.node_id)}" for d in listeners)
            values["advertised.listeners"] = ",".join(
                f"{d}://{HOST}:{self._advertised(d, node.node_id)}" for d in listeners
            )
            values["inter.broker.listener.name"] = BrokerListener.INTERNAL
            values["listener.security.protocol.map"] = ",".join(
                f"{d}:PLAINTEXT" for d in [*listeners, "CONTROLLER"]
            )
        return "".join(f"{name}={value}\n" for name, value in values.items())

    def _advertised(self, listener: BrokerListener, broker: int) -> int:
        if listener is BrokerListener.PROXIED:
            return self._ports.proxied(broker)
        if listener is BrokerListener.TAPPED:
            return self._ports.tapped(broker)
        if listener is BrokerListener.INTERNAL and self._record.internal_tap:
            return self._ports.internal_tap(broker)
        return self._ports.inner(listener, broker)
