"""Names of the Toxiproxy proxies in front of the brokers' listeners.

The names are the same on every back end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from harness.cluster.layout import BROKER_IDS, BrokerListener

FAULTED_LISTENERS = (BrokerListener.PROXIED, BrokerListener.TAPPED)


class ClientLink(NamedTuple):
    """The link from clients to a broker. It leads through a Toxiproxy proxy.

    `proxy` is the name of that proxy. `host` and `port` are the address at which it listens.
    """

    proxy: str
    broker: int
    host: str
    port: int


def proxy_name(broker: int, listener: BrokerListener) -> str:
    """Return the name of the proxy in front of a broker's listener, such as `proxied-1`."""
    return f"{listener.lower()}-{broker}"


def proxies_of(broker: int) -> list[str]:
    """Return the names of both proxies of a broker: for the listeners PROXIED and TAPPED.

    A link fault affects both.
    """
    return [proxy_name(broker, listener) for listener in FAULTED_LISTENERS]


def proxy_map(
    upstream: Callable[[int, BrokerListener], str], listen: Callable[[int, BrokerListener], str]
) -> list[dict[str, object]]:
    """Return the configuration of Toxiproxy: two proxies for each of the three brokers.

    Each proxy belongs to one listener of one broker. For a broker and a listener, the function `listen`
    returns the address at which the proxy accepts connections. The function `upstream` returns the address to
    which the proxy forwards them.
    """
    return [
        {
            "name": proxy_name(broker, listener),
            "listen": listen(broker, listener),
            "upstream": upstream(broker, listener),
            "enabled": True,
        }
        for broker in BROKER_IDS
        for listener in FAULTED_LISTENERS
    ]
