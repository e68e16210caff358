"""The tap's middle: every connection, the armed rules, what is kept, and the copies that are sent again."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from harness.tap import api_keys
from harness.tap.byte_stream import ByteStream
from harness.tap.counters import Stats, count
from harness.tap.decoded_fields import Facts
from harness.tap.frame_decoder import Decoder
from harness.tap.frame_lines import ByteAccount, Touch
from harness.tap.frame_log import FrameLog, now
from harness.tap.relay import Exchange, Relay
from harness.tap.resend import send_copy
from harness.tap.rules import Armed, Book, Hit, Rule

_MOST_ACCOUNTS = 10_000


class Accounts(msgspec.Struct, kw_only=True):
    """One connection's bytes; of an open one what they were when it was asked for."""

    conn: int
    broker: int
    is_open: bool
    request: ByteAccount
    response: ByteAccount


class Kept:
    """A frame, or a copy of one, that waits to be sent."""

    def __init__(
        self, hub: Hub, armed: Armed, hit: Hit, deliver: Callable[[bool], None], alive: Callable[[], bool]
    ) -> None:
        self.armed = armed
        self.hit = hit
        self.alive = alive
        self._hub = hub
        self._deliver = deliver
        self._timer: asyncio.TimerHandle | None = None

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        """Do something in a while, unless it is released or discarded before."""
        self._timer = self._hub.loop.call_later(seconds, then)

    def release(self) -> None:
        """Send it now."""
        self._end("released", deliver=True)

    def discard(self) -> None:
        """Let it be lost, and the connection with it."""
        self._end("discarded", deliver=False)

    def _end(self, did: str, *, deliver: bool) -> None:
        if self not in self._hub.kept:
            return
        self._hub.kept.remove(self)
        if self._timer:
            self._timer.cancel()
        self.hit.did, self.hit.ended = did, time.monotonic_ns()
        self._hub.touched(self.armed, self.hit)
        self._deliver(deliver)


class Hub:
    """One tap."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, cluster: str, upstreams: dict[int, tuple[str, int]]
    ) -> None:
        self.loop = loop
        self.stats = Stats()
        self.book = Book()
        self.decoder = Decoder()
        self.log = FrameLog(loop, self.stats, self.decoder, cluster)
        self.kept: list[Kept] = []
        self.relays: dict[int, Relay] = {}
        self.upstreams = upstreams
        self._ended: deque[Accounts] = deque(maxlen=_MOST_ACCOUNTS)
        self._numbers = 0
        self._connections = 0
        self._copies: set[asyncio.Task[None]] = set()

    def number(self) -> int:
        """The next exchange's number."""
        self._numbers += 1
        return self._numbers

    def connection(self) -> int:
        """The next connection's number."""
        self._connections += 1
        self.stats.connections += 1
        return self._connections

    def peek(self, exchange: Exchange, frame: bytes) -> Facts | None:
        """The facts of a request before it is forwarded, for rules that must see inside."""
        if api_keys.known(exchange.head.key, exchange.head.version) is not api_keys.Known.YES:
            return None
        try:
            return self.decoder.request(exchange.head.key, exchange.head.version, frame)
        except Exception:  # noqa: BLE001  # whatever a decoder makes of strange bytes, they pass
            count(self.stats.odd, "undecodable")
            return None

    def match(self, relay: Relay, exchange: Exchange, frame: bytes) -> Armed | None:
        """The rule that hits this request, if one does."""
        waits = [k for k in self.kept if k.armed.rule.until == exchange.api]
        facts = self.peek(exchange, frame) if waits or self.book.needs_facts(exchange.head) else None
        exchange.triggers = [k for k in waits if _same_client(k, exchange, facts)]
        return self.book.match(relay.broker, exchange.head, facts)

    def answered(self, exchange: Exchange, frame: bytes) -> None:
        """An answer has passed: note it where somebody waits for it."""
        if exchange.hit:
            exchange.hit.answer = self.answer(exchange, frame)
        for kept in exchange.triggers:
            kept.release()

    def answer(self, exchange: Exchange, frame: bytes) -> str:
        """What a response says: NONE, or its errors."""
        try:
            facts = self.decoder.response(exchange.head.key, exchange.head.version, frame)
        except Exception as error:  # noqa: BLE001  # as in `peek`
            count(self.stats.odd, "undecodable")
            return f"undecodable: {error}"
        return ", ".join(facts.refusals) or "NONE"

    def keep(self, armed: Armed, hit: Hit, relay: Relay, flow: ByteStream, exchange: Exchange) -> Kept:
        """Keep a frame of a flow until it is released."""

        def deliver(wanted: bool) -> None:
            if not wanted:  # a stream cannot go on with a frame missing
                flow.silence()
                if flow is relay.request:
                    relay.forget(exchange)
            flow.go_on(deliver=wanted)
            if not wanted:
                relay.drop_client(armed.rule.id)

        kept = Kept(self, armed, hit, deliver, lambda: not relay.client.ended)
        self.kept.append(kept)
        return kept

    def duplicate(self, exchange: Exchange, frame: bytes, armed: Armed, hit: Hit) -> None:
        """Send a copy of a request on a connection of the tap's own: now, later, or when released."""

        def deliver(wanted: bool) -> None:
            if wanted:
                task = self.loop.create_task(send_copy(self, exchange, frame, armed, hit))
                self._copies.add(task)
                task.add_done_callback(self._copies.discard)

        rule = armed.rule
        if rule.seconds is None and rule.until is None:
            deliver(True)
            return
        kept = Kept(self, armed, hit, deliver, lambda: True)
        self.kept.append(kept)
        if rule.seconds is not None:
            kept.after(rule.seconds, kept.release)

    def arm(self, rule: Rule) -> None:
        """Arm a rule; frames that have begun are not touched."""
        self.book.arm(rule)

    def release(self, rule_id: str) -> int:
        """Send everything that this rule keeps; return how much that was."""
        mine = [k for k in self.kept if k.armed.rule.id == rule_id]
        for kept in mine:
            kept.release()
        return len(mine)

    def disarm(self, rule_id: str) -> Armed | None:
        """Forget a rule. What it holds is lost with its connection: it must not strike in a later test."""
        armed = self.book.armed.pop(rule_id, None)
        for kept in [k for k in self.kept if k.armed.rule.id == rule_id]:
            if kept.armed.rule.verb == "delay" and kept.alive():
                kept.release()  # its client still waits for it
            else:
                kept.discard()
        for relay in list(self.relays.values()):
            relay.request.run()
            relay.response.run()
        return armed

    def touched(self, armed: Armed, hit: Hit) -> None:
        """Log what became of a frame that a rule had hit."""
        self.log.put(
            Touch(
                rule=armed.rule.id,
                verb=armed.rule.verb,
                did=hit.did,
                conn=hit.conn,
                broker=hit.broker,
                n=hit.n,
                bytes=hit.bytes,
                **now(),
            )
        )

    def ended(self, relay: Relay, request: ByteAccount, response: ByteAccount) -> None:
        """A connection is closed: keep its account."""
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
        """Every connection's bytes, the open ones too; of closed ones the last ten thousand."""
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


def _same_client(kept: Kept, exchange: Exchange, facts: Facts | None) -> bool:
    """Whether a request comes from the client, or for the transactional id, whose frame is kept."""
    wanted: Any = kept.armed.rule.transactional_id
    if wanted is not None and facts is not None and facts.transactional_id is not None:
        return bool(facts.transactional_id == wanted)
    return exchange.head.client_id == kept.hit.client_id
