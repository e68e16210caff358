"""Loss of the packets of a single TCP connection."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast

import pytest

from harness.base.errors import HarnessError
from harness.base.waits import wait_until
from harness.cluster import packet_filter
from harness.cluster.cluster import Cluster
from harness.cluster.packet_filter import LOOPBACK, Flow
from harness.faults.flow_faults import restore_flow
from harness.faults.undo import undo


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
def test_packets_of_a_closed_connection_are_pending_until_they_arrive(
    connection: tuple[socket.socket, socket.socket, Flow],
) -> None:
    client, accepted, flow = connection
    assert packet_filter.is_open(flow)
    assert not packet_filter.is_pending(flow)
    packet_filter.drop(flow)
    try:
        client.sendall(b"late")
        wait_until(lambda: packet_filter.dropped_packets(flow), 10, "a lost packet")
        assert packet_filter.is_pending(flow), "the connection is open, and its packet did not arrive"
        client.close()
        assert packet_filter.is_pending(flow)
    finally:
        packet_filter.restore(flow)
    accepted.settimeout(30)
    assert accepted.recv(100) == b"late"
    assert packet_filter.is_pending(flow), "the server has not closed its end"
    accepted.close()
    wait_until(lambda: not packet_filter.is_pending(flow), 10, "the connection to end")
    assert not packet_filter.is_open(flow)


@pytest.mark.packets
def test_the_undo_step_restores_a_flow_and_twice_is_harmless(
    connection: tuple[socket.socket, socket.socket, Flow],
) -> None:
    *_, flow = connection
    cluster = cast(Cluster, SimpleNamespace(record=SimpleNamespace(backend="process")))
    steps = [restore_flow.step(broker=1, source=flow.source, destination=flow.destination, address=LOOPBACK)]
    packet_filter.drop(flow)
    assert packet_filter.is_dropped(flow)
    for _ in range(2):
        undo(cluster, steps)
        assert not packet_filter.is_dropped(flow)


@pytest.mark.packets
def test_an_error_of_iptables_is_reported() -> None:
    with pytest.raises(HarnessError, match=r"iptables .* failed"):
        packet_filter.drop(Flow(70_000, 1))


@pytest.fixture
def namespace() -> Iterator[int]:
    """Return a process in a network namespace of its own, with an address on its loopback interface."""
    script = "ip link set lo up; ip addr add 10.9.8.7/32 dev lo; echo ready; exec sleep 100"
    with subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


SEND = """
import socket, sys
with socket.create_server(("10.9.8.7", 9092)) as server:
    client = socket.create_connection(("10.9.8.7", 9092), source_address=("10.9.8.7", 0))
    accepted = server.accept()[0]
    print(client.getsockname()[1], flush=True)
    for line in sys.stdin:
        client.sendall(bytes.fromhex(line))
"""


@pytest.mark.packets("nsenter", "unshare", "ip")
def test_packets_are_lost_in_the_namespace_of_another_process(namespace: int) -> None:
    """The rules of the namespace of a container do not appear in the namespace of this process."""
    request = struct.pack(">ihh", 20, 27, 1).hex() + "\n"
    command = ["nsenter", f"--net=/proc/{namespace}/ns/net", sys.executable, "-c", SEND]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        source = int(client.stdout.readline())
        (flow,) = packet_filter.accepted_flows(namespace, 9092, "10.9.8.7", namespace)
        assert flow == Flow(source, 9092, "10.9.8.7", namespace, namespace)
        assert packet_filter.accepted_flows(namespace, 9092, "10.9.8.6", namespace) == []
        assert packet_filter.is_open(flow)
        assert not packet_filter.is_pending(flow)
        assert not packet_filter.is_open(flow._replace(sender=0, receiver=0))

        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(packet_filter.flow_with, 27, 10, [flow])
            while not seen.done():
                client.stdin.write(request)
            assert seen.result() == flow

        packet_filter.drop(flow)
        assert packet_filter.is_dropped(flow)
        assert not packet_filter.is_dropped(flow._replace(receiver=0))
        client.stdin.write(request)
        wait_until(lambda: packet_filter.dropped_packets(flow), 10, "a lost packet")
        assert packet_filter.dropped_packets(flow._replace(address="10.9.8.6")) == 0
        assert packet_filter.is_pending(flow)
        packet_filter.restore(flow)
        assert not packet_filter.is_dropped(flow)
        client.stdin.close()


@pytest.mark.packets("unshare", "ip")
def test_the_addresses_of_a_namespace_are_those_of_its_own_interfaces(namespace: int) -> None:
    assert packet_filter.has_address(namespace, "10.9.8.7")
    assert not packet_filter.has_address(namespace, "10.9.8.6")
    assert not packet_filter.has_address(os.getpid(), "10.9.8.7")
    assert packet_filter.has_address(os.getpid(), LOOPBACK)
    assert not packet_filter.has_address(0, LOOPBACK), "there is no process 0"


@pytest.mark.parametrize(
    ("containers", "missing", "reason"),
    [(True, "nsenter", "nsenter is not installed"), (False, "nsenter", ""), (True, "", "")],
)
def test_only_containers_need_nsenter(
    monkeypatch: pytest.MonkeyPatch, containers: bool, missing: str, reason: str
) -> None:
    monkeypatch.setattr(packet_filter.os, "geteuid", lambda: 0)
    monkeypatch.setattr(packet_filter.shutil, "which", lambda name: None if name == missing else f"/{name}")

    assert packet_filter.unavailable(containers=containers) == reason


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


@pytest.mark.packets
def test_the_connection_that_carries_a_request_is_found(
    connection: tuple[socket.socket, socket.socket, Flow],
) -> None:
    client, _, flow = connection
    request = struct.pack(">ihh", 20, 27, 1) + b"x" * 16
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(0.02):
            client.sendall(request)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert packet_filter.flow_with(27, 10, [Flow(1, 2), flow]) == flow
        assert packet_filter.flow_with(1, 0.5, [flow]) is None
        assert packet_filter.flow_with(27, 0.5, [Flow(1, 2)]) is None
    finally:
        stop.set()
        sender.join()


def packet(payload: bytes, protocol: int = 6, options: int = 1) -> bytes:
    """Return an IPv4 packet from 10.1.2.3, port 7, to port 9, with headers of different sizes."""
    source = bytes([10, 1, 2, 3])
    ip = bytes([0x45 + options]) + bytes(8) + bytes([protocol]) + bytes(2) + source + bytes(4 + 4 * options)
    return (
        ip
        + struct.pack(">HH", 7, 9)
        + bytes(8)
        + bytes([(5 + options) << 4])
        + bytes(7 + 4 * options)
        + payload
    )


@pytest.mark.parametrize("options", [0, 1, 3])
def test_the_payload_follows_headers_of_any_size(options: int) -> None:
    flow = Flow(7, 9, "10.1.2.3")
    assert packet_filter.parse_packet(packet(b"abc", options=options)) == (flow, b"abc")


def test_other_packets_are_no_flow() -> None:
    assert packet_filter.parse_packet(packet(b"abc", protocol=17)) == (None, b"")
    assert packet_filter.parse_packet(b"") == (None, b"")
    assert packet_filter.parse_packet(packet(b"")[:30]) == (None, b"")


@pytest.mark.parametrize(
    ("payload", "key"),
    [
        (struct.pack(">ihh", 83, 27, 2), 27),
        (struct.pack(">ihh", 0, 27, 2), -1),
        (struct.pack(">ihh", 83, 27, 999), -1),
        (struct.pack(">ihh", 1 << 30, 27, 2), -1),
        (b"abc", -1),
    ],
)
def test_a_request_is_recognised_by_its_first_fields(payload: bytes, key: int) -> None:
    assert packet_filter.request_type(payload) == key
