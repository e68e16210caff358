"""Loss of the packets of single TCP connections between brokers, made with iptables.

Only one direction of a connection is dropped: packets from its client port to its server port. Both ends keep
the connection open, and the kernel sends the lost packets again until they get through.

The packets are dropped in the network namespace that receives them. On the process back end this is the
namespace of this process, where they pass the loopback interface. Each container has a namespace of its own,
which `nsenter` finds by a process in it. Both need root and iptables.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from harness.base.errors import HarnessError

_LIMIT_S: Final = 10.0
_ESTABLISHED: Final = "01"
_TIME_WAIT: Final = "06"
_IPV4: Final = 0x0800
_CLONE_NEWNET: Final = 0x40000000
_MOST_BYTES: Final = 1 << 16
_LEAST_BYTES: Final = 20
"""Size of an IPv4 header, and of a TCP header, without options."""
_REQUEST: Final = struct.Struct(">ihh")
"""The first fields of a Kafka request: its size, API key and version."""
_MOST_REQUEST: Final = 1 << 20
_MOST_VERSION: Final = 32
LOOPBACK: Final = "127.0.0.1"


class Flow(NamedTuple):
    """One direction of a TCP connection: its ports, the address of its source, and where its ends are.

    `sender` and `receiver` are processes in the network namespaces of the two ends; 0 is this process.
    """

    source: int
    destination: int
    address: str = LOOPBACK
    sender: int = 0
    receiver: int = 0


def unavailable(*, containers: bool = False) -> str:
    """Return the reason why packets cannot be dropped on this machine, or in its containers, or ""."""
    if os.geteuid() != 0:
        return "it needs root"
    for command in ("iptables", "nsenter") if containers else ("iptables",):
        if shutil.which(command) is None:
            return f"{command} is not installed"
    return ""


def has_address(process: int, address: str) -> bool:
    """Return whether an address belongs to the network namespace of a process on this machine."""
    try:
        table = Path(f"/proc/{process}/net/fib_trie").read_text()
    except OSError:
        return False
    return re.search(rf"\|-- {re.escape(address)}\n\s+/32 host LOCAL", table) is not None


def open_flows(process: int, port: int) -> list[Flow]:
    """Return the open connections of a process to a port, each in the direction to this port."""
    sockets = _sockets(process)
    return sorted(
        {
            Flow(*_ports(fields), _address(fields[1]))
            for fields in _table(process)
            if fields[3] == _ESTABLISHED and _ports(fields)[1] == port and fields[9] in sockets
        }
    )


def accepted_flows(receiver: int, port: int, address: str, sender: int) -> list[Flow]:
    """Return the open connections from an address to a port of a network namespace, each in this direction.

    `receiver` and `sender` are processes in the namespaces of the port and of the address.
    """
    return sorted(
        {
            Flow(_ports(fields)[1], port, address, sender, receiver)
            for fields in _table(receiver)
            if fields[3] == _ESTABLISHED and _ports(fields)[0] == port and _address(fields[2]) == address
        }
    )


def _sockets(process: int) -> set[str]:
    """Return the inodes of the sockets of a process."""
    sockets = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue  # the process has closed this file
        if match := re.fullmatch(r"socket:\[(\d+)\]", target):
            sockets.add(match[1])
    return sockets


def is_open(flow: Flow) -> bool:
    """Return whether an end of a connection exists."""
    return bool(_ends(flow))


def is_pending(flow: Flow) -> bool:
    """Return whether a connection has packets that did not arrive yet, or is being closed.

    The kernel keeps the client's end of a closed connection until its last packets have arrived.
    """
    return any(fields[3] != _ESTABLISHED or int(fields[4].split(":")[0], 16) for fields in _ends(flow))


def _ends(flow: Flow) -> list[list[str]]:
    """Return the lines of both ends of a connection in the kernel's tables, without old connections."""
    there, back = (flow.source, flow.destination), (flow.destination, flow.source)
    return [
        fields
        for process in {flow.sender, flow.receiver}
        for fields in _table(process)
        if fields[3] != _TIME_WAIT
        if (_ports(fields) == there and _address(fields[1]) == flow.address)
        or (_ports(fields) == back and _address(fields[2]) == flow.address)
    ]


def _table(process: int) -> list[list[str]]:
    """Return the lines of the kernel's tables of TCP connections, for the namespace of a process."""
    tables = [Path(f"/proc/{process or 'self'}/net/{table}").read_text() for table in ("tcp", "tcp6")]
    return [line.split() for table in tables for line in table.splitlines()[1:]]


def _ports(fields: Sequence[str]) -> tuple[int, int]:
    """Return the local and the remote port of a line of the kernel's table of connections."""
    local, remote = (int(field.rpartition(":")[2], 16) for field in fields[1:3])
    return local, remote


def _address(field: str) -> str:
    """Return the IPv4 address of one end of a connection, also if the kernel has it as an IPv6 address."""
    # The kernel prints each word of an address as a number in the byte order of this machine.
    word = int(field.partition(":")[0][-8:], 16)
    return socket.inet_ntoa(struct.pack("=I", word))


def flow_with(api_key: int, limit_s: float, among: Iterable[Flow]) -> Flow | None:
    """Return the first of these flows on which a Kafka request of this type passes.

    Return None if none does within `limit_s` seconds. All flows have the same receiver.
    """
    flows = {(flow.source, flow.destination, flow.address): flow for flow in among}
    (receiver,) = {flow.receiver for flow in flows.values()} or {0}
    deadline = time.monotonic() + limit_s
    with _packet_socket(receiver) as packets:
        packets.settimeout(0.2)
        while time.monotonic() < deadline:
            try:
                packet = packets.recv(_MOST_BYTES)
            except TimeoutError:
                continue
            flow, payload = parse_packet(packet)
            if flow is not None and flow[:3] in flows and request_type(payload) == api_key:
                return flows[flow[:3]]
    return None


def _packet_socket(process: int) -> socket.socket:
    """Return a socket that receives every IPv4 packet of the network namespace of a process."""

    def open_socket() -> socket.socket:
        if process:
            with Path(f"/proc/{process}/ns/net").open() as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    error = os.strerror(ctypes.get_errno())
                    raise HarnessError(f"the namespace of process {process}: {error}", "run it as root")
        return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_IPV4))

    # Only the thread that opens the socket enters the other namespace.
    with ThreadPoolExecutor(1) as pool:
        packets = pool.submit(open_socket).result()
    if not process:
        packets.bind(("lo", 0))
    return packets


def parse_packet(packet: bytes) -> tuple[Flow | None, bytes]:
    """Return the flow of an IPv4 packet and its payload; None if the packet is not TCP."""
    header = (packet[0] & 0x0F) * 4 if packet else 0
    segment = packet[header:]
    if len(packet) < _LEAST_BYTES or packet[9] != socket.IPPROTO_TCP or len(segment) < _LEAST_BYTES:
        return None, b""
    source, destination = struct.unpack_from(">HH", segment)
    address = socket.inet_ntoa(packet[12:16])
    return Flow(source, destination, address), segment[(segment[12] >> 4) * 4 :]


def request_type(payload: bytes) -> int:
    """Return the API key of a Kafka request that begins in this payload; -1 if none does."""
    if len(payload) < _REQUEST.size:
        return -1
    size, api_key, version = _REQUEST.unpack_from(payload)
    # The rest of the request may be in other packets. A request begins with its size.
    return int(api_key) if 0 < size <= _MOST_REQUEST and 0 <= version < _MOST_VERSION else -1


def drop(flow: Flow) -> None:
    """Drop the packets of a flow from now on."""
    _iptables(flow, "-I", "INPUT", *_match(flow), "-j", "DROP")


def restore(flow: Flow) -> None:
    """Let the packets of a flow pass again. Do nothing if they pass already."""
    while is_dropped(flow):
        _iptables(flow, "-D", "INPUT", *_match(flow), "-j", "DROP")


def is_dropped(flow: Flow) -> bool:
    """Return whether the packets of a flow are dropped."""
    return _run(flow, "-C", "INPUT", *_match(flow), "-j", "DROP").returncode == 0


def dropped_packets(flow: Flow) -> int:
    """Return the number of packets of a flow that were dropped so far."""
    rule = re.compile(rf"\b{re.escape(flow.address)}\b.*\bspt:{flow.source} dpt:{flow.destination}\b")
    lines = _iptables(flow, "-nvxL", "INPUT").splitlines()
    return sum(int(line.split()[0]) for line in lines if rule.search(line))


def _match(flow: Flow) -> tuple[str, ...]:
    ports = ("--sport", str(flow.source), "--dport", str(flow.destination))
    return ("-s", flow.address, "-p", "tcp", *ports)


def _run(flow: Flow, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run iptables in the namespace that receives the packets of a flow."""
    entered = ["nsenter", f"--net=/proc/{flow.receiver}/ns/net"] if flow.receiver else []
    command = [*entered, "iptables", "-w", "5", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)


def _iptables(flow: Flow, *arguments: str) -> str:
    done = _run(flow, *arguments)
    if done.returncode:
        raise HarnessError(
            f"iptables {' '.join(arguments)} failed: {done.stderr.strip()}",
            "dropping packets needs root, and a kernel with iptables",
        )
    return done.stdout
