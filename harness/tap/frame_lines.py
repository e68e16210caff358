"""The lines of a frame log: what passed the tap, and what the tap did to it (docs/wire-tap.md).

One JSON object a line; `mono` is the host's monotonic clock in nanoseconds, the same as the history's.
"""

from __future__ import annotations

import json
from typing import Final, Literal

import msgspec

from harness.tap.decoded_fields import Facts

FORMAT: Final = 1

Side = Literal["request", "response"]


class ByteAccount(msgspec.Struct, kw_only=True):
    """The bytes of one direction: received = sent + taken + undelivered, once the connection is closed."""

    received: int = 0
    sent: int = 0
    taken: int = 0
    """By faults: lost on purpose, or behind a cut that a fault made."""
    undelivered: int = 0
    """Read from one side when the other had gone by itself."""

    @property
    def inside(self) -> int:
        """The bytes that the tap still has; zero after the end."""
        return self.received - self.sent - self.taken - self.undelivered

    def add(self, other: ByteAccount) -> None:
        """Add another account to this one."""
        self.received += other.received
        self.sent += other.sent
        self.taken += other.taken
        self.undelivered += other.undelivered


class _Clocked(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What every line has: the host's monotonic clock and the wall clock, in nanoseconds."""

    mono: int
    wall: int


class FrameLogOpened(_Clocked, tag="open"):
    """First line: which tap wrote it, by which clock, and how much it logs."""

    format: int
    cluster: str
    host: str
    pid: int
    clock: str
    exchanges_per_s: int
    most_bytes: int


class Connection(_Clocked, tag="connection"):
    """A connection was opened: by a client, or by the tap to send a duplicate."""

    conn: int
    broker: int
    client: str
    origin: Literal["client", "tap"] = "client"


class Frame(_Clocked, tag="frame"):
    """One whole frame, at the time when its last byte had reached the tap."""

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
    """A response: since its request had reached the tap."""
    fate: str | None = None
    """What a fault did to it at once: lost, held, delayed, silenced; nothing if it passed."""
    rule: str | None = None
    facts: Facts | None = None
    undecoded: str | None = None
    """Why there are no facts."""


class Note(_Clocked, tag="note"):
    """Something that is not a frame, or not one that can be read."""

    conn: int
    broker: int
    what: str
    detail: str


class Touch(_Clocked, tag="touch"):
    """What a fault did to a frame or connection, or the end of what it did."""

    rule: str
    verb: str
    did: str
    conn: int
    broker: int
    n: int
    bytes: int = 0
    detail: str = ""


class Sampled(_Clocked, tag="sampled"):
    """Exchanges beyond the limit of the log: by api, how many were forwarded and not logged since `since`."""

    since: int
    exchanges: dict[str, int]


class ConnectionClosed(_Clocked, tag="closed"):
    """A connection ended, and every byte of it is accounted for."""

    conn: int
    broker: int
    request: ByteAccount
    response: ByteAccount


class FrameLogClosed(_Clocked, tag="close"):
    """Last line: the log was closed in order."""

    reason: str


Line = FrameLogOpened | Connection | Frame | Note | Touch | Sampled | ConnectionClosed | FrameLogClosed


def schema_text() -> str:
    """Return the JSON schema of a frame log's line, as it is published in harness/schemas."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One line of a frame log, format {FORMAT}",
        **msgspec.json.schema(Line),
    }
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"
