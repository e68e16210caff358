"""Ports of the loopback address: which are taken, and some that are free."""

from __future__ import annotations

import random
import socket
from typing import Final

_HOST: Final = "127.0.0.1"
# Below the blocks of clusters, and below the range from which Linux and macOS draw the near end of outgoing
# connections: one of those takes a port between its choice and its use.
_SINGLE: Final = range(10_000, 12_000)


def port_taken(port: int) -> bool:
    """Whether this port of the loopback address cannot be listened on."""
    with socket.socket() as probe:
        # As servers do: a port whose last connections are only fading away (TIME_WAIT) is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return True
    return False


def free_ports(count: int) -> list[int]:
    """So many ports that nobody listens on now, and that no cluster takes."""
    # Drawn, so that two who look at the same time do not find the same.
    drawn = random.SystemRandom().sample(_SINGLE, len(_SINGLE))
    free = (port for port in drawn if not port_taken(port))
    return [next(free) for _ in range(count)]
