"""The running application: connections past the proxies, and members without frames, are found."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from harness.app.app_spec import AppSpec
from harness.base.process_trees import IN_CONTAINER, TREE, find_tree
from harness.base.units import Duration
from harness.cluster.layout import Ports
from harness.provision.app_processes import CONTAINER
from harness.run import running_app
from harness.run.app_frames import AppConnection, Observed
from harness.run.app_runner import AppRunner, is_internal
from harness.run.running_app import RunningApp
from harness.scenario.model import Limits

CONNECT = (
    "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); "
    "print('connected', flush=True); input()"
)


class Frames:
    def __init__(self, **observed: Any) -> None:
        self.observed = Observed(**observed)

    def read(self) -> Observed:
        return self.observed

    def connections_from(self, ports: list[int]) -> list[AppConnection]:
        return list(self.observed.connections.values()) if ports else []


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def mark(tmp_path: Path, server: socket.socket) -> Iterator[str]:
    """Yield the mark of a process that is connected to the server."""
    mark = f"{tmp_path}/1/"
    with connected({TREE: mark}, server):
        yield mark


@contextmanager
def connected(env: dict[str, str], server: socket.socket) -> Iterator[None]:
    """Run a process with this environment that is connected to the server."""
    command = [sys.executable, "-c", CONNECT, str(server.getsockname()[1])]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=env, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def made(mark: str, base: int, frames: Frames | None = None) -> RunningApp:
    supervisor: Any = SimpleNamespace(running=["app-1"], instance=lambda _: SimpleNamespace(mark=mark))
    cluster: Any = SimpleNamespace(ports=Ports(base), broker_ids=(1, 2, 3), admin=None, security=None)
    cluster.bootstrap = lambda _: ""
    given: Any = frames
    return RunningApp(cluster, supervisor, given, group="g", outputs=["out"])


@pytest.fixture(autouse=True)
def _cluster_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_app, "group_members", lambda *_: {"m1": "c1", "m2": "c2"})
    monkeypatch.setattr(running_app, "producer_ids", lambda *_: {7})


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        pytest.param(1, False, id="proxied"),
        pytest.param(4, False, id="tapped"),
        pytest.param(11, True, id="direct"),
        pytest.param(17, True, id="behind-the-proxy"),
        pytest.param(-1, False, id="no-broker"),
    ],
)
def test_a_connection_past_the_proxies_is_described(
    mark: str, server: socket.socket, offset: int, *, found: bool
) -> None:
    port = server.getsockname()[1]
    described = made(mark, port - offset).bypass()
    assert bool(described) is found
    assert not found or f"app-1 is connected to 127.0.0.1:{port} " in described


@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_the_address_in_a_socket_for_ipv6_is_that_of_ipv4(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    place = SimpleNamespace(ip=host, port=30_011)
    connection = SimpleNamespace(
        laddr=SimpleNamespace(port=5000), raddr=place, status=psutil.CONN_ESTABLISHED
    )
    process = SimpleNamespace(net_connections=lambda **_: [connection])
    monkeypatch.setattr(running_app, "visible_processes", lambda _: [process])
    assert made("/1/", 30_000).bypass() == "app-1 is connected to 127.0.0.1:30011 (from port 5000)"


def test_the_connections_of_a_container_are_those_of_its_processes(
    tmp_path: Path, server: socket.socket
) -> None:
    mark, base = f"{tmp_path}/2/", server.getsockname()[1] - 11
    with connected({IN_CONTAINER: mark}, server):
        assert made(mark, base).bypass() == "", "a start without a container has only its tree"
        (tmp_path / "2").mkdir()
        (tmp_path / "2" / CONTAINER).write_text("eos-app-1")
        assert made(mark, base).bypass().startswith("app-1 is connected to 127.0.0.1:")
        assert find_tree(mark) == [], "the container's engine ends its processes"


def test_members_and_producers_without_frames_are_described(tmp_path: Path) -> None:
    mark = f"{tmp_path}/none/"
    seen: dict[str, Any] = {"client_ids": {"c1", "c2"}, "producer_ids": {7}}
    assert made(mark, 30_000, Frames(**seen)).bypass() == ""
    member = made(mark, 30_000, Frames(**seen | {"client_ids": {"c1"}})).bypass()
    assert member.startswith("member m2 of the group, with client id 'c2', sent no frame")
    producer = made(mark, 30_000, Frames(**seen | {"producer_ids": {8}})).bypass()
    assert producer == "producer id 7 in out was assigned past the tap"
    newer = seen | {"producer_ids": {8}, "undecoded": {"InitProducerId"}}
    assert made(mark, 30_000, Frames(**newer)).bypass() == ""


def test_connections_distinguish_members_or_else_client_ids_do(mark: str) -> None:
    connection = AppConnection("127.0.0.1:5000", client_ids={"c1"}, members={"m2"})
    assert made(mark, 30_000, Frames(connections={1: connection})).members_of("app-1") == {"m2": "c2"}
    connection.members.clear()
    assert made(mark, 30_000, Frames(connections={1: connection})).members_of("app-1") == {"m1": "c1"}


@pytest.mark.parametrize(
    ("topic", "group", "internal"),
    [
        ("__consumer_offsets", "", True),
        ("billing.ab-changelog", "billing.ab", True),
        ("billing.ab-changelog", "", False),
        ("billing.ab", "billing.ab", False),
        ("connect-ab-configs", "", True),
        ("connect-cd-configs", "", False),
        ("my-connect-ab-configs", "", False),
        ("audit.ab", "billing.ab", False),
        ("[eu] billing*.ab-changelog", "[eu] billing*.ab", True),
        ("e billing.ab-changelog", "[eu] billing*.ab", False),
    ],
)
def test_topics_that_an_application_keeps_for_itself(topic: str, group: str, internal: bool) -> None:
    assert is_internal(topic, group, ["connect-ab-*"]) is internal


@pytest.mark.parametrize(("recovery", "limit"), [(0.001, 60), (60, 60), (90, 90)])
def test_a_strict_limit_of_recovery_does_not_shorten_the_wait_for_the_application(
    recovery: float, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = SimpleNamespace(app=None, input=[], output=[], limits=Limits(recovery=Duration(recovery)))
    run: Any = SimpleNamespace(scenario=scenario, events=SimpleNamespace(phase=None))
    runner: Any = AppRunner(run)
    runner._control = "made"
    waits: list[float] = []
    monkeypatch.setattr(runner, "_wait_processed", waits.append)

    runner.finish()

    assert waits == [limit]


@pytest.mark.parametrize(("image", "pids"), [("", [7]), ("shop/billing:7", [])])
def test_the_memory_of_a_docker_client_is_not_that_of_the_application(image: str, pids: list[int]) -> None:
    run: Any = SimpleNamespace(scenario=SimpleNamespace(app=None, input=[], output=[]))
    runner: Any = AppRunner(run)
    instances = [SimpleNamespace(number=1, pid=7), SimpleNamespace(number=0, pid=0)]
    runner._supervisor = SimpleNamespace(spec=AppSpec(image=image), instances=instances)
    assert runner.pids == pids
