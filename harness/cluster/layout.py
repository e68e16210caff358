"""Who is who and where: node names and ids, the four listeners, and the ports of one cluster."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from harness.base.errors import UsageError
from harness.base.ports import port_taken

BROKER_IDS = (1, 2, 3)
CONTROLLER_IDS = (11, 12, 13)
HOST = "127.0.0.1"
# Below the range from which Linux and macOS draw the near end of outgoing connections: above it about
# one start in thirty finds a port taken.
_FIRST_PORT, _LAST_PORT, _BLOCK = 12_000, 32_000, 30
_BLOCKS = (_LAST_PORT - _FIRST_PORT) // _BLOCK


class BrokerListener(StrEnum):
    """The doors of a broker; what a client reaches depends on the door that it came in by."""

    INTERNAL = "INTERNAL"  # brokers among themselves
    PROXIED = "PROXIED"  # clients under test: advertised as a Toxiproxy port
    TAPPED = "TAPPED"  # clients under test, frame by frame: advertised as the wire tap's port
    DIRECT = "DIRECT"  # observer, admin, Spark: never subject to a fault


@dataclass(frozen=True)
class Ports:
    """The ports of one cluster on the host, a block from `base`."""

    base: int

    @property
    def toxiproxy_api(self) -> int:
        """Toxiproxy's HTTP interface."""
        return self.base

    def proxied(self, broker: int) -> int:
        """Where Toxiproxy listens for PROXIED clients of this broker."""
        return self.base + broker

    def tapped(self, broker: int) -> int:
        """Where the wire tap listens for TAPPED clients of this broker."""
        return self.base + 3 + broker

    def tap_upstream(self, broker: int) -> int:
        """Where Toxiproxy listens for the wire tap, for this broker."""
        return self.base + 6 + broker

    def inner_proxy(self, broker: int) -> int:
        """Where Toxiproxy's second proxy before a broker listens, while a fault puts two in series."""
        return self.base + 26 + broker

    def toxiproxy(self, listener: BrokerListener, broker: int) -> int:
        """Where Toxiproxy listens for this listener of this broker: for clients, or for the wire tap."""
        return self.proxied(broker) if listener is BrokerListener.PROXIED else self.tap_upstream(broker)

    def direct(self, broker: int) -> int:
        """Where the broker itself serves DIRECT."""
        return self.base + 10 + broker

    def inner(self, listener: BrokerListener, broker: int) -> int:
        """Where a broker process itself binds a listener (containers have addresses of their own)."""
        if listener is BrokerListener.DIRECT:
            return self.direct(broker)
        offset = {BrokerListener.INTERNAL: 13, BrokerListener.PROXIED: 16, BrokerListener.TAPPED: 19}[
            listener
        ]
        return self.base + offset + broker

    def controller(self, node_id: int) -> int:
        """Where a controller process listens."""
        return self.base + 23 + node_id - 10

    def bootstrap(self, listener: BrokerListener) -> str:
        """The bootstrap servers of a listener, as clients on this host reach it."""
        port = {
            BrokerListener.PROXIED: self.proxied,
            BrokerListener.TAPPED: self.tapped,
            BrokerListener.DIRECT: self.direct,
        }.get(listener)
        if port is None:
            raise UsageError(f"{listener} is for brokers only", "use PROXIED, TAPPED or DIRECT")
        return ",".join(f"{HOST}:{port(broker)}" for broker in BROKER_IDS)

    @property
    def subnet(self) -> str:
        """The first three bytes of the containers' subnet: one for each block of ports."""
        block = (self.base - _FIRST_PORT) // _BLOCK
        return f"10.{213 + block // 250}.{block % 250}"

    @property
    def all(self) -> range:
        """Every port of the block."""
        return range(self.base, self.base + _BLOCK)


def node_name(node_id: int) -> str:
    """`kafka-1` to `kafka-3`, `controller-11` to `controller-13`."""
    return f"{'controller' if node_id in CONTROLLER_IDS else 'kafka'}-{node_id}"


def cluster_name(state: Path) -> str:
    """A name for the cluster of a state directory: the same for the same directory, and no other's."""
    return f"eos-{hashlib.sha256(str(state).encode()).hexdigest()[:8]}"


def preferred_ports(state: Path) -> Ports:
    """The block of ports that a state directory takes if nobody else has."""
    return Ports(_FIRST_PORT + _preferred_block(state) * _BLOCK)


def _preferred_block(state: Path) -> int:
    return int(cluster_name(state)[4:], 16) % _BLOCKS


def choose_ports(state: Path) -> Ports:
    """A free block of ports, the same for the same directory as long as nobody else took it."""
    first = _preferred_block(state)
    for step in range(_BLOCKS):
        ports = Ports(_FIRST_PORT + (first + step) % _BLOCKS * _BLOCK)
        if not any(port_taken(port) for port in ports.all):
            return ports
    raise UsageError("no free block of ports was found", "see who listens with `eos doctor`")
