"""Access to the Docker engine: a check whether it answers, and a lookup of one cluster's containers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base.errors import HarnessError, MachineError
from harness.base.waits import wait_until
from harness.provision.archives import unpack

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container

CLUSTER_LABEL = "eos-harness.cluster"
_API_LIMIT_S = 20
_CONFLICT = 409


_SCRIPT = "scripts/install-docker.sh of the repository installs"
_NO_ENGINE = "no Docker engine answers"
_NO_PLUGIN = "the docker compose plugin is missing"
_NO_COMMAND = "there is no docker command on PATH"
HINTS = {
    _NO_ENGINE: f"start the engine; {_SCRIPT} one on Debian, as root",
    _NO_PLUGIN: f"install the compose plugin, version 2; {_SCRIPT} it on Debian, as root",
    _NO_COMMAND: f"install the docker client; {_SCRIPT} it on Debian, as root",
}
"""What to do about each problem that `engine_problem` returns."""
ENGINE_HINT = HINTS[_NO_ENGINE]


def require_engine() -> None:
    """Raise MachineError if Docker cannot be used."""
    if problem := engine_problem():
        raise MachineError(problem, f"{HINTS[problem]}, or use --backend process")


def engine_problem() -> str | None:
    """Return the reason why Docker cannot be used; None if engine and compose plugin are available."""
    import docker
    from docker.errors import DockerException

    try:
        _check_socket()
        client = docker.from_env(timeout=5)
        client.ping()
        client.close()
    except (DockerException, OSError):
        return _NO_ENGINE
    if not shutil.which("docker"):
        return _NO_COMMAND
    done = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=30, check=False)
    return None if done.returncode == 0 else _NO_PLUGIN


def _check_socket() -> None:
    """Raise OSError if no process listens on the engine's Unix socket.

    Call this before docker-py connects. If the connection is refused, docker-py does not close its own
    socket.
    """
    from docker.context import ContextAPI

    address = os.environ.get("DOCKER_HOST") or ContextAPI.kwargs_from_context().get("base_url", "")
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            probe.connect(address.removeprefix("unix://"))


def engine_version() -> str:
    """Return the version of the Docker engine."""
    import docker

    client = docker.from_env(timeout=5)
    try:
        return str(client.version()["Version"])
    finally:
        client.close()


def compose_version() -> str:
    """Return the version of the compose plugin, or `?` if the plugin prints none."""
    done = subprocess.run(
        ["docker", "compose", "version", "--short"], capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout.strip() or "?"


class Engine:
    """Containers, networks and volumes of one cluster, found by the cluster's label."""

    def __init__(self, cluster: str) -> None:
        self._label = f"{CLUSTER_LABEL}={cluster}"

    @cached_property
    def client(self) -> docker.DockerClient:
        """Client of the Docker engine that the environment names.

        It negotiates the API version with the engine.
        """
        import docker
        from docker.errors import DockerException

        try:
            return docker.from_env(timeout=_API_LIMIT_S)
        except DockerException as error:
            raise HarnessError(
                f"the Docker engine does not answer: {error}", "start it, or use --backend process"
            ) from error

    def container(self, service: str) -> Container:
        """Return the container of this cluster for a compose service, running or not."""
        containers = self.client.containers.list(
            all=True, filters={"label": [self._label, f"com.docker.compose.service={service}"]}
        )
        if len(containers) != 1:
            raise HarnessError(
                f"{len(containers)} containers of {service} were found instead of one",
                "run `eos down`, then `eos up`",
            )
        return containers[0]

    def run_beside(self, container: Container, image: str, command: list[str]) -> str:
        """Run a command in a helper container in the network of `container`, and return its output.

        The helper container shares the network namespace of `container` and may change the packet filters
        there.
        """
        from docker.errors import ContainerError

        try:
            output = self.client.containers.run(
                image,
                command,
                network_mode=f"container:{container.id}",
                cap_add=["NET_ADMIN"],
                remove=True,
                labels=dict([self._label.split("=", 1)]),
                stderr=True,
            )
        except ContainerError as error:
            errors = bytes(error.stderr or b"").decode(errors="replace").strip()  # type: ignore[arg-type]
            raise HarnessError(
                f"`{' '.join(command)}` beside {container.name} failed: {errors}", "run `eos doctor`"
            ) from error
        return bytes(output).decode()

    def leftovers(self) -> list[str]:
        """Describe the containers, networks and volumes of this cluster, one line for each."""
        filters: dict[str, str | list[str] | bool] = {"label": self._label}
        return [
            *(f"container {c.name}" for c in self.client.containers.list(all=True, filters=filters)),
            *(f"network {n.name}" for n in self.client.networks.list(filters=filters)),
            *(f"volume {v.name}" for v in self.client.volumes.list(filters=filters)),
        ]

    def remove_all(self) -> None:
        """Remove every container, network and volume of this cluster, whether running or not."""
        from docker.errors import APIError, NotFound

        filters: dict[str, str | list[str] | bool] = {"label": self._label}

        def remove(container: Any) -> None:
            try:
                container.remove(force=True, v=True)
            except NotFound:
                return  # the container has been removed already
            except APIError as error:
                if error.status_code != _CONFLICT:  # conflict: the container is already being removed
                    raise

        with ThreadPoolExecutor(7) as pool:
            list(pool.map(remove, self.client.containers.list(all=True, filters=filters)))
        listed = self.client.containers.list
        wait_until(lambda: not listed(all=True, filters=filters), 20, "the containers to be gone")
        for network in self.client.networks.list(filters=filters):
            network.remove()
        for volume in self.client.volumes.list(filters=filters):
            volume.remove(force=True)


def copy_out(container: Container, path: str, target: Path) -> None:
    """Copy the folder `path` out of a container, running or not, into `target`.

    Do nothing if the folder is missing.
    """
    from docker.errors import NotFound

    with tempfile.TemporaryFile(dir=target) as packed:
        try:
            chunks, _ = container.get_archive(path)
        except NotFound:
            return
        for chunk in chunks:
            packed.write(chunk)
        packed.seek(0)
        with tarfile.open(fileobj=packed) as archive:
            unpack(archive, target)
