"""A node of the compose back end: its container is replaced if, and only if, its version was changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from harness.cluster import compose_backend
from harness.cluster.compose_backend import VersionedContainerNode
from harness.cluster.nodes import Condition
from harness.provision.docker_engine import Engine

OLD, NEW = "eos-harness/kafka:4.2.1", "eos-harness/kafka:4.3.1"


class Container:
    """The container of a service, as docker-py shows it. It has exited, and runs once it was started."""

    def __init__(self, image: str) -> None:
        self.attrs: dict[str, Any] = {
            "Config": {"Image": image},
            "State": {"Paused": False, "Running": False, "ExitCode": 0, "Pid": 0},
        }
        self.output = [f"first line of {image}\n", f"last line of {image}\n"]

    def start(self) -> None:
        self.attrs["State"]["Running"] = True

    def logs(self, tail: int = 1000) -> bytes:
        return "".join(self.output[-tail:]).encode()


class Docker:
    """A Docker engine with one container. `up` replaces it by one with the image of the env file."""

    def __init__(self) -> None:
        self.current = Container(OLD)
        self.replaced: list[str] = []

    def container(self, service: str) -> Container:
        assert service == "kafka-1"
        return self.current

    def up(self, env_file: Path, services: Sequence[str]) -> Docker:
        assert services == ["kafka-1"]
        assert "COMPOSE_PROJECT_NAME=ours" in env_file.read_text()
        self.current = Container(env_file.read_text().split("EOS_KAFKA_IMAGE=")[1].split()[0])
        return self

    def start(self) -> None:
        self.replaced.append(self.current.attrs["Config"]["Image"])
        self.current.start()


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    docker = Docker()
    monkeypatch.setattr(compose_backend, "ComposeProject", docker.up)
    return docker


@pytest.fixture
def node(docker: Docker, tmp_path: Path) -> VersionedContainerNode:
    return VersionedContainerNode("kafka-1", 1, "broker", cast(Engine, docker), tmp_path / "kafka-1")


def change(node: VersionedContainerNode, version: str) -> None:
    node.set_version(
        version, {"COMPOSE_PROJECT_NAME": "ours", "EOS_KAFKA_IMAGE": f"eos-harness/kafka:{version}"}
    )


def test_a_node_whose_version_was_never_changed_starts_its_own_container(
    node: VersionedContainerNode, docker: Docker
) -> None:
    node.start()
    assert node.version == ""
    assert node.status().condition is Condition.RUNNING
    assert docker.replaced == []
    assert node.log(1) == f"last line of {OLD}\n"


def test_another_version_replaces_the_container_once_and_keeps_the_output(
    node: VersionedContainerNode, docker: Docker
) -> None:
    change(node, "4.3.1")
    assert node.version == "4.3.1"
    assert docker.replaced == []
    node.start()
    assert docker.replaced == [NEW]
    docker.current = Container(NEW)
    node.start()
    assert docker.replaced == [NEW]
    assert node.status().condition is Condition.RUNNING
    assert node.log() == "".join([*Container(OLD).output, *Container(NEW).output])
    assert node.log(3).startswith(f"last line of {OLD}\n")


def test_a_node_goes_back_to_its_first_image(node: VersionedContainerNode, docker: Docker) -> None:
    for version in ("4.3.1", "4.2.1"):
        change(node, version)
        node.start()
        docker.current.attrs["State"]["Running"] = False
    assert docker.replaced == [NEW, OLD]
    assert node.version == "4.2.1"
    assert node.log().count("first line") == 3
