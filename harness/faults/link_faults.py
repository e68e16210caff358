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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from harness.base.errors import HealError, NoBiteError
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.toxiproxy_client import Stream
from harness.faults.injection import Measured
from harness.faults.link_probe import QUICK_S, Link, round_trip_ms, silent_for
from harness.faults.linkbase import HINT, ClosedFault, ToxicFault, close_all, on_each, proxies, untouched
from harness.kafka.admin import init_producer_id_request

_MOST_PROBES = 20
_PAIRS = 3
_BASELINE = 9  # quick pairs: one that the machine was late for must not decide
_BASELINES = 4  # nor may a second that it was late for throughout


@dataclass(frozen=True)
class Jitter(ToxicFault):
    """Delay every chunk by `latency_ms` ± `jitter_ms`; nothing is lost and nothing overtakes."""

    name: ClassVar[str] = "jitter"
    kind: ClassVar[str] = "latency"
    latency_ms: int
    jitter_ms: int = 0
    stream: Stream = "downstream"

    def attributes(self) -> Mapping[str, int]:
        """Latency and jitter."""
        return {"latency": self.latency_ms, "jitter": self.jitter_ms}

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Measure how much slower than the unfaulted door each link is already."""
        super().before(cluster, names, memory)
        found = on_each(memory["links"], lambda link: self._baseline(cluster, link))
        memory["slower_ms"] = {link.proxy: round(slower, 1) for link, slower in found.items()}

    def _baseline(self, cluster: Cluster, link: Link) -> float:
        """The least of a few medians: what another fault adds is in all of them, a busy moment is not."""
        seen = [statistics.median(_slower_ms(cluster, link, _BASELINE))]
        while min(seen) > self.latency_ms / 4 and len(seen) < _BASELINES:
            seen.append(statistics.median(_slower_ms(cluster, link, _BASELINE)))
        return min(seen)

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Each link is slower by half the latency or more.

        Every round trip is compared with one over the unfaulted door at the same moment, so that a busy
        machine is not taken for a fault nor hides one; the median of up to twenty such pairs decides.
        """

        def slower(link: Link) -> float:
            wanted = memory["slower_ms"][link.proxy] + self.latency_ms / 2
            seen = _slower_ms(cluster, link)
            while statistics.median(seen) < wanted:
                if len(seen) >= _MOST_PROBES:
                    said = f"{statistics.median(seen):.1f} ms slower than DIRECT (median of {len(seen)})"
                    raise NoBiteError(f"{link.proxy} is only {said}", HINT)
                seen += _slower_ms(cluster, link)
            return statistics.median(seen)

        found = on_each(memory["links"], slower)
        measured = {link.proxy: round(value, 1) for link, value in found.items()}
        return {"slower_ms": measured, "before_ms": memory["slower_ms"]}

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """On each link that nothing else hits some round trip is quicker than the delay would let it be.

        One is enough, and a busy machine may take several tries to give it.
        """
        shortest_delay = max(self.latency_ms - self.jitter_ms, self.latency_ms / 2)
        for link in untouched(cluster, names):
            seen = _slower_ms(cluster, link)
            while min(seen) >= shortest_delay:
                if len(seen) >= _MOST_PROBES:
                    said = f"{min(seen):.1f} ms slower than DIRECT (least of {len(seen)})"
                    raise HealError(f"{link.proxy} is still {said}", HINT)
                seen += _slower_ms(cluster, link)
        return super().health(cluster, names, memory)


def _slower_ms(cluster: Cluster, link: Link, count: int = _PAIRS) -> list[float]:
    """How much slower round trips over the link are than over the broker's unfaulted door, pair by pair."""
    with link.connect() as faulted, cluster.direct(link.broker) as direct:
        return [round_trip_ms(faulted) - round_trip_ms(direct) for _ in range(count)]


@dataclass(frozen=True)
class Stall(ToxicFault):
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
        memory["open"] = [(link, link.connect()) for link in memory["links"]]
        for _, connection in memory["open"]:
            round_trip_ms(connection)

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """A request on each open connection gets no answer, and no end."""
        for _, connection in memory["open"]:
            connection.send_api_versions()
        for link, connection in memory["open"]:
            if not silent_for(connection, QUICK_S):
                raise NoBiteError(f"{link.proxy} answered within {QUICK_S} s", HINT)
        return {"silent_for_s": QUICK_S, "links": len(memory["open"])}

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """The answers that were held arrive now."""
        try:
            returned = sum(bool(connection.read_frame()) for _, connection in memory["open"])
        finally:
            close_all(memory)
        return super().health(cluster, names, memory) | {"held_answers_returned": returned}


@dataclass(frozen=True)
class Throttle(ToxicFault):
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
        for link in memory["links"]:
            rate = link.bytes_per_second(self.rate_kb_s * 500) / 1000
            if rate > 2 * self.rate_kb_s:
                raise NoBiteError(f"{link.proxy} passed {rate:.0f} kB/s, limit {self.rate_kb_s}", HINT)
            measured[link.proxy] = round(rate, 1)
        return {"kb_per_s": measured}

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """The same answers come faster than that; a busy machine may take several tries to give them."""
        for link in untouched(cluster, names):
            rates: list[float] = []
            while not rates or max(rates) <= 2 * self.rate_kb_s:
                if len(rates) >= _MOST_PROBES:
                    raise HealError(f"{link.proxy} still passes only {max(rates):.0f} kB/s", HINT)
                rates.append(link.bytes_per_second(self.rate_kb_s * 500) / 1000)
        return super().health(cluster, names, memory)


@dataclass(frozen=True)
class Slice(ToxicFault):
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
        memory["pieces"] = {link.proxy: link.reads_for_one_answer() for link in memory["links"]}

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """One answer arrives in more pieces than before."""
        measured = {link.proxy: link.reads_for_one_answer() for link in memory["links"]}
        for proxy, pieces in measured.items():
            if pieces <= memory["pieces"][proxy] + 1:
                raise NoBiteError(f"{proxy}: an answer came in {pieces} pieces", HINT)
        return {"pieces": measured, "before": memory["pieces"]}


@dataclass(frozen=True)
class LoseResponse(ToxicFault):
    """Pass requests to the broker, which executes them, and cut the connection at the answer's first byte."""

    name: ClassVar[str] = "lose_response"
    kind: ClassVar[str] = "limit_data"

    def attributes(self) -> Mapping[str, int]:
        """No byte of an answer."""
        return {"bytes": 0}

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Let each broker fetch its block of producer ids: until it has one it hands out none."""
        super().before(cluster, names, memory)
        for broker in {link.broker for link in memory["links"]}:
            wait_until(
                lambda b=broker: cluster.admin.idempotent_producer_id(b) >= 0,  # type: ignore[misc]
                10,
                f"broker {broker} to hand out producer ids",
            )

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """A request for a producer id gets no answer, and the broker hands out one more all the same."""
        executed = {}
        for link in memory["links"]:
            first = cluster.admin.idempotent_producer_id(link.broker)
            if not link.loses_answer(init_producer_id_request()):
                raise NoBiteError(f"{link.proxy} answered", HINT)
            last = cluster.admin.idempotent_producer_id(link.broker)
            if last - first < 2:
                raise NoBiteError(f"{link.proxy}: the broker did not execute the request", HINT)
            executed[link.proxy] = f"producer id {first + 1} handed out, its answer lost"
        return {"executed": executed}


@dataclass(frozen=True)
class Down(ClosedFault):
    """Cut every connection and refuse new ones."""

    name: ClassVar[str] = "down"

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """Every open connection was cut, and a new one gets no answer."""
        measured = super().bite(cluster, names, memory)
        for link in memory["links"]:
            if not link.refuses():
                raise NoBiteError(f"{link.proxy} still answers", HINT)
        return measured | {"refused": len(memory["links"])}


@dataclass(frozen=True)
class Sever(ClosedFault):
    """Cut every connection once; new ones work at once."""

    name: ClassVar[str] = "sever"

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:
        """Close the proxies and open them again."""
        super().apply(cluster, names, memory, ident)
        for proxy in proxies(cluster, names):
            cluster.toxiproxy.set_enabled(proxy, enabled=True)
