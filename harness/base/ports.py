"""Search for free ports of the loopback address, and for the processes that listen on taken ports."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Sequence
from typing import Final

import psutil

_HOST: Final = "127.0.0.1"
# The range of ports from which single ports are chosen. The ports of the harness's clusters and the ephemeral
# ports of Linux and macOS have higher numbers. An ephemeral port would be unsafe: an outgoing connection
# could take it after it is chosen here and before a server uses it.
_SINGLE: Final = range(10_000, 12_000)


def port_taken(port: int) -> bool:
    """Return whether a port of the loopback address is taken, so that no new server can listen on it."""
    with socket.socket() as probe:
        # Servers set this option too. With the option, a port is free for a new server even while old
        # connections of the port are in the state TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return True
    return False


def free_ports(count: int, avoid: Collection[int] = (), among: Sequence[int] = ()) -> list[int]:
    """Return `count` ports of a range that are free now.

    The default range is not that of the harness's clusters. `avoid` contains ports that are free now but that
    another server will use.
    """
    among = among or _SINGLE
    # The order is random, so that two commands that run at the same time do not choose the same ports.
    candidates = random.SystemRandom().sample(among, len(among))
    free = (port for port in candidates if port not in avoid and not port_taken(port))
    return [next(free) for _ in range(count)]


def describe_port_owner(port: int) -> str:
    """Describe the process that listens on a port. The description is limited to what this user may see."""
    for process in psutil.process_iter():
        try:
            connections = process.net_connections(kind="tcp")
            if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections):
                command = " ".join(process.cmdline())[:60]
                return f"port {port}: process {process.pid} ({command or 'ended'})"
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # the process has ended, or another user started it
    return f"port {port}: a process that this user cannot see"
