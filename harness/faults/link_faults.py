"""Faults of the links between clients and brokers, made with Toxiproxy.

A fault affects every proxy in front of the target brokers. On the harness's own cluster, each broker has two
proxies: one for clients of the listener PROXIED, and one between the wire tap and the broker. The effect of
the fault is measured on every proxy. The faults act on the bytes of a connection as follows:

    jitter         bytes are delayed; none is lost, and their order is kept
    slow_some      bytes are delayed on a share of the connections
    stall          bytes are held until heal, then delivered
    throttle       bytes pass at a limited rate
    slice          the bytes are cut into small pieces
    sever          open connections are cut once; new connections work
    down           open connections are cut, and new connections are refused
    lose_response  the broker executes the request; the connection is cut instead of carrying the answer
"""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeVar

import msgspec

from harness.base.errors import HealError, NoBiteError
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.toxiproxy_client import Stream, ToxiproxyWedgedError
from harness.faults.injection import Fault, FaultContext, Measured, Positive
from harness.faults.link_probe import QUICK_S, Link, is_cut, round_trip_ms, silent_for
from harness.faults.undo import UndoStep, undo_verb
from harness.kafka.admin import init_producer_id_request
from harness.kafka.connection import RawConnection

ANSWER_S = 2.0
"""Maximum number of seconds that a link may take to answer before the fault is injected.

If a link does not answer within this time, another fault is assumed to affect it.
"""
_BUSY = "a busy machine hides a small latency: use a larger one, 50ms or more"
_HINT = "is the listener of this fault the one that the clients use? `eos status` shows the proxies"
_MOST_PROBES = 20
# Maximum number of pairs of round trips in which a delay must show. Delays are random: with `latency` 20 ms
# and `jitter` 15 ms, the median of 21 is too small in one of 80 cases, that of 81 in one of 100,000
# (simulated).
_MOST_DELAYS = 80
_PAIRS = 3
# Number of pairs of round trips in one median. Each pair is one round trip over the link and one over the
# DIRECT listener. The median difference within the pairs is how slow the link is before the fault. If a busy
# machine delays a single pair, the median hardly changes.
_BASELINE = 9
# Maximum number of medians that are measured for a link before the fault. The lowest median is used, because
# a busy machine may delay all pairs of one median.
_BASELINES = 4
_SHARED_PROBES = 16
"""Minimum number of connections that the bite of `slow_some` measures.

If half of all connections are slow, 16 measured connections are all slow or all fast once in 32,768 times.
"""

T = TypeVar("T")
L = TypeVar("L", bound="LinkState")


def restart_toxiproxy(cluster: Cluster) -> None:
    """Restart a Toxiproxy that does not answer. After the restart, every proxy is open and has no toxic."""
    node = cluster.node("toxiproxy")
    node.kill()
    node.start()
    wait_until(cluster.toxiproxy.proxies, 15, "Toxiproxy to answer after its restart")


@undo_verb
def remove_toxic(cluster: Cluster, node: str, toxic: str) -> None:
    try:
        for link in cluster.client_links([node]):
            cluster.toxiproxy.remove_toxic(link.proxy, toxic)
    except ToxiproxyWedgedError:
        restart_toxiproxy(cluster)


@undo_verb
def open_proxies(cluster: Cluster, node: str) -> None:
    try:
        for link in cluster.client_links([node]):
            cluster.toxiproxy.set_enabled(link.proxy, enabled=True)
    except ToxiproxyWedgedError:
        restart_toxiproxy(cluster)


def links(cluster: Cluster, nodes: list[str]) -> list[Link]:
    """Return the links from clients to these nodes."""
    return [Link(*link, security=cluster.security) for link in cluster.client_links(nodes)]


def _proxies(context: FaultContext[L]) -> list[str]:
    return [link.proxy for link in context.cluster.client_links(context.nodes)]


@dataclass
class LinkState:
    """State before a link fault: the links that answered. The bite is measured on these links only."""

    links: list[Link]


@dataclass
class OpenConnections(LinkState):
    """State before a link fault: the links that answered, with one open connection for each of them."""

    connections: list[tuple[Link, RawConnection]]

    @classmethod
    def on(cls, answering: list[Link]) -> OpenConnections:
        """Open a connection on each link and send one request over it."""
        connections = [(link, link.connect()) for link in answering]
        for _, connection in connections:
            round_trip_ms(connection)
        return cls(answering, connections)

    def close(self) -> None:
        for _, connection in self.connections:
            connection.close()


@dataclass
class Baseline(LinkState):
    """State before a link fault: the links that answered, and how slow each of these links already was.

    `slower_ms` maps the name of a link's proxy to a number of milliseconds. A round trip over the link took
    this much longer than over the DIRECT listener, which no link fault affects.
    """

    slower_ms: dict[str, float]


@dataclass
class Pieces(LinkState):
    """State before a link fault: the links that answered, and how many pieces one answer had on each link.

    `pieces` maps the name of a link's proxy to this number. Each piece is one read from the socket.
    """

    pieces: dict[str, int]


class LinkFault(Fault[L]):
    """A fault of the links between clients and brokers.

    Faults may overlap. If a link does not answer before the fault, for example because its broker was killed,
    the fault is applied to it but not measured on it. If another fault still affects a link after heal, only
    the link's proxy is checked; no round trip is measured.
    """

    capability: ClassVar[Capability] = Capability.LINK

    def health(self, context: FaultContext[L]) -> Measured:
        """Check that the links of the target answer. Skip the links that another fault still affects."""
        times = [link.round_trips_ms(2)[1] for link in _untouched(context)]
        return {"links_timed": len(times)} | (
            {"round_trip_ms": round(statistics.median(times), 2)} if times else {}
        )


def _answering(context: FaultContext[L]) -> list[Link]:
    """Return the links of the target that answer before the fault. Raise NoBiteError if there are none."""
    nodes = ", ".join(context.nodes)
    there = links(context.cluster, context.nodes)
    if not there:
        raise NoBiteError(f"{nodes} has no client link", "a link fault needs a broker as target")
    answering = [link for link in there if link.answers(ANSWER_S)]
    if not answering:
        raise NoBiteError(f"no link of {nodes} answers", _HINT)
    return answering


def _untouched(context: FaultContext[L]) -> list[Link]:
    """Return the target's links that no fault affects.

    The proxy of such a link is open and has no toxic, and the broker answers.
    """
    cluster = context.cluster
    clear = {p.name for p in cluster.toxiproxy.proxies() if p.enabled and not p.toxics}
    ids = {broker for broker in cluster.broker_ids if cluster.answers(broker)}
    return [link for link in links(cluster, context.nodes) if link.proxy in clear and link.broker in ids]


def _on_each(measured: Sequence[Link], measure: Callable[[Link], T]) -> dict[str, T]:
    """Call `measure` for all links at the same time. Return a dict from proxy name to result.

    The calls run in parallel, so that a delay on all links is waited for only once.
    """
    with ThreadPoolExecutor(len(measured)) as pool:
        return dict(zip((link.proxy for link in measured), pool.map(measure, measured), strict=True))


class ToxicFault(LinkFault[L]):
    """A link fault that adds one toxic to the proxy of each link."""

    kind: ClassVar[str]
    stream: Stream = "downstream"

    @property
    def toxicity(self) -> float:
        """Share of the connections that the toxic affects, from 0 to 1."""
        return 1.0

    @abstractmethod
    def attributes(self) -> Mapping[str, int]:
        """Return the attributes of the toxic, as Toxiproxy names them."""

    def undo_steps(self, context: FaultContext[L]) -> list[UndoStep]:
        return [remove_toxic.step(node=name, toxic=context.mark) for name in context.nodes]

    def apply(self, context: FaultContext[L]) -> None:
        """Add the toxic to each proxy, and read it back."""
        for proxy in _proxies(context):
            context.cluster.toxiproxy.add_toxic(
                proxy, context.mark, self.kind, self.stream, self.attributes(), toxicity=self.toxicity
            )

    def health(self, context: FaultContext[L]) -> Measured:
        """Check that Toxiproxy has removed the toxic from every proxy."""
        left = [
            proxy.name
            for proxy in context.cluster.toxiproxy.proxies()
            if any(toxic.name == context.mark for toxic in proxy.toxics)
        ]
        if left:
            raise HealError(f"the toxic is still on {', '.join(left)}", _HINT)
        return super().health(context)


class ClosedFault(LinkFault[OpenConnections]):
    """A link fault that closes proxies. It bites if each closed proxy cuts all of its open connections."""

    def undo_steps(self, context: FaultContext[OpenConnections]) -> list[UndoStep]:
        return [open_proxies.step(node=name) for name in context.nodes]

    def before(self, context: FaultContext[OpenConnections]) -> OpenConnections:
        return OpenConnections.on(_answering(context))

    def apply(self, context: FaultContext[OpenConnections]) -> None:
        for proxy in _proxies(context):
            context.cluster.toxiproxy.set_enabled(proxy, enabled=False)

    def bite(self, context: FaultContext[OpenConnections]) -> Measured:
        """Check that the fault cut the test connections, which were opened before the injection."""
        try:
            for link, connection in context.state.connections:
                if not is_cut(connection, 2.0):
                    raise NoBiteError(f"{link.proxy}: an open connection was not cut", _HINT)
            return {"connections_cut": len(context.state.connections)}
        finally:
            context.state.close()

    def health(self, context: FaultContext[OpenConnections]) -> Measured:
        """Check that Toxiproxy reports each proxy as open again."""
        names = _proxies(context)
        if shut := [p.name for p in context.cluster.toxiproxy.proxies() if p.name in names and not p.enabled]:
            raise HealError(f"{', '.join(shut)} is still closed", _HINT)
        return super().health(context)


@dataclass(frozen=True)
class Jitter(ToxicFault[Baseline]):
    """Fault that delays every chunk of bytes by `latency_ms` ± `jitter_ms`. No byte is lost or reordered."""

    name: ClassVar[str] = "jitter"
    kind: ClassVar[str] = "latency"
    allowed_on_external: ClassVar[bool] = True
    latency_ms: Positive
    jitter_ms: int = 0
    stream: Stream = "downstream"

    def attributes(self) -> Mapping[str, int]:
        return {"latency": self.latency_ms, "jitter": self.jitter_ms}

    def before(self, context: FaultContext[Baseline]) -> Baseline:
        """Measure by how many milliseconds each link is slower than the DIRECT listener before the fault."""
        answering = _answering(context)
        slower = _on_each(answering, lambda link: self._baseline(context.cluster, link))
        return Baseline(answering, {proxy: round(ms, 1) for proxy, ms in slower.items()})

    def _baseline(self, cluster: Cluster, link: Link) -> float:
        """Return by how many milliseconds a link is slower than the DIRECT listener before the fault.

        The result is the lowest of several medians. Another fault on the link raises every median. A busy
        machine raises only some of them.
        """
        medians = [statistics.median(_slower_ms(cluster, link, _BASELINE))]
        while min(medians) > self.latency_ms / 4 and len(medians) < _BASELINES:
            medians.append(statistics.median(_slower_ms(cluster, link, _BASELINE)))
        return min(medians)

    def bite(self, context: FaultContext[Baseline]) -> Measured:
        """Check that the fault has made each link slower by at least half of `latency_ms`.

        Round trips are measured in pairs: one over the link, and directly afterwards one over the DIRECT
        listener, which no link fault affects. A busy machine slows both, so it can neither imitate a fault
        nor hide one. The median difference within the pairs is compared with the median from before the
        injection. For each link, the check gives up after about eighty pairs.
        """
        before_ms = context.state.slower_ms

        def slower(link: Link) -> float:
            wanted = before_ms[link.proxy] + self.latency_ms / 2
            measured = _slower_ms(context.cluster, link)
            while statistics.median(measured) < wanted:
                if len(measured) >= _MOST_DELAYS:
                    median = f"{statistics.median(measured):+.1f} ms (median of {len(measured)})"
                    wanted_text = f"compared with DIRECT, {wanted:.1f} ms or more is needed"
                    raise NoBiteError(f"{link.proxy}: {median} {wanted_text}", _BUSY)
                measured += _slower_ms(context.cluster, link)
            return round(statistics.median(measured), 1)

        return {"slower_ms": _on_each(context.state.links, slower), "before_ms": before_ms}

    def health(self, context: FaultContext[Baseline]) -> Measured:
        """Check that the links are no longer delayed. Skip the links that another fault still affects.

        Each round trip over a link is compared with one over the DIRECT listener. The link passes as soon as
        the difference is once smaller than the shortest delay of the fault. On a busy machine this may take
        several attempts.
        """
        shortest_delay = max(self.latency_ms - self.jitter_ms, self.latency_ms / 2)
        for link in _untouched(context):
            measured = _slower_ms(context.cluster, link)
            while min(measured) >= shortest_delay:
                if len(measured) >= _MOST_PROBES:
                    least = f"{min(measured):.1f} ms slower than DIRECT (least of {len(measured)})"
                    raise HealError(f"{link.proxy} is still {least}", _HINT)
                measured += _slower_ms(context.cluster, link)
        return super().health(context)


def _slower_ms(cluster: Cluster, link: Link, count: int = _PAIRS) -> list[float]:
    """Measure `count` pairs of round trips, one over the link and one over the DIRECT listener.

    Return, for each pair, by how many milliseconds the round trip over the link took longer.
    """
    with link.connect() as faulted, cluster.direct(link.broker) as direct:
        return [round_trip_ms(faulted) - round_trip_ms(direct) for _ in range(count)]


@dataclass(frozen=True)
class SlowShare(ToxicFault[LinkState]):
    """Fault that delays the bytes from clients by `latency_ms` on a share of the connections.

    A random draw decides for each connection whether it is slow. If a client retries on a fast connection,
    its retry overtakes the original request on a slow connection.
    """

    name: ClassVar[str] = "slow_some"
    kind: ClassVar[str] = "latency"
    latency_ms: Positive
    share: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
    stream: Stream = "upstream"

    def attributes(self) -> Mapping[str, int]:
        return {"latency": self.latency_ms, "jitter": 0}

    @property
    def toxicity(self) -> float:
        return self.share

    def before(self, context: FaultContext[LinkState]) -> LinkState:
        return LinkState(_answering(context))

    def bite(self, context: FaultContext[LinkState]) -> Measured:
        """Check that some of the measured connections are slow and some are not."""
        probed = [
            link
            for link in context.state.links
            for _ in range(_SHARED_PROBES // len(context.state.links) + 1)
        ]
        with ThreadPoolExecutor(len(probed)) as pool:
            took_ms = list(pool.map(lambda link: link.round_trips_ms(1, timeout=30.0)[0], probed))
        slow = sum(ms >= self.latency_ms for ms in took_ms)
        if not 0 < slow < len(took_ms):
            raise NoBiteError(f"{slow} of {len(took_ms)} connections are slow", _HINT)
        return {"slow": slow, "of": len(took_ms)}


@dataclass(frozen=True)
class Stall(ToxicFault[OpenConnections]):
    """Fault that holds every byte in the direction `stream`. The held bytes are delivered on heal."""

    name: ClassVar[str] = "stall"
    kind: ClassVar[str] = "bandwidth"
    allowed_on_external: ClassVar[bool] = True
    stream: Stream = "downstream"

    def attributes(self) -> Mapping[str, int]:
        return {"rate": 0}

    def before(self, context: FaultContext[OpenConnections]) -> OpenConnections:
        """Open a connection on each link. The fault will later hold an answer on this connection."""
        return OpenConnections.on(_answering(context))

    def bite(self, context: FaultContext[OpenConnections]) -> Measured:
        """Send a request over each open connection.

        Check that no answer arrives and that the connection stays open.
        """
        connections = context.state.connections
        for _, connection in connections:
            connection.send_api_versions()
        for link, connection in connections:
            if not silent_for(connection, QUICK_S):
                raise NoBiteError(f"{link.proxy} answered within {QUICK_S} s", _HINT)
        return {"silent_for_s": QUICK_S, "links": len(connections)}

    def health(self, context: FaultContext[OpenConnections]) -> Measured:
        """Read the held answers, which heal has released. Then check that the links answer new requests."""
        try:
            returned = sum(bool(connection.read_frame()) for _, connection in context.state.connections)
        finally:
            context.state.close()
        return super().health(context) | {"held_answers_returned": returned}


@dataclass(frozen=True)
class Throttle(ToxicFault[LinkState]):
    """Fault that limits each connection to `rate_kb_s`."""

    name: ClassVar[str] = "throttle"
    kind: ClassVar[str] = "bandwidth"
    allowed_on_external: ClassVar[bool] = True
    rate_kb_s: Positive

    def attributes(self) -> Mapping[str, int]:
        """Return the rate for Toxiproxy, in kilobytes of 1,000 bytes per second."""
        return {"rate": self.rate_kb_s}

    def before(self, context: FaultContext[LinkState]) -> LinkState:
        return LinkState(_answering(context))

    def bite(self, context: FaultContext[LinkState]) -> Measured:
        """Check that each link passes answers at no more than twice the configured rate, `rate_kb_s`.

        The answers together have the size that passes in half a second at the configured rate.
        """
        measured = {}
        for link in context.state.links:
            rate = link.bytes_per_second(self.rate_kb_s * 500) / 1000
            if rate > 2 * self.rate_kb_s:
                raise NoBiteError(f"{link.proxy} passed {rate:.0f} kB/s, limit {self.rate_kb_s}", _HINT)
            measured[link.proxy] = round(rate, 1)
        return {"kb_per_s": measured}

    def health(self, context: FaultContext[LinkState]) -> Measured:
        """Check that each link again passes answers at more than twice the configured rate, `rate_kb_s`.

        The answers have the same size as in the measurement of the bite. On a busy machine this check may
        take several attempts. Links that another fault still affects are skipped.
        """
        for link in _untouched(context):
            rates: list[float] = []
            while not rates or max(rates) <= 2 * self.rate_kb_s:
                if len(rates) >= _MOST_PROBES:
                    raise HealError(f"{link.proxy} still passes only {max(rates):.0f} kB/s", _HINT)
                rates.append(link.bytes_per_second(self.rate_kb_s * 500) / 1000)
        return super().health(context)


@dataclass(frozen=True)
class Slice(ToxicFault[Pieces]):
    """Fault that cuts the stream into pieces of about `size` bytes, sent `delay_us` apart."""

    name: ClassVar[str] = "slice"
    kind: ClassVar[str] = "slicer"
    size: Positive = 64
    delay_us: int = 5000

    def attributes(self) -> Mapping[str, int]:
        return {"average_size": self.size, "size_variation": self.size // 2, "delay": self.delay_us}

    def before(self, context: FaultContext[Pieces]) -> Pieces:
        answering = _answering(context)
        return Pieces(answering, {link.proxy: link.reads_for_one_answer() for link in answering})

    def bite(self, context: FaultContext[Pieces]) -> Measured:
        """Check on each link that one answer arrives in at least two more pieces than before the fault.

        On a busy machine, one read may return several pieces. So the check may take several answers.
        """
        before, measured = context.state.pieces, {}
        for link in context.state.links:
            pieces = [link.reads_for_one_answer()]
            while max(pieces) <= before[link.proxy] + 1:
                if len(pieces) >= _MOST_PROBES:
                    most = f"each of {len(pieces)} answers came in {max(pieces)} pieces or fewer"
                    raise NoBiteError(f"{link.proxy}: {most}", _HINT)
                pieces.append(link.reads_for_one_answer())
            measured[link.proxy] = max(pieces)
        return {"pieces": measured, "before": before}


@dataclass(frozen=True)
class LoseResponse(ToxicFault[LinkState]):
    """Fault that cuts the connection when the broker's answer begins.

    The broker has then executed the request.
    """

    name: ClassVar[str] = "lose_response"
    kind: ClassVar[str] = "limit_data"

    def attributes(self) -> Mapping[str, int]:
        return {"bytes": 0}

    def before(self, context: FaultContext[LinkState]) -> LinkState:
        """Wait until each broker can assign producer ids, because `bite` requests them from the broker.

        A broker must first receive a block of ids from the controller.
        """
        answering = _answering(context)
        for broker in {link.broker for link in answering}:
            wait_until(
                lambda b=broker: context.cluster.admin.idempotent_producer_id(b) >= 0,  # type: ignore[misc]
                10,
                f"broker {broker} to hand out producer ids",
            )
        return LinkState(answering)

    def bite(self, context: FaultContext[LinkState]) -> Measured:
        """Check that the broker executes a request for a producer id, and that no answer to it arrives.

        Producer ids of a broker are consecutive. The next id that the broker returns over the DIRECT listener
        therefore shows that it executed the request.
        """
        lost = {}
        for link in context.state.links:
            first = context.cluster.admin.idempotent_producer_id(link.broker)
            if not link.loses_answer(init_producer_id_request()):
                raise NoBiteError(f"{link.proxy} answered", _HINT)
            last = context.cluster.admin.idempotent_producer_id(link.broker)
            if last - first < 2:
                raise NoBiteError(f"{link.proxy}: the broker did not execute the request", _HINT)
            lost[link.proxy] = f"probe InitProducerId executed (id {first + 1}), its answer lost"
        return {"answer": lost}


@dataclass(frozen=True)
class Down(ClosedFault):
    """Fault that cuts every open connection and refuses new ones until heal."""

    name: ClassVar[str] = "down"
    allowed_on_external: ClassVar[bool] = True

    def bite(self, context: FaultContext[OpenConnections]) -> Measured:
        """Check that every open connection was cut, and that new connections get no answer."""
        measured = super().bite(context)
        for link in context.state.links:
            if not link.refuses():
                raise NoBiteError(f"{link.proxy} still answers", _HINT)
        return measured | {"refused": len(context.state.links)}


@dataclass(frozen=True)
class Sever(ClosedFault):
    """Fault that cuts every open connection once. New connections work at once."""

    name: ClassVar[str] = "sever"
    allowed_on_external: ClassVar[bool] = True

    def apply(self, context: FaultContext[OpenConnections]) -> None:
        """Close the proxies, which cuts their connections, and open them again."""
        super().apply(context)
        for proxy in _proxies(context):
            context.cluster.toxiproxy.set_enabled(proxy, enabled=True)
