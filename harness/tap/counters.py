"""Counters of the tap since its start. They count everything that passes, whether it is logged or not."""

from __future__ import annotations

from collections import Counter

import msgspec

from harness.tap.frame_lines import ByteAccount


class Stats(msgspec.Struct, kw_only=True):
    """Counts of the traffic that passed the tap, and of every irregularity."""

    connections: int = 0
    blind: dict[str, int] = {}
    """Number of connections whose bytes are forwarded without being read as frames, by reason: `tls` or
    `malformed`.
    """
    requests: dict[str, int] = {}
    responses: dict[str, int] = {}
    odd: dict[str, int] = {}
    """Number of irregularities by kind, such as malformed, oversized, truncated, undecodable, unmatched,
    unanswered, unreachable or unaccounted.
    """
    unknown_api: dict[str, int] = {}
    newer_version: dict[str, int] = {}
    not_logged: dict[str, int] = {}
    log_errors: int = 0
    request_bytes: ByteAccount = msgspec.field(default_factory=ByteAccount)
    response_bytes: ByteAccount = msgspec.field(default_factory=ByteAccount)
    """Byte counts of both directions (`request_bytes` and `response_bytes`), added up over all closed
    connections.
    """
    duplicate_bytes: int = 0
    """Number of bytes of duplicate requests, which the tap sent on connections of its own."""


def count(counters: dict[str, int], name: str, by: int = 1) -> None:
    """Increase the counter `name`. A missing counter starts at 0."""
    counters[name] = counters.get(name, 0) + by


def minus(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """Return the counters that increased between two readings, each with its increase."""
    return dict(Counter(after) - Counter(before))
