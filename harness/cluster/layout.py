"""Names, ids, listeners and ports of the nodes of one cluster."""

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
# The ports of every cluster are below the range from which Linux and macOS choose the local port of an
# outgoing connection. Within that range, about one cluster start in thirty would find one of its ports in
# use.
_FIRST_PORT, _LAST_PORT, _BLOCK = 12_000, 32_000, 33
_BLOCKS = (_LAST_PORT - _FIRST_PORT) // _BLOCK


class BrokerListener(StrEnum):
    """The listeners of a broker. A broker advertises a separate address for each of its listeners."""

    INTERNAL = "INTERNAL"  # for other brokers; a second wire tap can be in front of it
    PROXIED = "PROXIED"  # for clients under test; the broker advertises a port of Toxiproxy
    TAPPED = "TAPPED"  # for clients under test; the broker advertises a port of the wire tap
    DIRECT = "DIRECT"  # for observers, administration and Spark; no link fault affects it


@dataclass(frozen=True)
class Ports:
    """The host ports of one cluster: a block of 33 consecutive ports, of which `base` is the first."""

    base: int

    @property
    def toxiproxy_api(self) -> int:
        """Port of Toxiproxy's HTTP interface."""
        return self.base

    def proxied(self, broker: int) -> int:
        """Return the port on which Toxiproxy listens for clients of a broker's PROXIED listener."""
        return self.base + broker

    def tapped(self, broker: int) -> int:
        """Return the port on which the wire tap listens for clients of a broker's TAPPED listener."""
        return self.base + 3 + broker

    def tap_upstream(self, broker: int) -> int:
        """Return the port on which Toxiproxy listens for the wire tap's connections to a broker."""
        return self.base + 6 + broker

    def inner_proxy(self, broker: int) -> int:
        """Return the port of a second Toxiproxy proxy, between the first proxy and a broker.

        Only the fault that puts two proxies in a row uses it.
        """
        return self.base + 26 + broker

    def internal_tap(self, broker: int) -> int:
        """Return the port on which the wire tap between brokers listens for a broker's INTERNAL listener.

        Only a cluster that was started with this tap uses it.
        """
        return self.base + 29 + broker

    def toxiproxy(self, listener: BrokerListener, broker: int) -> int:
        """Return the port on which Toxiproxy listens for a broker's listener, which is PROXIED or TAPPED."""
        return self.proxied(broker) if listener is BrokerListener.PROXIED else self.tap_upstream(broker)

    def direct(self, broker: int) -> int:
        """Return the port on which a broker serves the DIRECT listener."""
        return self.base + 10 + broker

    def inner(self, listener: BrokerListener, broker: int) -> int:
        """Return the port on which the broker itself serves a listener, on the process back end.

        The compose back end does not use this port, because each of its containers has its own address.
        """
        if listener is BrokerListener.DIRECT:
            return self.direct(broker)
        offset = {BrokerListener.INTERNAL: 13, BrokerListener.PROXIED: 16, BrokerListener.TAPPED: 19}[
            listener
        ]
        return self.base + offset + broker

    def controller(self, node_id: int) -> int:
        """Return the port to which a controller binds on the process back end."""
        return self.base + 23 + node_id - 10

    def bootstrap(self, listener: BrokerListener) -> str:
        """Return the bootstrap servers of a listener for clients on this host."""
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
        """First three bytes of the subnet of the cluster's containers, as text such as `10.213.0`.

        Each block of ports has a different subnet.
        """
        block = (self.base - _FIRST_PORT) // _BLOCK
        return f"10.{213 + block // 250}.{block % 250}"

    @property
    def gateway(self) -> str:
        """Address of the host in the network of the cluster's containers."""
        return f"{self.subnet}.1"

    @property
    def all(self) -> range:
        """All ports of this cluster's block."""
        return range(self.base, self.base + _BLOCK)


def node_name(node_id: int) -> str:
    """Return the name of a node by its id: `kafka-1` to `kafka-3` or `controller-11` to `controller-13`."""
    return f"{'controller' if node_id in CONTROLLER_IDS else 'kafka'}-{node_id}"


def cluster_name(state: Path) -> str:
    """Return the name of the cluster of a state directory. It contains a hash of the directory's path."""
    return f"eos-{hashlib.sha256(str(state).encode()).hexdigest()[:8]}"


def preferred_ports(state: Path) -> Ports:
    """Return the block of ports that a state directory uses if all ports in it are free."""
    return Ports(_FIRST_PORT + _preferred_block(state) * _BLOCK)


def _preferred_block(state: Path) -> int:
    return int(cluster_name(state)[4:], 16) % _BLOCKS


def choose_ports(state: Path) -> Ports:
    """Return a free block of ports.

    This is the preferred block of the state directory, or else the next free block.
    """
    first = _preferred_block(state)
    for step in range(_BLOCKS):
        ports = Ports(_FIRST_PORT + (first + step) % _BLOCKS * _BLOCK)
        if not any(port_taken(port) for port in ports.all):
            return ports
    raise UsageError("no free block of ports was found", "`eos doctor` shows which processes listen")
