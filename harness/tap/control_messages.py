"""What is said over the control channel: one JSON line asks, one JSON line answers."""

from __future__ import annotations

import msgspec

from harness.tap.counters import Stats
from harness.tap.hub import Accounts
from harness.tap.rules import Armed, Rule


class _Ask(msgspec.Struct, tag_field="do", forbid_unknown_fields=True, kw_only=True):
    """A request to the tap."""


class AskStatus(_Ask, tag="status"):
    """How it is."""


class AskAccounts(_Ask, tag="accounts"):
    """The bytes of every connection."""


class AskArm(_Ask, tag="arm"):
    """Arm a rule."""

    rule: Rule


class AskDisarm(_Ask, tag="disarm"):
    """Forget a rule; harmless if there is none of this id."""

    id: str


class AskRelease(_Ask, tag="release"):
    """Send what a rule keeps."""

    id: str


class AskLog(_Ask, tag="log"):
    """Write a frame log to this file from now on; without a path, stop."""

    path: str | None
    exchanges_per_s: int
    most_bytes: int


class AskFlush(_Ask, tag="flush"):
    """Write what waits to be logged."""


Ask = AskStatus | AskAccounts | AskArm | AskDisarm | AskRelease | AskLog | AskFlush


class Status(msgspec.Struct, kw_only=True):
    """The tap as it is now."""

    pid: int
    listens: dict[int, int]
    """broker: port"""
    upstreams: dict[int, int]
    open_connections: int
    keeps: int
    log: str | None
    rules: list[Armed]
    stats: Stats


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The answer to any request."""

    error: str | None = None
    hint: str = ""
    status: Status | None = None
    accounts: list[Accounts] | None = None
    armed: Armed | None = None
    released: int = 0
