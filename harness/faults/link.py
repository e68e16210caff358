"""Faults of the links between clients and brokers, through Toxiproxy.

Every fault hits both proxies of each broker, the one of PROXIED and the one behind the wire tap, and is
measured on both. The names say what happens to bytes:

    jitter         delayed, kept, in order
    stall          held, and returned on heal
    throttle       slowed to a rate
    slice          cut into small pieces
    sever          connections cut once; new ones work
    down           connections cut and refused
    lose_response  requests reach the broker and are executed, answers are lost with the connection
"""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, HOST, node_name
from harness.cluster.proxies import FAULTED_LISTENERS, proxy_name
from harness.errors import HealError, NoBiteError
from harness.faults.injection import Measured
from harness.faults.probe import QUICK_S, Link, is_cut, round_trip_ms, silent_for
from harness.faults.undo import Step
from harness.waits import wait_until
from harness.wire.admin import producer_id_request
from harness.wire.toxiproxy import Stream

_MOST_PROBES = 20
_BASELINE_PROBES = 5
_HINT = "is the listener of this fault the one that the clients use? `eos status` shows the proxies"


def links(cluster: Cluster, names: list[str]) -> list[Link]:
    """Both links of each of these brokers."""
    ids = [broker for broker in BROKER_IDS if node_name(broker) in names]
    return [
        Link(proxy_name(broker, listener), HOST, cluster.ports.toxiproxy(listener, broker))
        for broker in ids
        for listener in FAULTED_LISTENERS
    ]


def _proxies(names: list[str]) -> list[str]:
    ids = [broker for broker in BROKER_IDS if node_name(broker) in names]
    return [proxy_name(broker, listener) for broker in ids for listener in FAULTED_LISTENERS]


class _LinkFault:
    """What all link faults share: before and after them, every link answers."""

    capability: ClassVar[Capability] = Capability.LINK
    moves_roles: ClassVar[bool] = False

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Remember how long a round trip takes on each link."""
        if not _proxies(names):
            raise NoBiteError(
                f"{', '.join(names)} has no client link", "a link fault needs a broker as target"
            )
        memory["slowest_ms"] = {
            link.proxy: max(link.round_trips_ms(_BASELINE_PROBES)) for link in links(cluster, names)
        }

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Every link answers, and the server knows of no toxic and no closed proxy."""
        toxic = [p.name for p in cluster.toxiproxy.proxies() if p.name in _proxies(names) and not p.enabled]
        if toxic:
            raise HealError(f"{', '.join(toxic)} is still closed", _HINT)
        times = [link.round_trips_ms(2)[1] for link in links(cluster, names)]
        return {"round_trip_ms": round(statistics.median(times), 2)}


class _Toxic(_LinkFault):
    """A fault that is one toxic on each proxy."""

    kind: ClassVar[str]
    stream: Stream = "downstream"

    @abstractmethod
    def attributes(self) -> Mapping[str, int]:
        """The toxic's attributes."""

    def undo_steps(self, names: list[str], ident: str) -> list[Step]:
        """Remove the toxics."""
        return [{"do": "remove_toxic", "proxy": proxy, "toxic": ident} for proxy in _proxies(names)]

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Add the toxics, and read them back."""
        for proxy in _proxies(names):
            cluster.toxiproxy.add_toxic(proxy, ident, self.kind, self.stream, self.attributes())


@dataclass(frozen=True)
class Jitter(_Toxic):
    """Delay every chunk by `latency_ms` ± `jitter_ms`; nothing is lost and nothing overtakes."""

    name: ClassVar[str] = "jitter"
    kind: ClassVar[str] = "latency"
    latency_ms: int
    jitter_ms: int = 0
    stream: Stream = "downstream"

    def attributes(self) -> Mapping[str, int]:
        """Latency and jitter."""
        return {"latency": self.latency_ms, "jitter": self.jitter_ms}

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """On each link a round trip is slower than the slowest before, by half the latency or more."""
        measured = {}
        for link in links(cluster, names):
            wanted = memory["slowest_ms"][link.proxy] + self.latency_ms / 2
            seen: list[float] = []
            with link.connect() as connection:
                while len(seen) < _MOST_PROBES and (not seen or max(seen) < wanted):
                    seen.append(round_trip_ms(connection))
            if max(seen) < wanted:
                raise NoBiteError(
                    f"{link.proxy}: {len(seen)} round trips took at most {max(seen):.1f} ms", _HINT
                )
            measured[link.proxy] = round(max(seen), 1)
        return {"round_trip_ms": measured, "before_ms": _rounded(memory["slowest_ms"])}

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """On each link some round trip is as quick as it would not be under the delay."""
        wanted = max(self.latency_ms - self.jitter_ms, self.latency_ms / 2)
        for link in links(cluster, names):
            quickest = min(link.round_trips_ms(_BASELINE_PROBES))
            if quickest >= wanted + min(memory["slowest_ms"].values()):
                raise HealError(f"{link.proxy} still takes {quickest:.1f} ms for a round trip", _HINT)
        return super().health(cluster, names, memory)


@dataclass(frozen=True)
class Stall(_Toxic):
    """Hold every byte back; what was held arrives on heal."""

    name: ClassVar[str] = "stall"
    kind: ClassVar[str] = "bandwidth"
    stream: Stream = "downstream"

    def attributes(self) -> Mapping[str, int]:
        """No bytes a second: they are held, not dropped."""
        return {"rate": 0}

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Open a connection on each link, over which an answer will be held."""
        super().before(cluster, names, memory)
        memory["open"] = [(link, link.connect()) for link in links(cluster, names)]
        for _, connection in memory["open"]:
            round_trip_ms(connection)

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """A request on each open connection gets no answer, and no end."""
        for _, connection in memory["open"]:
            connection.send_api_versions()
        for link, connection in memory["open"]:
            if not silent_for(connection, QUICK_S):
                raise NoBiteError(f"{link.proxy} answered within {QUICK_S} s", _HINT)
        return {"silent_for_s": QUICK_S, "links": len(memory["open"])}

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """The answers that were held arrive now."""
        returned = 0
        for _, connection in memory.pop("open", []):
            with connection:
                returned += bool(connection.read_frame())
        return super().health(cluster, names, memory) | {"held_answers_returned": returned}


@dataclass(frozen=True)
class Throttle(_Toxic):
    """Let only `rate_kb_s` kilobytes a second through on each connection."""

    name: ClassVar[str] = "throttle"
    kind: ClassVar[str] = "bandwidth"
    rate_kb_s: int

    def attributes(self) -> Mapping[str, int]:
        """The rate in Toxiproxy's kilobytes, which are 1,000 bytes."""
        return {"rate": self.rate_kb_s}

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Half a second's worth of answers comes no faster than twice the rate."""
        measured = {}
        for link in links(cluster, names):
            rate = link.bytes_per_second(self.rate_kb_s * 500) / 1000
            if rate > 2 * self.rate_kb_s:
                raise NoBiteError(f"{link.proxy} passed {rate:.0f} kB/s, limit {self.rate_kb_s}", _HINT)
            measured[link.proxy] = round(rate, 1)
        return {"kb_per_s": measured}

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """The same answers come faster than that."""
        rates = [link.bytes_per_second(self.rate_kb_s * 500) / 1000 for link in links(cluster, names)]
        if min(rates) <= 2 * self.rate_kb_s:
            raise HealError(f"a link still passes only {min(rates):.0f} kB/s", _HINT)
        return super().health(cluster, names, memory) | {"kb_per_s": round(min(rates))}


@dataclass(frozen=True)
class Slice(_Toxic):
    """Cut the stream into pieces of about `size` bytes with `delay_us` microseconds between them."""

    name: ClassVar[str] = "slice"
    kind: ClassVar[str] = "slicer"
    size: int = 64
    delay_us: int = 5000

    def attributes(self) -> Mapping[str, int]:
        """Size, a variation of half of it, and the delay."""
        return {"average_size": self.size, "size_variation": self.size // 2, "delay": self.delay_us}

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Remember in how many pieces an answer arrives."""
        super().before(cluster, names, memory)
        memory["pieces"] = {link.proxy: link.reads_for_one_answer() for link in links(cluster, names)}

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """One answer arrives in more pieces than before."""
        measured = {link.proxy: link.reads_for_one_answer() for link in links(cluster, names)}
        for proxy, pieces in measured.items():
            if pieces <= memory["pieces"][proxy] + 1:
                raise NoBiteError(f"{proxy}: an answer came in {pieces} pieces", _HINT)
        return {"pieces": measured, "before": memory["pieces"]}


@dataclass(frozen=True)
class LoseResponse(_Toxic):
    """Pass requests to the broker, which executes them, and cut the connection at the answer's first byte."""

    name: ClassVar[str] = "lose_response"
    kind: ClassVar[str] = "limit_data"

    def attributes(self) -> Mapping[str, int]:
        """No byte of an answer."""
        return {"bytes": 0}

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Let each broker fetch its block of producer ids: until it has one it hands out none."""
        super().before(cluster, names, memory)
        for name in names:
            broker = cluster.node(name).node_id
            wait_until(
                lambda b=broker: cluster.admin.idempotent_producer_id(b) >= 0,  # type: ignore[misc]
                10,
                f"broker {broker} to hand out producer ids",
            )

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """A request for a producer id gets no answer, and the broker hands out one more all the same."""
        executed = {}
        for link in links(cluster, names):
            broker = int(link.proxy[-1])
            first = cluster.admin.idempotent_producer_id(broker)
            if not link.loses_answer(producer_id_request()):
                raise NoBiteError(f"{link.proxy} answered", _HINT)
            last = cluster.admin.idempotent_producer_id(broker)
            if last - first < 2:
                raise NoBiteError(f"{link.proxy}: the broker did not execute the request", _HINT)
            executed[link.proxy] = f"producer id {first + 1} handed out, its answer lost"
        return {"executed": executed}


class _Closed(_LinkFault):
    """A fault that closes proxies; connections that are open before it must be cut by it."""

    def undo_steps(self, names: list[str], ident: str) -> list[Step]:  # noqa: ARG002
        """Open the proxies."""
        return [{"do": "open_proxy", "proxy": proxy} for proxy in _proxies(names)]

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Open a connection on each link, which is to be cut."""
        super().before(cluster, names, memory)
        memory["open"] = [(link, link.connect()) for link in links(cluster, names)]
        for _, connection in memory["open"]:
            round_trip_ms(connection)

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Close the proxies."""
        for proxy in _proxies(names):
            cluster.toxiproxy.set_enabled(proxy, enabled=False)

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Every open connection was cut."""
        opened = memory.pop("open")
        for link, connection in opened:
            with connection:
                if not is_cut(connection, 2.0):
                    raise NoBiteError(f"{link.proxy}: an open connection was not cut", _HINT)
        return {"connections_cut": len(opened)}


@dataclass(frozen=True)
class Down(_Closed):
    """Cut every connection and refuse new ones."""

    name: ClassVar[str] = "down"

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """Every open connection was cut, and a new one gets no answer."""
        measured = super().bite(cluster, names, memory)
        for link in links(cluster, names):
            if not link.refuses():
                raise NoBiteError(f"{link.proxy} still answers", _HINT)
        return measured | {"refused": len(links(cluster, names))}


@dataclass(frozen=True)
class Sever(_Closed):
    """Cut every connection once; new ones work at once."""

    name: ClassVar[str] = "sever"

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:
        """Close the proxies and open them again."""
        super().apply(cluster, names, memory, ident)
        for proxy in _proxies(names):
            cluster.toxiproxy.set_enabled(proxy, enabled=True)


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in values.items()}
