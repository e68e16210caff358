"""The central object of a tap. It has the tap's connections, armed rules, kept frames and duplicates."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from harness.base.addresses import Address
from harness.evidence.log_line import timestamps
from harness.tap import api_keys
from harness.tap.byte_stream import ByteStream
from harness.tap.counters import Stats, count
from harness.tap.decoded_fields import Facts
from harness.tap.frame_decoder import Decoder
from harness.tap.frame_lines import ByteAccount, Touch
from harness.tap.frame_log import FrameLog
from harness.tap.relay import Exchange, Relay
from harness.tap.resend import send_copy
from harness.tap.rules import ANY_API, Armed, Hit, Rule, RuleBook

_MOST_ACCOUNTS = 10_000


class Accounts(msgspec.Struct, kw_only=True):
    """Byte counts of one connection. For an open connection, the counts are a snapshot."""

    conn: int
    broker: int
    is_open: bool
    request: ByteAccount
    response: ByteAccount


class KeptFrame:
    """A frame, or a copy of one, that the tap keeps back until it is released or discarded."""

    def __init__(
        self, hub: Hub, armed: Armed, hit: Hit, finish: Callable[[bool], None], alive: Callable[[], bool]
    ) -> None:
        self.armed = armed
        self.hit = hit
        self.alive = alive
        self._hub = hub
        self._finish = finish
        self._timer: asyncio.TimerHandle | None = None

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        """Call a function after some seconds, unless the frame is released or discarded earlier."""
        self._timer = self._hub.loop.call_later(seconds, then)

    def release(self) -> None:
        """Forward the frame."""
        self._end("released", deliver=True)

    def discard(self) -> None:
        """Drop the frame and cut its connection. If the frame is a duplicate, only drop it."""
        self._end("discarded", deliver=False)

    def _end(self, did: str, *, deliver: bool) -> None:
        if self not in self._hub.kept:
            return
        self._hub.kept.remove(self)
        if self._timer:
            self._timer.cancel()
        self.hit.did, self.hit.ended = did, time.monotonic_ns()
        self._hub.touched(self.armed, self.hit)
        self._finish(deliver)


class Hub:
    """The state of one tap."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cluster: str, upstreams: dict[int, Address]) -> None:
        self.loop = loop
        self.stats = Stats()
        self.book = RuleBook()
        self.decoder = Decoder()
        self.log = FrameLog(loop, self.stats, self.decoder, cluster)
        self.kept: list[KeptFrame] = []
        self.relays: dict[int, Relay] = {}
        self.upstreams = upstreams
        self._ended: deque[Accounts] = deque(maxlen=_MOST_ACCOUNTS)
        self._numbers = 0
        self._connections = 0
        self._copies: set[asyncio.Task[None]] = set()

    def number(self) -> int:
        """Return the number for a new exchange."""
        self._numbers += 1
        return self._numbers

    def connection(self) -> int:
        """Return the number for a new connection, and count the connection."""
        self._connections += 1
        self.stats.connections += 1
        return self._connections

    def peek(self, exchange: Exchange, frame: bytes) -> Facts | None:
        """Decode a request before it is forwarded, because a rule may select requests by their content."""
        if api_keys.decodable(exchange.head.key, exchange.head.version) is not api_keys.Decodable.YES:
            return None
        try:
            return self.decoder.request(exchange.head.key, exchange.head.version, frame)
        except Exception:  # noqa: BLE001 - bytes that no decoder accepts pass
            count(self.stats.odd, "undecodable")
            return None

    def match(self, relay: Relay, exchange: Exchange, frame: bytes) -> Armed | None:
        """Return the rule that hits a request, or None.

        Some kept frames may be released by the answer to this request. Record these frames in the exchange.
        """
        waits = [k for k in self.kept if k.armed.rule.until == exchange.api]
        facts = self.peek(exchange, frame) if waits or self.book.needs_facts(exchange.head) else None
        exchange.triggers = [k for k in waits if _same_client(k, exchange, facts)]
        return self.book.match(relay.broker, exchange.head, facts)

    def answered(self, exchange: Exchange, frame: bytes) -> None:
        """Handle the answer to an exchange.

        If the exchange has a hit of a rule, record the answer in that hit. Then release the kept frames that
        wait for this answer.
        """
        if exchange.hit:
            exchange.hit.answer = self.answer(exchange, frame)
        for kept in exchange.triggers:
            kept.release()

    def answer(self, exchange: Exchange, frame: bytes) -> str:
        """Return the errors of a response, or `NONE` if it has no errors."""
        try:
            facts = self.decoder.response(exchange.head.key, exchange.head.version, frame)
        except Exception as error:  # noqa: BLE001 - as in `peek`
            count(self.stats.odd, "undecodable")
            return f"undecodable: {error}"
        return ", ".join(facts.refusals) or "NONE"

    def keep(self, armed: Armed, hit: Hit, relay: Relay, stream: ByteStream, exchange: Exchange) -> KeptFrame:
        """Keep back a frame of a stream until the returned object releases or discards it."""

        def finish(deliver: bool) -> None:
            if not deliver:  # drop later bytes too: a TCP stream cannot continue after a lost frame
                stream.silence()
                if stream is relay.request:
                    relay.forget(exchange)
            stream.resume(deliver=deliver)
            if not deliver:
                relay.drop_client(armed.rule.id)

        kept = KeptFrame(self, armed, hit, finish, lambda: not relay.client.ended)
        self.kept.append(kept)
        return kept

    def duplicate(self, exchange: Exchange, frame: bytes, armed: Armed, hit: Hit) -> None:
        """Send a copy of a request on a connection of the tap.

        The rule determines whether the copy is sent at once, after a delay, or when it is released.
        """

        def finish(deliver: bool) -> None:
            if deliver:
                task = self.loop.create_task(send_copy(self, exchange, frame, armed, hit))
                self._copies.add(task)
                task.add_done_callback(self._copies.discard)

        rule = armed.rule
        if rule.seconds is None and rule.until is None:
            finish(True)
            return
        kept = KeptFrame(self, armed, hit, finish, lambda: True)
        self.kept.append(kept)
        if rule.seconds is not None:
            kept.after(rule.seconds, kept.release)

    def arm(self, rule: Rule) -> None:
        """Arm a rule. It does not hit a frame whose first bytes were already forwarded."""
        self.book.arm(rule)

    def release(self, rule_id: str) -> int:
        """Forward every frame that a rule keeps back; return the number of these frames."""
        held = [k for k in self.kept if k.armed.rule.id == rule_id]
        for kept in held:
            kept.release()
        return len(held)

    def disarm(self, rule_id: str) -> Armed | None:
        """Remove a rule and return it, or None if no rule has this id.

        A held frame is dropped and its connection is cut, because the frame must not arrive in a later test.
        A delayed frame is forwarded if its client is still connected. A duplicate that is not yet sent is
        dropped.
        """
        armed = self.book.armed.pop(rule_id, None)
        for kept in [k for k in self.kept if k.armed.rule.id == rule_id]:
            if kept.armed.rule.verb == "delay" and kept.alive():
                kept.release()  # the client of the delayed frame still waits for the answer
            else:
                kept.discard()
        for relay in list(self.relays.values()):
            if armed is not None and armed.rule.api == ANY_API and relay.request.silenced:
                relay.drop_client(rule_id)  # the client of a silent connection would wait forever
            relay.request.run()
            relay.response.run()
        return armed

    def touched(self, armed: Armed, hit: Hit) -> None:
        """Write a line to the frame log about what happened to a frame that a rule hit."""
        self.log.put(
            Touch(
                rule=armed.rule.id,
                verb=armed.rule.verb,
                did=hit.did,
                conn=hit.conn,
                broker=hit.broker,
                n=hit.n,
                bytes=hit.bytes,
                **timestamps(),
            )
        )

    def ended(self, relay: Relay, request: ByteAccount, response: ByteAccount) -> None:
        """Record the byte counts of a closed connection, and log its kept frames as undeliverable."""
        self.relays.pop(relay.conn, None)
        for kept in [k for k in self.kept if k.hit.conn == relay.conn and k.armed.rule.verb != "duplicate"]:
            kept.hit.did = "undeliverable"
            self.kept.remove(kept)
            self.touched(kept.armed, kept.hit)
        self.stats.request_bytes.add(request)
        self.stats.response_bytes.add(response)
        if unaccounted := abs(request.inside) + abs(response.inside):
            count(self.stats.odd, "unaccounted", unaccounted)
        self._ended.append(
            Accounts(conn=relay.conn, broker=relay.broker, is_open=False, request=request, response=response)
        )

    def accounts(self) -> list[Accounts]:
        """Return the byte counts of the open connections and of the last 10,000 closed ones."""
        still_open = [
            Accounts(
                conn=r.conn,
                broker=r.broker,
                is_open=True,
                request=r.request.account(),
                response=r.response.account(),
            )
            for r in self.relays.values()
        ]
        return [*self._ended, *still_open]

    def close(self) -> None:
        """Close every connection and the log."""
        for relay in list(self.relays.values()):
            relay.close()
        self.log.stop("the tap ended")


def _same_client(kept: KeptFrame, exchange: Exchange, facts: Facts | None) -> bool:
    """Return whether a request comes from the client of a kept frame.

    If the rule selects a transactional id and the request contains one, compare the transactional ids.
    Otherwise, compare the client ids.
    """
    selected: Any = kept.armed.rule.transactional_id
    if selected is not None and facts is not None and facts.transactional_id is not None:
        return bool(facts.transactional_id == selected)
    return exchange.head.client_id == kept.hit.client_id
