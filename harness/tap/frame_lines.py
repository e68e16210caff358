"""The lines of a frame log: frames that passed the tap, and what the tap did to them (docs/wire-tap.md)."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from harness.evidence import log_line
from harness.evidence.log_line import LogLine
from harness.tap.decoded_fields import Facts

FORMAT: Final = 1

Side = Literal["request", "response"]


class ByteAccount(msgspec.Struct, kw_only=True):
    """Byte counts of one direction of a connection.

    Once the connection is closed, received = sent + taken + undelivered.
    """

    received: int = 0
    sent: int = 0
    taken: int = 0
    """Number of bytes that were dropped because of a fault, including those that could not be delivered
    after a fault had cut the connection.
    """
    undelivered: int = 0
    """Number of bytes that could not be forwarded because the receiving side had closed the connection. No
    fault had cut the connection.
    """

    @property
    def inside(self) -> int:
        """Number of bytes that are still in the tap. It is zero once the connection is closed."""
        return self.received - self.sent - self.taken - self.undelivered

    def add(self, other: ByteAccount) -> None:
        self.received += other.received
        self.sent += other.sent
        self.taken += other.taken
        self.undelivered += other.undelivered


class FrameLogOpened(LogLine, tag="open"):
    """First line of a frame log: the tap that wrote the log, its clock, and the limits of the log."""

    format: int
    cluster: str
    host: str
    pid: int
    clock: str
    exchanges_per_s: int
    most_bytes: int


class Connection(LogLine, tag="connection"):
    """Opening of a connection: by a client, or by the tap to send a duplicate."""

    conn: int
    broker: int
    client: str
    origin: Literal["client", "tap"] = "client"


class Frame(LogLine, tag="frame"):
    """One complete frame. The time of the line is that of the frame's last byte."""

    n: int
    conn: int
    broker: int
    side: Side
    key: int
    api: str
    version: int
    correlation: int
    bytes: int
    client_id: str = ""
    took_ms: float | None = None
    """For a response: milliseconds from the request to the response, measured at the tap."""
    fate: str | None = None
    """Immediate effect of a fault on the frame. None if the frame passed.

    `lost`: the frame was dropped. `held` and `delayed`: the tap keeps the frame back. `cut`: the frame is an
    answer to a client whose connection a fault had cut. `copy`: the frame is a duplicate that the tap sent,
    or the answer to that duplicate.
    """
    rule: str | None = None
    facts: Facts | None = None
    undecoded: str | None = None
    """Reason why the frame could not be decoded. Such a frame has no `facts`."""


class Note(LogLine, tag="note"):
    """Line about bytes that are not a frame, or about an event that concerns no frame."""

    conn: int
    broker: int
    what: str
    detail: str


class Touch(LogLine, tag="touch"):
    """Action of a rule on a frame (such as held), or the later outcome of that action (such as released)."""

    rule: str
    verb: str
    did: str
    conn: int
    broker: int
    n: int
    bytes: int = 0
    detail: str = ""


class Sampled(LogLine, tag="sampled"):
    """Number of exchanges, per api, that the log omitted because of its limits since the time `since`.

    An exchange is a request and its answer. The time is that of the monotonic clock.
    """

    since: int
    exchanges: dict[str, int]


class ConnectionClosed(LogLine, tag="closed"):
    """The end of a connection, with the counts of all of its bytes."""

    conn: int
    broker: int
    request: ByteAccount
    response: ByteAccount


class FrameLogClosed(LogLine, tag="close"):
    """Last line of a log that was closed normally."""

    reason: str


Line = FrameLogOpened | Connection | Frame | Note | Touch | Sampled | ConnectionClosed | FrameLogClosed


def schema_text() -> str:
    """Return the JSON schema that describes each line of a frame log."""
    return log_line.schema_text(f"One line of a frame log, format {FORMAT}", Line)
