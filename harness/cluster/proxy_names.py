"""Which Toxiproxy proxy stands before which listener of which broker: the same names on each back end."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from harness.cluster.layout import BROKER_IDS, BrokerListener

FAULTED_LISTENERS = (BrokerListener.PROXIED, BrokerListener.TAPPED)


class ClientLink(NamedTuple):
    """One way of clients to a broker: the proxy, and where it listens."""

    proxy: str
    broker: int
    host: str
    port: int


def proxy_name(broker: int, listener: BrokerListener) -> str:
    """The proxy before this listener of this broker, such as `proxied-1`."""
    return f"{listener.lower()}-{broker}"


def proxies_of(broker: int) -> list[str]:
    """Both proxies of a broker: a link fault hits them together."""
    return [proxy_name(broker, listener) for listener in FAULTED_LISTENERS]


def proxy_map(
    upstream: Callable[[int, BrokerListener], str], listen: Callable[[int, BrokerListener], str]
) -> list[dict[str, object]]:
    """Toxiproxy's configuration for the six proxies."""
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
