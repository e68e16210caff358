"""Loss of the packets of single TCP connections on the loopback interface, made with iptables.

Only one direction of a connection is dropped: packets from its client port to its server port. Both ends keep
the connection open, and the kernel sends the lost packets again until they get through. The process back end
needs root and iptables for it.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from harness.base.errors import HarnessError

_LIMIT_S: Final = 10.0
_ESTABLISHED: Final = "01"
_TIME_WAIT: Final = "06"
_IPV4: Final = 0x0800
_MOST_BYTES: Final = 1 << 16
_LEAST_BYTES: Final = 20
"""Size of an IPv4 header, and of a TCP header, without options."""
_REQUEST: Final = struct.Struct(">ihh")
"""The first fields of a Kafka request: its size, API key and version."""
_MOST_REQUEST: Final = 1 << 20
_MOST_VERSION: Final = 32


class Flow(NamedTuple):
    """One direction of a TCP connection on the loopback interface, as its two ports."""

    source: int
    destination: int


def unavailable() -> str:
    """Return the reason why packets cannot be dropped on this machine, or ""."""
    if os.geteuid() != 0:
        return "it needs root"
    if shutil.which("iptables") is None:
        return "iptables is not installed"
    return ""


def open_flows(pid: int, port: int) -> list[Flow]:
    """Return the open connections of a process to a port, each in the direction to this port."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue  # the process has closed this file
        if match := re.fullmatch(r"socket:\[(\d+)\]", target):
            sockets.add(match[1])
    flows = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            flow = Flow(*_ports(fields))
            if fields[3] == _ESTABLISHED and flow.destination == port and fields[9] in sockets:
                flows.add(flow)
    return sorted(flows)


def is_open(flow: Flow) -> bool:
    """Return whether an end of a connection exists on this machine."""
    return bool(_ends(flow))


def is_pending(flow: Flow) -> bool:
    """Return whether a connection has packets that did not arrive yet, or is being closed.

    The kernel keeps the client's end of a closed connection until its last packets have arrived.
    """
    return any(fields[3] != _ESTABLISHED or int(fields[4].split(":")[0], 16) for fields in _ends(flow))


def _ends(flow: Flow) -> list[list[str]]:
    """Return the lines of both ends of a connection in the kernel's tables, without old connections."""
    ends = {tuple(flow), (flow.destination, flow.source)}
    tables = [Path(f"/proc/net/{table}").read_text().splitlines()[1:] for table in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table]
    return [fields for fields in lines if fields[3] != _TIME_WAIT and _ports(fields) in ends]


def _ports(fields: Sequence[str]) -> tuple[int, int]:
    """Return the local and the remote port of a line of the kernel's table of connections."""
    local, remote = (int(field.rpartition(":")[2], 16) for field in fields[1:3])
    return local, remote


def flow_with(api_key: int, limit_s: float, among: Iterable[Flow]) -> Flow | None:
    """Return the first of these flows on which a Kafka request of this type passes.

    Return None if none does within `limit_s` seconds.
    """
    flows = set(among)
    deadline = time.monotonic() + limit_s
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_IPV4)) as packets:
        packets.bind(("lo", 0))
        packets.settimeout(0.2)
        while time.monotonic() < deadline:
            try:
                packet = packets.recv(_MOST_BYTES)
            except TimeoutError:
                continue
            flow, payload = parse_packet(packet)
            if flow is not None and flow in flows and request_type(payload) == api_key:
                return flow
    return None


def parse_packet(packet: bytes) -> tuple[Flow | None, bytes]:
    """Return the flow of an IPv4 packet and its payload; None if the packet is not TCP."""
    header = (packet[0] & 0x0F) * 4 if packet else 0
    segment = packet[header:]
    if len(packet) < _LEAST_BYTES or packet[9] != socket.IPPROTO_TCP or len(segment) < _LEAST_BYTES:
        return None, b""
    source, destination = struct.unpack_from(">HH", segment)
    return Flow(source, destination), segment[(segment[12] >> 4) * 4 :]


def request_type(payload: bytes) -> int:
    """Return the API key of a Kafka request that begins in this payload; -1 if none does."""
    if len(payload) < _REQUEST.size:
        return -1
    size, api_key, version = _REQUEST.unpack_from(payload)
    # The rest of the request may be in other packets. A request begins with its size.
    return int(api_key) if 0 < size <= _MOST_REQUEST and 0 <= version < _MOST_VERSION else -1


def drop(flow: Flow) -> None:
    """Drop the packets of a flow from now on."""
    _iptables("-I", "INPUT", *_match(flow), "-j", "DROP")


def restore(flow: Flow) -> None:
    """Let the packets of a flow pass again. Do nothing if they pass already."""
    while is_dropped(flow):
        _iptables("-D", "INPUT", *_match(flow), "-j", "DROP")


def is_dropped(flow: Flow) -> bool:
    """Return whether the packets of a flow are dropped."""
    return _run("-C", "INPUT", *_match(flow), "-j", "DROP").returncode == 0


def dropped_packets(flow: Flow) -> int:
    """Return the number of packets of a flow that were dropped so far."""
    ports = re.compile(rf"\bspt:{flow.source} dpt:{flow.destination}\b")
    lines = _iptables("-nvxL", "INPUT").splitlines()
    return sum(int(line.split()[0]) for line in lines if ports.search(line))


def _match(flow: Flow) -> tuple[str, ...]:
    ports = ("--sport", str(flow.source), "--dport", str(flow.destination))
    return ("-i", "lo", "-p", "tcp", *ports)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["iptables", "-w", "5", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)


def _iptables(*arguments: str) -> str:
    done = _run(*arguments)
    if done.returncode:
        raise HarnessError(
            f"iptables {' '.join(arguments)} failed: {done.stderr.strip()}",
            "dropping packets needs root, and a kernel with iptables",
        )
    return done.stdout
