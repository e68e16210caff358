"""What the faults of links share: both links of a broker, a toxic or a closed proxy on each, their health."""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, TypeVar

from harness.base.errors import HealError, NoBiteError
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.toxiproxy_client import Stream
from harness.faults.injection import Measured
from harness.faults.link_probe import Link, is_cut, round_trip_ms
from harness.faults.undo import UndoStep

T = TypeVar("T")
ANSWER_S = 2.0  # a link without an answer for so long is one that something else has hit
HINT = "is the listener of this fault the one that the clients use? `eos status` shows the proxies"


def links(cluster: Cluster, names: list[str]) -> list[Link]:
    """The links of each of these brokers."""
    return [Link(*link, security=cluster.security) for link in cluster.client_links(names)]


def proxies(cluster: Cluster, names: list[str]) -> list[str]:
    """The names of the proxies of each of these brokers."""
    return [link.proxy for link in cluster.client_links(names)]


class LinkFault:
    """What all link faults share: which links are measured, before, under and after the fault.

    Faults may overlap: a link that gives no answer before (its broker is killed, say) is hit and not
    measured, and one that something else still hits afterwards is read back and not timed.
    """

    capability: ClassVar[Capability] = Capability.LINK
    moves_roles: ClassVar[bool] = False

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Remember which links answer: on them the bite is measured."""
        if not cluster.client_links(names):
            raise NoBiteError(
                f"{', '.join(names)} has no client link", "a link fault needs a broker as target"
            )
        memory["links"] = [link for link in links(cluster, names) if link.answers(ANSWER_S)]
        if not memory["links"]:
            raise NoBiteError(f"no link of {', '.join(names)} answers", HINT)

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Every link that nothing else hits answers."""
        times = [link.round_trips_ms(2)[1] for link in untouched(cluster, names)]
        return {"links_timed": len(times)} | (
            {"round_trip_ms": round(statistics.median(times), 2)} if times else {}
        )


def untouched(cluster: Cluster, names: list[str]) -> list[Link]:
    """The links of these brokers whose proxy is open and without toxics, and whose broker answers."""
    clear = {p.name for p in cluster.toxiproxy.proxies() if p.enabled and not p.toxics}
    ids = {broker for broker in cluster.broker_ids if cluster.answers(broker)}
    return [link for link in links(cluster, names) if link.proxy in clear and link.broker in ids]


def on_each(found: Sequence[Link], measure: Callable[[Link], T]) -> dict[Link, T]:
    """Measure the links side by side: a delay is waited for once, not once a link."""
    with ThreadPoolExecutor(len(found)) as pool:
        return dict(zip(found, pool.map(measure, found), strict=True))


def close_all(memory: Measured) -> None:
    """Close the connections that were opened to be watched."""
    for _, connection in memory.pop("open", []):
        connection.close()


class ToxicFault(LinkFault):
    """A fault that is one toxic on each proxy."""

    kind: ClassVar[str]
    stream: Stream = "downstream"

    @property
    def toxicity(self) -> float:
        """The share of the connections that it acts on."""
        return 1.0

    @abstractmethod
    def attributes(self) -> Mapping[str, int]:
        """The toxic's attributes."""

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:
        """Remove the toxics."""
        return [{"do": "remove_toxic", "node": name, "toxic": ident} for name in names]

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:
        """Add the toxics, and read them back."""
        for proxy in proxies(cluster, names):
            cluster.toxiproxy.add_toxic(
                proxy, ident, self.kind, self.stream, self.attributes(), toxicity=self.toxicity
            )
        memory["toxic"] = ident

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """The server knows of no such toxic any more."""
        left = [
            p.name
            for p in cluster.toxiproxy.proxies()
            if any(toxic.name == memory.get("toxic") for toxic in p.toxics)
        ]
        if left:
            raise HealError(f"the toxic is still on {', '.join(left)}", HINT)
        return super().health(cluster, names, memory)


class ClosedFault(LinkFault):
    """A fault that closes proxies; connections that are open before it must be cut by it."""

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:  # noqa: ARG002
        """Open the proxies."""
        return [{"do": "open_proxies", "node": name} for name in names]

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Open a connection on each link, which is to be cut."""
        super().before(cluster, names, memory)
        memory["open"] = [(link, link.connect()) for link in memory["links"]]
        for _, connection in memory["open"]:
            round_trip_ms(connection)

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Close the proxies."""
        for proxy in proxies(cluster, names):
            cluster.toxiproxy.set_enabled(proxy, enabled=False)

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Every open connection was cut."""
        try:
            for link, connection in memory["open"]:
                if not is_cut(connection, 2.0):
                    raise NoBiteError(f"{link.proxy}: an open connection was not cut", HINT)
            return {"connections_cut": len(memory["open"])}
        finally:
            close_all(memory)

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """The server says that each proxy is open."""
        mine = proxies(cluster, names)
        if shut := [p.name for p in cluster.toxiproxy.proxies() if p.name in mine and not p.enabled]:
            raise HealError(f"{', '.join(shut)} is still closed", HINT)
        return super().health(cluster, names, memory)
