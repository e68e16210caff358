"""Names of the Toxiproxy proxies before the listeners of the brokers, equal on every back end."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from harness.cluster.layout import BROKER_IDS, BrokerListener

FAULTED_LISTENERS = (BrokerListener.PROXIED, BrokerListener.TAPPED)


class ClientLink(NamedTuple):
    """A link from clients to a broker: the proxy and its address."""

    proxy: str
    broker: int
    host: str
    port: int


def proxy_name(broker: int, listener: BrokerListener) -> str:
    """Return the name of the proxy before a listener of a broker, such as `proxied-1`."""
    return f"{listener.lower()}-{broker}"


def proxies_of(broker: int) -> list[str]:
    """Return both proxies of a broker; a link fault applies to both."""
    return [proxy_name(broker, listener) for listener in FAULTED_LISTENERS]


def proxy_map(
    upstream: Callable[[int, BrokerListener], str], listen: Callable[[int, BrokerListener], str]
) -> list[dict[str, object]]:
    """Return Toxiproxy's configuration of the six proxies."""
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
