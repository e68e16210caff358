"""The compose back end: six Kafka nodes and Toxiproxy as containers of docker-compose.yml."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.base import processes
from harness.base.errors import CapabilityError, RefusedError
from harness.base.waits import wait_until
from harness.cluster.backend import Capability, capabilities_of
from harness.cluster.broker_settings import heap_options, jvm_options
from harness.cluster.layout import BROKER_IDS, CONTROLLER_IDS, BrokerListener, Ports, node_name
from harness.cluster.network_links import NetLinks, reaches_containers
from harness.cluster.nodes import Condition, NodeStatus, Role, segments_in
from harness.cluster.state_directory import BackendName, ClusterRecord, State
from harness.cluster.tap_process import internal_tap_address, tap_command, tap_folder
from harness.provision.compose import ComposeProject, write_env_file
from harness.provision.docker_engine import Engine, copy_out

if TYPE_CHECKING:
    from docker.models.containers import Container

STOP_LIMIT_S = 20
_KAFKA_IMAGE = "EOS_KAFKA_IMAGE"
_DATA = "/var/lib/kafka/data"  # the value of KAFKA_LOG_DIRS in docker-compose.yml


class ContainerNode:
    """A node that runs as the container of a compose service."""

    def __init__(self, name: str, node_id: int, role: Role, engine: Engine) -> None:
        self.name = name
        self.node_id = node_id
        self.role = role
        self._engine = engine

    @property
    def container(self) -> Container:
        """The container with its current attributes from the Docker engine."""
        return self._engine.container(self.name)

    def status(self) -> NodeStatus:
        """Return the condition of the container: running, paused or exited."""
        state = self.container.attrs["State"]
        if state["Paused"]:
            return NodeStatus(Condition.PAUSED, pid=state["Pid"])
        if state["Running"]:
            return NodeStatus(Condition.RUNNING, pid=state["Pid"])
        return NodeStatus(Condition.EXITED, state["ExitCode"])

    def start(self) -> None:
        """Start the container again if it has exited. Its data is kept."""
        if self.status().condition is Condition.EXITED:
            self._start()
            wait_until(lambda: self.status().condition is Condition.RUNNING, 20, f"{self.name} to run")

    def _start(self) -> None:
        self.container.start()

    def stop(self) -> None:
        """Send SIGTERM and wait until the container has ended."""
        self.resume()  # a frozen process does not handle SIGTERM
        self.container.stop(timeout=STOP_LIMIT_S)

    def kill(self) -> None:
        """Send SIGKILL and wait until the container has ended."""
        if self.status().condition is not Condition.EXITED:
            self.container.kill()
            wait_until(lambda: self.status().condition is Condition.EXITED, 20, f"{self.name} to end")

    def pause(self) -> None:
        """Freeze every process of the container."""
        if self.status().condition is Condition.EXITED:
            raise RefusedError(
                f"{self.name} does not run", "`eos status` shows the nodes, `eos up` starts them"
            )
        # Older Docker engines sometimes fail to freeze a container on a busy machine. Therefore try again for
        # up to 10 seconds.
        wait_until(self._frozen, 10, f"{self.name} to be frozen")

    def _frozen(self) -> bool:
        from docker.errors import APIError

        if self.status().condition is Condition.RUNNING:
            try:
                self.container.pause()
            except APIError as error:
                raise OSError(str(error)) from error
        return self.status().condition is Condition.PAUSED

    def resume(self) -> None:
        """Resume the container if it is frozen."""
        if self.status().condition is Condition.PAUSED:
            self.container.unpause()

    def log(self, lines: int = 200) -> str:
        """Return the last lines of the container's output. `lines` is their number."""
        return self.container.logs(tail=lines).decode(errors="replace")

    def segments(self, partition: str, scratch: Path) -> list[Path]:
        """Copy the log segment files of a partition's replica from the container to the folder `scratch`.

        Return the paths of the copies.
        """
        copy_out(self.container, f"{_DATA}/{partition}", scratch)
        return segments_in(scratch / partition, self.name, partition)


class VersionedContainerNode(ContainerNode):
    """A node of docker-compose.yml that another container replaces, with another image and the same data.

    `folder` holds the node's version and the variables of its container, once its version was changed, and
    the output of the containers that were replaced.
    """

    def __init__(self, name: str, node_id: int, role: Role, engine: Engine, folder: Path) -> None:
        super().__init__(name, node_id, role, engine)
        self._version_file = folder / "kafka-version"
        self._env_file = folder / "compose.env"
        self._earlier_log = folder / "earlier.log"

    @property
    def version(self) -> str:
        """Version of Kafka with which the node starts; "" if it was never changed."""
        return self._version_file.read_text() if self._version_file.exists() else ""

    def set_version(self, version: str, variables: Mapping[str, str]) -> None:
        """Set the version with which the node starts, and the variables of its container."""
        self._version_file.parent.mkdir(parents=True, exist_ok=True)
        write_env_file(self._env_file, variables)
        self._version_file.write_text(version)

    def _start(self) -> None:
        container = self.container
        if not self._env_file.exists() or container.attrs["Config"]["Image"] == self._image():
            container.start()
            return
        with self._earlier_log.open("ab") as log:
            log.write(container.logs())
        ComposeProject(self._env_file, [self.name]).start()

    def _image(self) -> str:
        variables = dict(line.split("=", 1) for line in self._env_file.read_text().splitlines())
        return variables[_KAFKA_IMAGE]

    def log(self, lines: int = 200) -> str:
        """Return the last lines of the node's output, with that of the containers that were replaced."""
        latest = super().log(lines)
        if not self._earlier_log.exists():
            return latest
        earlier = self._earlier_log.read_text(errors="replace")
        return "".join((earlier + latest).splitlines(keepends=True)[-lines:])


class ComposeBackend:
    """Back end that runs the services of docker-compose.yml.

    Each cluster has its own project name, ports and subnet.
    """

    name: BackendName = "compose"

    def __init__(self, state: State, record: ClusterRecord) -> None:
        self._state = state
        self._record = record
        self.capabilities = capabilities_of("compose")
        if record.internal_tap:
            # The brokers' packets to each other pass the host, where the filters of the nodes do not act.
            self.capabilities -= {Capability.PARTITION}
        self.engine = Engine(record.name)
        roles: list[tuple[int, Role]] = [
            *((i, "controller") for i in CONTROLLER_IDS),
            *((i, "broker") for i in BROKER_IDS),
        ]
        self._nodes: list[ContainerNode] = [
            *(
                VersionedContainerNode(node_name(i), i, role, self.engine, state.nodes / node_name(i))
                for i, role in roles
            ),
            ContainerNode("toxiproxy", 0, "proxy", self.engine),
        ]

    def nodes(self) -> list[ContainerNode]:
        """Return the nodes in the order controllers, brokers, Toxiproxy."""
        return self._nodes

    def prepare(self, report: Callable[[str], None]) -> ClusterRecord:
        """Pull or build the images, and write the env file for docker-compose.yml."""
        from harness.provision.images import ensure_images

        record = self._record
        images = ensure_images(report, kafka=record.kafka, kafka_image=record.images.get("kafka", ""))
        chosen = {"kafka": images.kafka, "toxiproxy": images.toxiproxy, "nettools": images.nettools}
        self._record = msgspec.structs.replace(record, images=chosen, kafka=images.version)
        write_env_file(self._env_file, self._variables())
        return self._record

    def version_of(self, node: str) -> str:
        """Return the version of Kafka with which a node starts."""
        return self._versioned(node).version or self._record.kafka

    def provide_version(self, version: str) -> None:
        """Pull or build the image of a version of Kafka."""
        self._image_of(version)

    def set_version(self, node: str, version: str) -> None:
        """Set the version of Kafka with which a node starts the next time. It must not run."""
        variables = self._variables() | {_KAFKA_IMAGE: self._image_of(version)}
        self._versioned(node).set_version(version, variables)

    def _versioned(self, node: str) -> VersionedContainerNode:
        (found,) = (one for one in self._nodes if one.name == node)
        assert isinstance(found, VersionedContainerNode)
        return found

    def _image_of(self, version: str) -> str:
        from harness.provision.images import ensure_images

        if version == self._record.kafka:
            return self._record.images["kafka"]
        return ensure_images(lambda _: None, kafka=version).kafka

    def start(self) -> None:
        """Create and start the containers of all nodes, including Toxiproxy."""
        ComposeProject(self._env_file).start()
        if self._record.internal_tap:
            # The tap listens in the containers' network, which exists only now. Until the tap answers, the
            # brokers try again to connect.
            self._check_gateway()
            processes.start_supervised(
                tap_command(self._state, self._record, BrokerListener.INTERNAL),
                tap_folder(self._state, BrokerListener.INTERNAL),
            )

    def _check_gateway(self) -> None:
        """Raise CapabilityError if the containers' network does not end on this host."""
        ports = Ports(self._record.port_base)
        if not reaches_containers(ports):
            raise CapabilityError(
                f"this host has no address in the containers' network ({ports.gateway} is missing): the "
                "Docker engine runs in a virtual machine or on another host; its brokers cannot reach a tap",
                "use --backend process for a cluster with a tap between its brokers",
            )

    def destroy(self) -> None:
        """Remove every container, network and volume that carries this cluster's label."""
        self.engine.remove_all()
        self._env_file.unlink(missing_ok=True)
        shutil.rmtree(self._state.nodes, ignore_errors=True)

    def leftovers(self) -> list[str]:
        """Describe the containers, networks and volumes with this cluster's label, one line for each."""
        return self.engine.leftovers()

    @cached_property
    def links(self) -> NetLinks:
        """Network links between the containers."""
        subnet = Ports(self._record.port_base).subnet
        return NetLinks(
            self.engine, self._record.images["nettools"], subnet, {n.name: n for n in self._nodes}
        )

    @property
    def _env_file(self) -> Path:
        return self._state.path / "compose.env"

    def _variables(self) -> dict[str, str]:
        record = self._record
        ports = Ports(record.port_base)
        variables = {
            "COMPOSE_PROJECT_NAME": record.name,
            "EOS_CLUSTER_LABEL": record.name,
            "EOS_CLUSTER_ID": record.cluster_id,
            "EOS_SUBNET": ports.subnet,
            _KAFKA_IMAGE: record.images["kafka"],
            "EOS_TOXIPROXY_IMAGE": record.images["toxiproxy"],
            "EOS_JVM_OPTS": " ".join(jvm_options(record.profile)),
            "EOS_BROKER_HEAP": " ".join(heap_options("broker", record.profile)),
            "EOS_CONTROLLER_HEAP": " ".join(heap_options("controller", record.profile)),
            "EOS_PORT_TOXIPROXY": str(ports.toxiproxy_api),
        }
        for broker in BROKER_IDS:
            if record.internal_tap:
                variables[f"EOS_INTERNAL_{broker}"] = internal_tap_address(record, broker)
            variables |= {
                f"EOS_PORT_DIRECT_{broker}": str(ports.direct(broker)),
                f"EOS_PORT_PROXIED_{broker}": str(ports.proxied(broker)),
                f"EOS_PORT_TAPPED_{broker}": str(ports.tapped(broker)),
                f"EOS_PORT_TAP_UPSTREAM_{broker}": str(ports.tap_upstream(broker)),
            }
        return variables
