"""Ports of the loopback address: free ones, taken ones, and the processes that listen on them."""

from __future__ import annotations

import random
import socket
from typing import Final

import psutil

_HOST: Final = "127.0.0.1"
# These ports are below the port blocks of clusters and below the ephemeral ports of Linux and macOS. An
# outgoing connection could take an ephemeral port after it is chosen here and before a server uses it.
_SINGLE: Final = range(10_000, 12_000)


def port_taken(port: int) -> bool:
    """Return True if no server can listen on this port of the loopback address."""
    with socket.socket() as probe:
        # Servers set this option too, so a port whose only connections are in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return True
    return False


def free_ports(count: int) -> list[int]:
    """Return `count` ports that are free now and outside the port blocks of clusters."""
    # The order is random, so that two simultaneous commands do not choose the same ports.
    candidates = random.SystemRandom().sample(_SINGLE, len(_SINGLE))
    free = (port for port in candidates if not port_taken(port))
    return [next(free) for _ in range(count)]


def describe_port_owner(port: int) -> str:
    """Describe the process that listens on a port, as far as this user may see it."""
    for process in psutil.process_iter():
        try:
            connections = process.net_connections(kind="tcp")
            if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections):
                command = " ".join(process.cmdline())[:60]
                return f"port {port}: process {process.pid} ({command or 'ended'})"
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # the process has ended, or another user started it
    return f"port {port}: a process that this user cannot see"
