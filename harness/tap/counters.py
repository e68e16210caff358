"""What the tap has counted since it started; nothing that passes goes uncounted, logged or not."""

from __future__ import annotations

from collections import Counter

import msgspec

from harness.tap.frame_lines import ByteAccount


class Stats(msgspec.Struct, kw_only=True):
    """Counts of everything that passed, and of everything that was odd about it."""

    connections: int = 0
    blind: dict[str, int] = {}
    """Connections whose bytes pass unread, by reason: `tls`, or what could not be a frame."""
    requests: dict[str, int] = {}
    responses: dict[str, int] = {}
    odd: dict[str, int] = {}
    """malformed, oversized, truncated, undecodable, unmatched, unanswered, unreachable, unaccounted."""
    unknown_api: dict[str, int] = {}
    newer_version: dict[str, int] = {}
    not_logged: dict[str, int] = {}
    log_errors: int = 0
    request_bytes: ByteAccount = msgspec.field(default_factory=ByteAccount)
    response_bytes: ByteAccount = msgspec.field(default_factory=ByteAccount)
    """Of closed connections."""
    duplicate_bytes: int = 0
    """Sent by the tap on connections of its own."""


def count(where: dict[str, int], what: str, by: int = 1) -> None:
    """Add to one of the counters of the statistics."""
    where[what] = where.get(what, 0) + by


def minus(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """What a counter gained between two readings."""
    return dict(Counter(after) - Counter(before))
