"""Fault with two Toxiproxy proxies in series. It delivers requests after their client's connection was cut.

    client → outer proxy (the one that clients connect to) → inner proxy → broker

A latency toxic on the inner proxy delays a request. Then the upstream of the outer proxy is changed to the
broker. This cuts the connections of the clients, which reconnect at once on the direct path. A request that
is delayed in the inner proxy still arrives, after the clients' new requests. One proxy alone cannot do this,
because it drops the bytes of a connection that has ended.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.base.errors import HealError, NoBiteError
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.cluster.proxy_names import proxy_name
from harness.cluster.toxiproxy_client import ToxiproxyWedgedError
from harness.faults.injection import Fault, FaultContext, Injection, Measured
from harness.faults.link_faults import links, restart_toxiproxy
from harness.faults.link_probe import Link
from harness.faults.undo import UndoStep, undo_verb


def inner_name(proxy: str) -> str:
    """Return the name of the inner proxy behind an outer proxy."""
    return f"{proxy}-inner"


@undo_verb
def straighten(cluster: Cluster, proxy: str) -> None:
    """Make an outer proxy connect to the broker directly again, and remove its inner proxy."""
    inner = next((p for p in cluster.toxiproxy.proxies() if p.name == inner_name(proxy)), None)
    if inner is None:
        return
    try:
        for toxic in inner.toxics:
            cluster.toxiproxy.remove_toxic(inner.name, toxic.name)
        if cluster.toxiproxy.proxy(proxy).upstream != inner.upstream:
            cluster.toxiproxy.set_upstream(proxy, inner.upstream)
        cluster.toxiproxy.remove_proxy(inner.name)
    except ToxiproxyWedgedError:
        restart_toxiproxy(cluster)


@dataclass(frozen=True)
class TwoProxies(Fault[list[Link]]):
    """Fault that inserts an inner proxy between each broker and the proxy that clients connect to.

    This fault adds no delay. A walkthrough adds latency to the inner proxies, so that a request on another
    connection overtakes the delayed one.
    """

    name: ClassVar[str] = "two_proxies"
    capability: ClassVar[Capability] = Capability.LINK

    def undo_steps(self, context: FaultContext[list[Link]]) -> list[UndoStep]:
        return [straighten.step(proxy=link.proxy) for link in context.state]

    def before(self, context: FaultContext[list[Link]]) -> list[Link]:
        """Return the links from clients to the target brokers through the proxies of the PROXIED listener.

        Before it returns, the method waits until each link answers. There are no inner proxies yet.
        """
        outer = _proxied_links(context.cluster, context.nodes)
        if not outer:
            nodes = ", ".join(context.nodes)
            raise NoBiteError(f"{nodes} has no client link", "two proxies need a broker as target")
        _round_trips_ms(outer)
        return outer

    def apply(self, context: FaultContext[list[Link]]) -> None:
        """Insert an inner proxy behind the proxy of each link.

        This cuts the open connections of the link once.
        """
        toxiproxy = context.cluster.toxiproxy
        for link in context.state:
            address = context.cluster.second_proxy_address(link.broker)
            toxiproxy.add_proxy(inner_name(link.proxy), address, toxiproxy.proxy(link.proxy).upstream)
            toxiproxy.set_upstream(link.proxy, address)

    def bite(self, context: FaultContext[list[Link]]) -> Measured:
        """Check that each link uses its inner proxy.

        A link must answer while its inner proxy is open. It must not answer while its inner proxy is closed.
        """
        toxiproxy = context.cluster.toxiproxy
        names = {proxy.name for proxy in toxiproxy.proxies()}
        for link in context.state:
            if inner_name(link.proxy) not in names:
                raise NoBiteError(f"{link.proxy} has no second proxy", "see `eos status`")
            toxiproxy.set_enabled(inner_name(link.proxy), enabled=False)
            if not link.refuses():
                raise NoBiteError(f"{link.proxy} answers past its second proxy", "see `eos status`")
            toxiproxy.set_enabled(inner_name(link.proxy), enabled=True)
        return {"through_two_ms": _round_trips_ms(context.state)}

    def health(self, context: FaultContext[list[Link]]) -> Measured:
        """Check that the inner proxies were removed, and that each link answers without them."""
        names = {proxy.name for proxy in context.cluster.toxiproxy.proxies()}
        left = names & {inner_name(link.proxy) for link in context.state}
        if left:
            raise HealError(f"{', '.join(sorted(left))} still exists", "`eos heal` removes it")
        return {"straight_ms": _round_trips_ms(context.state)}


class ProxyChain(Injection):
    """Two proxies in series in front of every broker, as a context manager.

    Inside the `with` block, first call `slow` to delay requests. Then call `shortcut` to let new requests
    overtake the delayed ones.
    """

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        super().__init__(cluster, TwoProxies(), "all", **options)

    def slow(self, latency_ms: int, brokers: Collection[int] | None = None) -> None:
        """Delay every later request to these brokers (None: to all) in the inner proxies by `latency_ms`."""
        for link in self.context.state:
            if brokers is not None and link.broker not in brokers:
                continue
            self.cluster.toxiproxy.add_toxic(
                inner_name(link.proxy), "late", "latency", "upstream", {"latency": latency_ms, "jitter": 0}
            )

    def shortcut(self) -> None:
        """Make the outer proxies connect to the brokers directly.

        This cuts the clients' connections. The clients reconnect on the direct path; delayed requests still
        arrive.
        """
        for link in self.context.state:
            inner = self.cluster.toxiproxy.proxy(inner_name(link.proxy))
            self.cluster.toxiproxy.set_upstream(link.proxy, inner.upstream)


def _proxied_links(cluster: Cluster, nodes: list[str]) -> list[Link]:
    return [
        link
        for link in links(cluster, nodes)
        if link.proxy == proxy_name(link.broker, BrokerListener.PROXIED)
    ]


def _round_trips_ms(measured: list[Link]) -> dict[str, float]:
    """Wait until each link answers. Return a dict from proxy name to round-trip time in milliseconds.

    The time is that of the second request on a new connection.
    """
    return {
        link.proxy: round(
            wait_until(lambda each=link: each.round_trips_ms(2), 10, f"{link.proxy} to answer")[1],  # type: ignore[misc]
            2,
        )
        for link in measured
    }
