"""Loss of the packets of a single TCP connection."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from harness.base.errors import HarnessError
from harness.cluster import packet_filter
from harness.cluster.packet_filter import Flow


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket, Flow]]:
    """Return both ends of a connection on the loopback interface, and the direction to its server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as accepted:
            accepted.settimeout(0.3)
            client.settimeout(0.3)
            yield client, accepted, Flow(client.getsockname()[1], port)


def test_the_connections_of_a_process_to_a_port_are_found(
    connection: tuple[socket.socket, socket.socket, Flow],
) -> None:
    client, _, flow = connection

    assert packet_filter.open_flows(os.getpid(), flow.destination) == [flow]
    assert packet_filter.open_flows(os.getpid(), flow.source) == [Flow(flow.destination, flow.source)]
    client.close()
    assert packet_filter.open_flows(os.getpid(), flow.destination) == []


def test_connections_of_another_process_are_left_out(
    connection: tuple[socket.socket, socket.socket, Flow],
) -> None:
    *_, flow = connection
    with subprocess.Popen(["sleep", "30"]) as other:
        assert packet_filter.open_flows(other.pid, flow.destination) == []
        other.kill()


@pytest.mark.packets
def test_packets_of_one_direction_are_lost_until_they_are_restored(
    connection: tuple[socket.socket, socket.socket, Flow],
) -> None:
    client, accepted, flow = connection
    client.sendall(b"before")
    assert accepted.recv(100) == b"before"
    assert not packet_filter.is_dropped(flow)
    packet_filter.drop(flow)
    try:
        assert packet_filter.is_dropped(flow)
        client.sendall(b"late")
        with pytest.raises(TimeoutError):
            accepted.recv(100)
        assert packet_filter.dropped_packets(flow) > 0
        assert packet_filter.dropped_packets(Flow(flow.source, 1)) == 0
    finally:
        packet_filter.restore(flow)
    packet_filter.restore(flow)

    assert not packet_filter.is_dropped(flow)
    accepted.settimeout(30)
    assert accepted.recv(100) == b"late"  # the kernel sends the lost packets again
    accepted.sendall(b"answer")
    client.settimeout(30)
    assert client.recv(100) == b"answer"


@pytest.mark.packets
def test_an_error_of_iptables_is_reported() -> None:
    with pytest.raises(HarnessError, match=r"iptables .* failed"):
        packet_filter.drop(Flow(70_000, 1))


@pytest.mark.parametrize(
    ("user", "path", "reason"),
    [(1000, "/usr/sbin/iptables", "it needs root"), (0, None, "iptables is not installed"), (0, "/x", "")],
)
def test_the_reason_why_packets_cannot_be_dropped(
    monkeypatch: pytest.MonkeyPatch, user: int, path: str | None, reason: str
) -> None:
    monkeypatch.setattr(packet_filter.os, "geteuid", lambda: user)
    monkeypatch.setattr(packet_filter.shutil, "which", lambda _: path)

    assert packet_filter.unavailable() == reason
