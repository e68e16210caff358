"""What a rule does to the frame that it hits: one function for each side, one branch for each verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.tap.frame_lines import Touch
from harness.tap.frame_log import now
from harness.tap.rules import HOLD_LIMIT_S, Armed, Hit, hit_of

if TYPE_CHECKING:
    from harness.tap.byte_stream import ByteStream
    from harness.tap.relay import Exchange, Relay


def on_request(relay: Relay, exchange: Exchange, frame: bytes, armed: Armed) -> str | None:
    """Act on a request that a rule has hit; return what became of it at once."""
    rule = armed.rule
    if rule.verb == "lose_request":
        _touch(relay, exchange, frame, armed, "lost")
        relay.request.take(frame)
        relay.forget(exchange)
        _after_loss(relay, relay.request, armed)
        return "lost"
    if rule.verb in ("hold", "delay") and rule.side == "request":
        return _keep(relay, relay.request, exchange, frame, armed)
    relay.request.forward(frame)
    if rule.verb == "cut_after" and rule.side == "request":
        _touch(relay, exchange, frame, armed, "cut")
        relay.drop_client(rule.id)
    elif rule.verb == "duplicate" and rule.side == "request":
        relay.hub.duplicate(exchange, frame, armed, _touch(relay, exchange, frame, armed, "copied"))
    else:
        exchange.armed = armed
        if rule.verb == "duplicate":
            exchange.frame = frame
    return None


def on_response(relay: Relay, exchange: Exchange, frame: bytes, armed: Armed) -> str | None:
    """Act on the answer to a request that a rule has hit."""
    rule = armed.rule
    if rule.verb == "lose_response":
        _touch(relay, exchange, frame, armed, "lost")
        relay.response.take(frame)
        _after_loss(relay, relay.response, armed)
        return "lost"
    if rule.verb in ("hold", "delay"):
        return _keep(relay, relay.response, exchange, frame, armed)
    relay.response.forward(frame)
    if rule.verb == "cut_after":
        _touch(relay, exchange, frame, armed, "cut")
        # Closed by an orderly end behind the answer: a reset could overtake it in the client's kernel.
        relay.dropped_by = rule.id
        relay.request.silence()
        relay.upstream.finish()
        relay.client.finish()
        relay.linger()
    else:
        hit = _touch(relay, exchange, exchange.frame, armed, "copied")
        relay.hub.duplicate(exchange, exchange.frame, armed, hit)
    return None


def _keep(relay: Relay, flow: ByteStream, exchange: Exchange, frame: bytes, armed: Armed) -> str:
    rule = armed.rule
    did = "held" if rule.verb == "hold" else "delayed"
    hit = _touch(relay, exchange, frame, armed, did)
    if flow is relay.request:
        exchange.hit = hit
    flow.keep(frame)
    kept = relay.hub.keep(armed, hit, relay, flow, exchange)
    if rule.verb == "delay":
        assert rule.seconds is not None
        kept.after(rule.seconds, kept.release)
    else:
        kept.after(rule.seconds or HOLD_LIMIT_S, kept.discard)
    if rule.drop_client:
        relay.drop_client(rule.id)
    return did


def _after_loss(relay: Relay, flow: ByteStream, armed: Armed) -> None:
    """A stream cannot go on with a frame missing: it ends, or nothing more comes."""
    if armed.rule.then == "silence":
        flow.silence()
    else:
        relay.drop_client(armed.rule.id)


def _touch(relay: Relay, exchange: Exchange, frame: bytes, armed: Armed, did: str) -> Hit:
    touch = Touch(
        rule=armed.rule.id,
        verb=armed.rule.verb,
        did=did,
        conn=relay.conn,
        broker=relay.broker,
        n=exchange.n,
        bytes=len(frame),
        detail=exchange.api,
        **now(),
    )
    relay.hub.log.put(touch)
    return hit_of(
        armed,
        conn=relay.conn,
        broker=relay.broker,
        n=exchange.n,
        client_id=exchange.head.client_id,
        size=len(frame),
        did=did,
    )
