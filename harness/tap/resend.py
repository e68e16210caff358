"""Duplicates: the tap sends a copy of a request on a connection of its own, and records the answer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from harness.base.errors import describe_error
from harness.evidence.log_line import timestamps
from harness.tap.counters import count
from harness.tap.frame_lines import Connection, Frame, Side
from harness.tap.framing import Framer, Kind

if TYPE_CHECKING:
    from harness.tap.hub import Hub
    from harness.tap.relay import Exchange
    from harness.tap.rules import Armed, Hit

_LIMIT_S = 10.0
_READ_BYTES = 65536


async def send_copy(hub: Hub, exchange: Exchange, frame: bytes, armed: Armed, hit: Hit) -> None:
    """Send a copy of a request on a new connection, wait for its answer, and close the connection.

    The outcome is recorded in `hit`.
    """
    conn = hub.connection()
    origin = f"copy of {exchange.n}"
    hub.log.put(Connection(conn=conn, broker=hit.broker, client=origin, origin="tap", **timestamps()))

    def line(side: Side, copy: bytes) -> Frame:
        logged = exchange.line(side, conn, hit.broker, len(copy), timestamps())
        logged.fate, logged.rule = "copy", armed.rule.id
        return logged

    start = time.monotonic_ns()
    hub.log.put(line("request", frame), frame)
    try:
        answer = await asyncio.wait_for(_ask(hub, hit.broker, frame), _LIMIT_S)
    except (OSError, EOFError, TimeoutError) as error:
        hit.did, hit.answer = "undeliverable", describe_error(error)
        count(hub.stats.odd, "unreachable")
    else:
        hit.did = "delivered"
        hit.answer = hub.answer(exchange, answer)
        response = line("response", answer)
        response.took_ms = round((time.monotonic_ns() - start) / 1e6, 3)
        hub.log.put(response, answer)
    hit.ended = time.monotonic_ns()
    hub.touched(armed, hit)


async def _ask(hub: Hub, broker: int, frame: bytes) -> bytes:
    host, port = hub.upstreams[broker]
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(frame)
        await writer.drain()
        hub.stats.duplicate_bytes += len(frame)
        framer = Framer()
        while (piece := framer.next()) is None:
            data = await reader.read(_READ_BYTES)
            if not data:
                raise EOFError("the broker closed the connection without an answer")
            framer.push(data)
        if piece.kind is not Kind.FRAME:
            raise EOFError(f"the broker's answer is not a frame: {framer.blind}")
        return piece.data
    finally:
        writer.close()
