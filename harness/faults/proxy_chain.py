"""Two proxies in series: what a client has sent is still on its way when the client has long been cut off.

    client → outer proxy (the one that clients know) → inner proxy → broker

Latency of the inner proxy keeps a request under way. Putting the outer one past it cuts the clients, who come
back at once on the straight way; what is inside the inner proxy still arrives, later than what they send now.
One proxy cannot do this: it forgets what it holds of a connection that is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from harness.base.errors import HealError, NoBiteError
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, HOST, BrokerListener, node_name
from harness.cluster.proxy_names import proxy_name
from harness.faults.injection import Injection, Measured
from harness.faults.link_probe import Link
from harness.faults.undo import UndoStep, inner_name


@dataclass(frozen=True)
class TwoProxies:
    """Lead the PROXIED links of brokers through a second proxy each; `Series` makes it slow."""

    name: ClassVar[str] = "two_proxies"
    capability: ClassVar[Capability] = Capability.LINK
    moves_roles: ClassVar[bool] = False

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:  # noqa: ARG002
        """The straight way again, and no second proxy."""
        return [{"do": "straighten", "proxy": proxy} for proxy in _outer(names)]

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:  # noqa: ARG002
        """The links answer, on the straight way."""
        if not _outer(names):
            raise NoBiteError(f"{', '.join(names)} has no client link", "two proxies need a broker as target")
        _answering(cluster, names)

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Put the second proxy between; this cuts the clients of the link once."""
        for broker, outer in _brokers(names):
            upstream = cluster.toxiproxy.proxy(outer).upstream
            # The address is the one that Toxiproxy itself knows: in containers it is not this host's.
            address = f"127.0.0.1:{cluster.ports.inner_proxy(broker)}"
            cluster.toxiproxy.add_proxy(inner_name(outer), address, upstream)
            cluster.toxiproxy.set_upstream(outer, address)

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """With the second proxy closed nothing answers; open, everything does."""
        there = {proxy.name for proxy in cluster.toxiproxy.proxies()}
        for broker, outer in _brokers(names):
            if inner_name(outer) not in there:
                raise NoBiteError(f"{outer} has no second proxy", "see `eos status`")
            cluster.toxiproxy.set_enabled(inner_name(outer), enabled=False)
            if not _link(cluster, broker).refuses():
                raise NoBiteError(f"{outer} answers past its second proxy", "see `eos status`")
            cluster.toxiproxy.set_enabled(inner_name(outer), enabled=True)
        return {"through_two_ms": _answering(cluster, names)}

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """The second proxies are gone, and the links answer."""
        left = {proxy.name for proxy in cluster.toxiproxy.proxies()} & set(map(inner_name, _outer(names)))
        if left:
            raise HealError(f"{', '.join(sorted(left))} is still there", "`eos heal` removes it")
        return {"straight_ms": _answering(cluster, names)}


class ProxyChain(Injection):
    """Two proxies in series before every broker, for `with`: `slow`, then `shortcut`."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        super().__init__(cluster, TwoProxies(), "all", **options)

    def slow(self, latency_ms: int) -> None:
        """From now on every request is under way for so long."""
        for _, outer in _brokers(self.names):
            self.cluster.toxiproxy.add_toxic(
                inner_name(outer), "late", "latency", "upstream", {"latency": latency_ms, "jitter": 0}
            )

    def shortcut(self) -> None:
        """Cut the clients and let them come back on the straight way; what is under way stays so."""
        for _, outer in _brokers(self.names):
            inner = self.cluster.toxiproxy.proxy(inner_name(outer))
            self.cluster.toxiproxy.set_upstream(outer, inner.upstream)


def _brokers(names: list[str]) -> list[tuple[int, str]]:
    return [(b, proxy_name(b, BrokerListener.PROXIED)) for b in BROKER_IDS if node_name(b) in names]


def _outer(names: list[str]) -> list[str]:
    return [outer for _, outer in _brokers(names)]


def _link(cluster: Cluster, broker: int) -> Link:
    return Link(proxy_name(broker, BrokerListener.PROXIED), broker, HOST, cluster.ports.proxied(broker))


def _answering(cluster: Cluster, names: list[str]) -> dict[str, float]:
    """How long each link takes to answer, once it does."""

    def timed(broker: int) -> list[float]:
        return _link(cluster, broker).round_trips_ms(2)

    return {
        outer: round(wait_until(lambda b=broker: timed(b), 10, f"{outer} to answer")[1], 2)  # type: ignore[misc]
        for broker, outer in _brokers(names)
    }
