"""Two proxies in series: requests are still on their way after the client that sent them was cut off.

    client → outer proxy (the one that clients connect to) → inner proxy → broker

Latency of the inner proxy keeps a request on its way. Pointing the outer proxy past the inner one cuts the
clients, which reconnect at once on the straight way. What is inside the inner proxy still arrives, later than
what the clients send now. One proxy cannot do this: it drops what it holds of a connection that has ended.
"""

from __future__ import annotations

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
    """Return the name of the second proxy behind a proxy."""
    return f"{proxy}-inner"


@undo_verb
def straighten(cluster: Cluster, proxy: str) -> None:
    """Point a proxy to the upstream of its second proxy, and remove the second proxy."""
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
    """Lead the PROXIED link of each broker through a second proxy; `ProxyChain` slows that proxy down."""

    name: ClassVar[str] = "two_proxies"
    capability: ClassVar[Capability] = Capability.LINK

    def undo_steps(self, context: FaultContext[list[Link]]) -> list[UndoStep]:
        return [straighten.step(proxy=link.proxy) for link in context.state]

    def before(self, context: FaultContext[list[Link]]) -> list[Link]:
        """Wait until the links answer on the straight way; return them."""
        outer = _proxied_links(context.cluster, context.nodes)
        if not outer:
            nodes = ", ".join(context.nodes)
            raise NoBiteError(f"{nodes} has no client link", "two proxies need a broker as target")
        _round_trips_ms(outer)
        return outer

    def apply(self, context: FaultContext[list[Link]]) -> None:
        """Insert the second proxies; this cuts the clients of each link once."""
        toxiproxy = context.cluster.toxiproxy
        for link in context.state:
            address = context.cluster.second_proxy_address(link.broker)
            toxiproxy.add_proxy(inner_name(link.proxy), address, toxiproxy.proxy(link.proxy).upstream)
            toxiproxy.set_upstream(link.proxy, address)

    def bite(self, context: FaultContext[list[Link]]) -> Measured:
        """Check that a link answers with its second proxy open, and does not with it closed."""
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
        """Check that the second proxies were removed, and that the links answer."""
        names = {proxy.name for proxy in context.cluster.toxiproxy.proxies()}
        left = names & {inner_name(link.proxy) for link in context.state}
        if left:
            raise HealError(f"{', '.join(sorted(left))} still exists", "`eos heal` removes it")
        return {"straight_ms": _round_trips_ms(context.state)}


class ProxyChain(Injection):
    """Two proxies in series before every broker, for `with`: `slow`, then `shortcut`."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        super().__init__(cluster, TwoProxies(), "all", **options)

    def slow(self, latency_ms: int) -> None:
        """Delay every request from now on."""
        for link in self.context.state:
            self.cluster.toxiproxy.add_toxic(
                inner_name(link.proxy), "late", "latency", "upstream", {"latency": latency_ms, "jitter": 0}
            )

    def shortcut(self) -> None:
        """Cut the clients and let them reconnect on the straight way; requests on their way still arrive."""
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
    """Wait until each link answers; return its second round trip."""
    return {
        link.proxy: round(
            wait_until(lambda each=link: each.round_trips_ms(2), 10, f"{link.proxy} to answer")[1],  # type: ignore[misc]
            2,
        )
        for link in measured
    }
