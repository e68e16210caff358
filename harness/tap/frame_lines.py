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
    """Bytes of one direction; received = sent + taken + undelivered once the connection is closed."""

    received: int = 0
    sent: int = 0
    taken: int = 0
    """Bytes that a fault dropped, or that followed a cut made by a fault."""
    undelivered: int = 0
    """Bytes that could not be forwarded because the receiving side had closed the connection by itself."""

    @property
    def inside(self) -> int:
        """Bytes that are still in the tap; zero when the connection is closed."""
        return self.received - self.sent - self.taken - self.undelivered

    def add(self, other: ByteAccount) -> None:
        self.received += other.received
        self.sent += other.sent
        self.taken += other.taken
        self.undelivered += other.undelivered


class FrameLogOpened(LogLine, tag="open"):
    """First line: the tap that wrote the log, its clock, and its limits."""

    format: int
    cluster: str
    host: str
    pid: int
    clock: str
    exchanges_per_s: int
    most_bytes: int


class Connection(LogLine, tag="connection"):
    """A connection that a client opened, or that the tap opened to send a duplicate."""

    conn: int
    broker: int
    client: str
    origin: Literal["client", "tap"] = "client"


class Frame(LogLine, tag="frame"):
    """One complete frame; the time is that of its last byte."""

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
    """For a response: milliseconds since its request reached the tap."""
    fate: str | None = None
    """Immediate effect of a fault: lost, held, delayed, cut, or copy for a duplicate; None if the frame
    passed.
    """
    rule: str | None = None
    facts: Facts | None = None
    undecoded: str | None = None
    """Reason why there are no facts."""


class Note(LogLine, tag="note"):
    """Bytes that are not a frame, or an event that concerns no frame."""

    conn: int
    broker: int
    what: str
    detail: str


class Touch(LogLine, tag="touch"):
    """An action of a fault on a frame or connection, or the end of that action."""

    rule: str
    verb: str
    did: str
    conn: int
    broker: int
    n: int
    bytes: int = 0
    detail: str = ""


class Sampled(LogLine, tag="sampled"):
    """Exchanges per api that were forwarded but not logged since `since`, because of the log's limits."""

    since: int
    exchanges: dict[str, int]


class ConnectionClosed(LogLine, tag="closed"):
    """The end of a connection; the accounts cover all of its bytes."""

    conn: int
    broker: int
    request: ByteAccount
    response: ByteAccount


class FrameLogClosed(LogLine, tag="close"):
    """Last line of a log that was closed normally."""

    reason: str


Line = FrameLogOpened | Connection | Frame | Note | Touch | Sampled | ConnectionClosed | FrameLogClosed


def schema_text() -> str:
    """Return the JSON schema of a line of a frame log."""
    return log_line.schema_text(f"One line of a frame log, format {FORMAT}", Line)
