"""Actions of the tap on a frame that a rule hits: one function for requests, one for responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.evidence.log_line import timestamps
from harness.tap.frame_lines import Touch
from harness.tap.rules import HOLD_LIMIT_S, Armed, Hit, add_hit

if TYPE_CHECKING:
    from harness.tap.byte_stream import ByteStream
    from harness.tap.relay import Exchange, Relay


def on_request(relay: Relay, exchange: Exchange, frame: bytes, armed: Armed) -> str | None:
    """Apply a rule to a request that it hit.

    Return the value of `fate` for the request's line in the frame log. It is None if the request passed.
    """
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
    """Apply a rule to the answer to a request that the rule hit.

    Return the value of `fate` for the answer's line in the frame log. It is None if the answer passed.
    """
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
        # Count all further bytes of the connection as dropped by the rule. Close both sockets with FIN, not
        # with a TCP reset: after a reset, the client's kernel could discard the answer that was just
        # forwarded.
        relay.dropped_by = rule.id
        relay.request.silence()
        relay.upstream.finish()
        relay.client.finish()
        relay.linger()
    else:
        hit = _touch(relay, exchange, exchange.frame, armed, "copied")
        relay.hub.duplicate(exchange, exchange.frame, armed, hit)
    return None


def _keep(relay: Relay, stream: ByteStream, exchange: Exchange, frame: bytes, armed: Armed) -> str:
    rule = armed.rule
    did = "held" if rule.verb == "hold" else "delayed"
    hit = _touch(relay, exchange, frame, armed, did)
    if stream is relay.request:
        exchange.hit = hit
    stream.keep(frame)
    kept = relay.hub.keep(armed, hit, relay, stream, exchange)
    if rule.verb == "delay":
        assert rule.seconds is not None
        kept.after(rule.seconds, kept.release)
    else:
        kept.after(rule.seconds or HOLD_LIMIT_S, kept.discard)
    if rule.drop_client:
        relay.drop_client(rule.id)
    return did


def _after_loss(relay: Relay, stream: ByteStream, armed: Armed) -> None:
    """Cut the client's connection or drop all later bytes of the stream, as the rule determines.

    A TCP stream cannot continue after the loss of a frame.
    """
    if armed.rule.then == "silence":
        stream.silence()
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
        **timestamps(),
    )
    relay.hub.log.put(touch)
    return add_hit(
        armed,
        conn=relay.conn,
        broker=relay.broker,
        n=exchange.n,
        client_id=exchange.head.client_id,
        size=len(frame),
        did=did,
    )
