"""One client connection through the tap: its two streams, its unanswered requests, and its byte counts."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.evidence.log_line import Timestamps, timestamps
from harness.tap import actions, api_keys
from harness.tap.byte_stream import ByteStream
from harness.tap.counters import count
from harness.tap.frame_lines import Connection, ConnectionClosed, Frame, Note, Side
from harness.tap.framing import Head, Kind, MalformedError, Piece, correlation_of, request_head
from harness.tap.nonblocking_socket import NonblockingSocket
from harness.tap.rules import Armed, Hit

if TYPE_CHECKING:
    from harness.tap.hub import Hub, KeptFrame

_DIAL_LIMIT_S = 5.0
LINGER_S = 10.0
_MOST_ASKED = 100_000


@dataclass(slots=True, eq=False)
class Exchange:
    """A request, with the state that the tap needs when the answer arrives."""

    n: int
    head: Head
    api: str
    mono: int
    logged: bool = False
    armed: Armed | None = None  # the rule that will act on the answer
    hit: Hit | None = None  # the hit of a rule on the request; the answer is recorded in it
    frame: bytes = b""  # the bytes of the request, if its answer triggers a duplicate of it
    triggers: list[KeptFrame] = field(default_factory=list)

    def line(self, side: Side, conn: int, broker: int, size: int, clocks: Timestamps) -> Frame:
        """Return the line of the frame log for the request or, if `side` is `response`, for its answer."""
        return Frame(
            n=self.n,
            conn=conn,
            broker=broker,
            side=side,
            key=self.head.key,
            api=self.api,
            version=self.head.version,
            correlation=self.head.correlation,
            bytes=size,
            client_id=self.head.client_id,
            **clocks,
        )


class Relay:
    """Relay of both directions between one client and one broker."""

    def __init__(
        self, hub: Hub, conn: int, broker: int, client: socket.socket, upstream: socket.socket
    ) -> None:
        self.hub = hub
        self.conn = conn
        self.broker = broker
        self.client = NonblockingSocket(hub.loop, client)
        self.upstream = NonblockingSocket(hub.loop, upstream)
        self.request = ByteStream("request", self.client, self.upstream, self)
        self.response = ByteStream("response", self.upstream, self.client, self)
        self.dropped_by: str | None = None
        self._asked: deque[Exchange] = deque(maxlen=_MOST_ASKED)
        self._linger: asyncio.TimerHandle | None = None
        self._closed = False
        host, port = client.getpeername()[:2]
        hub.log.put(Connection(conn=conn, broker=broker, client=f"{host}:{port}", **timestamps()))

    def start(self) -> None:
        self.client.set_reading(on=True)
        self.upstream.set_reading(on=True)

    def must_look_first(self) -> bool:
        """Return True while any rule is armed, because a rule acts only on complete frames."""
        return bool(self.hub.book)

    def piece(self, stream: ByteStream, piece: Piece, sent: int) -> None:
        """Forward a piece, unless it is a frame on which a rule acts."""
        if piece.kind is not Kind.FRAME:
            stream.forward(piece.data[sent:])
            self._note_odd_piece(stream, piece)
        elif stream.side == "request":
            self._request(piece.data, sent)
        else:
            self._response(piece.data, sent)

    def ended(self, stream: ByteStream) -> None:
        """Forward the bytes of an incomplete last frame, then the end of the stream.

        If a fault has silenced the stream or closed the client's connection, drop these bytes instead.
        """
        rest = stream.rest()
        if stream.silenced or (self.dropped_by and stream is self.request):
            stream.take(rest.unsent)
        else:
            stream.forward(rest.unsent)
            if rest.frame:
                self.note("truncated", f"a {stream.side} ended after {rest.frame} bytes of a frame")
        if not (stream is self.request and self.dropped_by and self._asked):
            stream.target.finish()
        if self.request.over and self.response.over:
            self.close()
        else:
            self.linger()

    def drop_client(self, rule_id: str) -> None:
        """Close the client's connection because of a rule.

        Forwarded requests still reach the broker, but the answers to them are dropped.
        """
        if self.client.closed:
            return
        self.dropped_by = rule_id
        self.client.close()
        if not self.request.keeps:
            self.request.silence()
            self.linger()
        self.request.run()

    def linger(self) -> None:
        """Close the connection after LINGER_S, even if the peers keep it open."""
        if self._linger is None and not self._closed:
            self._linger = self.hub.loop.call_later(LINGER_S, self.close)

    def close(self) -> None:
        """Close both sockets, and log the byte counts."""
        if self._closed:
            return
        self._closed = True
        if self._linger:
            self._linger.cancel()
        by_fault = self.dropped_by is not None
        left = {
            stream.side: stream.discard_rest(by_fault=by_fault) for stream in (self.request, self.response)
        }
        self.client.close()
        self.upstream.close()
        if unanswered := sum(e.head.key != 0 for e in self._asked):
            count(self.hub.stats.odd, "unanswered", unanswered)
        accounts = {}
        for stream in (self.request, self.response):
            account = stream.account()
            account.undelivered += left[stream.side]
            if by_fault:  # a fault cut the client off: count its undelivered bytes as taken by the fault
                account.taken, account.undelivered = account.taken + account.undelivered, 0
            accounts[stream.side] = account
        self.hub.log.put(
            ConnectionClosed(
                conn=self.conn,
                broker=self.broker,
                request=accounts["request"],
                response=accounts["response"],
                **timestamps(),
            )
        )
        self.hub.ended(self, accounts["request"], accounts["response"])

    def note(self, what: str, detail: str) -> None:
        """Count and log an irregularity."""
        count(self.hub.stats.odd, what)
        self.hub.log.put(Note(conn=self.conn, broker=self.broker, what=what, detail=detail, **timestamps()))

    def forget(self, exchange: Exchange) -> None:
        """Stop waiting for the answer to a request."""
        if exchange in self._asked:
            self._asked.remove(exchange)

    def _note_odd_piece(self, stream: ByteStream, piece: Piece) -> None:
        if piece.kind is Kind.OVERSIZED:
            self.note("oversized", f"a {stream.side} beyond {len(piece.data)} bytes passed unread")
        elif piece.kind is Kind.BLIND and (why := stream.framer.blind):
            other = self.response if stream is self.request else self.request
            if not other.framer.blind:  # log the note once per connection, not once per direction
                count(self.hub.stats.blind, why if why == "tls" else "malformed")
                if why != "tls":
                    count(self.hub.stats.odd, "malformed")
                self.hub.log.put(
                    Note(
                        conn=self.conn,
                        broker=self.broker,
                        what="blind",
                        detail=f"{stream.side}: {why}",
                        **timestamps(),
                    )
                )
                other.framer.go_blind(why)

    def _request(self, frame: bytes, sent: int) -> None:
        hub, clocks = self.hub, timestamps()
        try:
            head = request_head(frame)
        except MalformedError as error:
            self.request.forward(frame[sent:])
            self.note("malformed", str(error))
            return
        api = api_keys.name_of(head.key)
        exchange = Exchange(hub.number(), head, api, clocks["mono"])
        count(hub.stats.requests, api)
        decodable = api_keys.decodable(head.key, head.version)
        if decodable is not api_keys.Decodable.YES:
            count(getattr(hub.stats, decodable), f"{head.key}:{head.version}")
        self._asked.append(exchange)
        armed = hub.match(self, exchange, frame) if hub.book and not sent else None
        exchange.logged = hub.log.wants(api, clocks["mono"]) or armed is not None
        if armed is None:
            self.request.forward(frame[sent:])
            fate = None
        else:
            fate = actions.on_request(self, exchange, frame, armed)
        if exchange.logged:
            line = exchange.line("request", self.conn, self.broker, len(frame), clocks)
            self._log(line, frame, fate, armed)

    def _response(self, frame: bytes, sent: int) -> None:
        hub, clocks = self.hub, timestamps()
        try:
            exchange = self._answered(correlation_of(frame))
        except MalformedError as error:
            self.response.forward(frame[sent:])
            self.note("malformed", str(error))
            return
        if exchange is None:
            self.response.forward(frame[sent:])
            self.note("unmatched", f"a response of {len(frame)} bytes to no request of this connection")
            return
        count(hub.stats.responses, exchange.api)
        armed = exchange.armed
        if armed is None or sent or armed.rule.id not in hub.book.armed:
            armed = None
            self.response.forward(frame[sent:])
            fate = "cut" if self.dropped_by else None
        else:
            fate = actions.on_response(self, exchange, frame, armed)
        if exchange.logged:
            line = exchange.line("response", self.conn, self.broker, len(frame), clocks)
            line.took_ms = round((clocks["mono"] - exchange.mono) / 1e6, 3)
            self._log(line, frame, fate, armed)
        hub.answered(exchange, frame)
        if self.dropped_by and self.request.over and not self._asked:
            self.upstream.finish()  # not before the last answer, as the broker could skip a pending request

    def _answered(self, correlation: int) -> Exchange | None:
        """Return the exchange to which an answer belongs, or None.

        A broker answers in the order of the requests. It sends no answer to a Produce request with acks=0.
        """
        if self._asked and self._asked[0].head.correlation == correlation:
            return self._asked.popleft()
        if not any(e.head.correlation == correlation for e in self._asked):
            return None
        while (exchange := self._asked.popleft()).head.correlation != correlation:
            if exchange.head.key != 0:
                count(self.hub.stats.odd, "unanswered")
        return exchange

    def _log(self, line: Frame, frame: bytes, fate: str | None, armed: Armed | None) -> None:
        line.fate, line.rule = fate, armed.rule.id if armed else None
        decodable = api_keys.decodable(line.key, line.version)
        if decodable is not api_keys.Decodable.YES:
            line.undecoded, frame = str(decodable), b""
        self.hub.log.put(line, frame)


async def dial(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Connect to a broker within the time limit."""
    sock = socket.socket()
    sock.setblocking(False)
    try:
        await asyncio.wait_for(loop.sock_connect(sock, (host, port)), _DIAL_LIMIT_S)
    except BaseException:
        sock.close()
        raise
    return sock
