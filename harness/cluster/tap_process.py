"""The processes of a cluster's wire taps: their folders and command lines.

A cluster has up to two taps, which run the same program. The tap of the listener TAPPED is between clients
and brokers, and starts at its first use. The tap of the listener INTERNAL is between the brokers. It is
optional, and starts with the cluster, because the brokers depend on it.

Both run on the host. On the compose back end, brokers are containers and reach the tap at the address that
the host has in their network. No port of this tap is on another address of the host.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from harness.base.errors import RefusedError
from harness.cluster.layout import BROKER_IDS, HOST, BrokerListener, Ports
from harness.cluster.network_links import BROKER_PORT, node_address
from harness.cluster.state_directory import ClusterRecord, State

TAPS: Final = (BrokerListener.TAPPED, BrokerListener.INTERNAL)
"""The listeners in front of which a tap can be."""
_FOLDERS: Final = {BrokerListener.TAPPED: "tap", BrokerListener.INTERNAL: "tap-internal"}


def tap_folder(state: State, listener: BrokerListener) -> Path:
    """Return the folder of a tap.

    Removing a cluster ends every process whose command line contains the nodes' folder. The folder of a tap
    is inside the nodes' folder and is part of the tap's command line, so the tap ends too.
    """
    return state.nodes / _FOLDERS[listener]


def tap_command(state: State, record: ClusterRecord, listener: BrokerListener) -> list[str]:
    """Return the command that runs a tap of a cluster."""
    ports = Ports(record.port_base)
    if listener is BrokerListener.INTERNAL:
        ways = {b: (internal_tap_address(record, b), _inner_address(record, b)) for b in BROKER_IDS}
    else:
        ways = {b: (f"{HOST}:{ports.tapped(b)}", f"{HOST}:{ports.tap_upstream(b)}") for b in BROKER_IDS}
    listeners = [f"{broker}={listens}={upstream}" for broker, (listens, upstream) in ways.items()]
    folder = str(tap_folder(state, listener))
    return [sys.executable, "-m", "harness.tap.server", folder, record.name, *listeners]


def internal_tap_address(record: ClusterRecord, broker: int) -> str:
    """Return the address at which the tap between brokers listens for a broker."""
    ports = Ports(record.port_base)
    host = HOST if record.backend == "process" else ports.gateway
    return f"{host}:{ports.internal_tap(broker)}"


def _inner_address(record: ClusterRecord, broker: int) -> str:
    """Return the address at which a broker itself serves the listener INTERNAL."""
    ports = Ports(record.port_base)
    if record.backend == "process":
        return f"{HOST}:{ports.inner(BrokerListener.INTERNAL, broker)}"
    return f"{node_address(ports.subnet, broker)}:{BROKER_PORT}"


def no_internal_tap(state: State) -> RefusedError:
    """Return the error for a cluster whose brokers reach each other without a tap."""
    return RefusedError(
        f"the cluster of {state.path} has no tap between its brokers",
        "run `eos down`, then `eos up --internal-tap`; or use another state directory",
    )
