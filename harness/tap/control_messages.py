"""Messages of the control channel: a request is one JSON line, and so is its answer."""

from __future__ import annotations

import msgspec

from harness.tap.counters import Stats
from harness.tap.hub import Accounts
from harness.tap.rules import Armed, Rule


class _Ask(msgspec.Struct, tag_field="do", forbid_unknown_fields=True, kw_only=True):
    """Base of the requests to the tap."""


class AskStatus(_Ask, tag="status"):
    """Ask for the state of the tap."""


class AskAccounts(_Ask, tag="accounts"):
    """Ask for the byte accounts of every connection."""


class AskArm(_Ask, tag="arm"):
    """Arm a rule."""

    rule: Rule


class AskDisarm(_Ask, tag="disarm"):
    """Remove a rule; harmless if no rule has this id."""

    id: str


class AskRelease(_Ask, tag="release"):
    """Forward the frames that a rule keeps."""

    id: str


class AskLog(_Ask, tag="log"):
    """Start a frame log in this file; without a path, stop the log."""

    path: str | None
    exchanges_per_s: int
    most_bytes: int


class AskFlush(_Ask, tag="flush"):
    """Write the queue of the frame log."""


Ask = AskStatus | AskAccounts | AskArm | AskDisarm | AskRelease | AskLog | AskFlush


class Status(msgspec.Struct, kw_only=True):
    """The state of the tap."""

    pid: int
    listens: dict[int, int]
    """Port of the tap by broker."""
    upstreams: dict[int, int]
    open_connections: int
    keeps: int
    log: str | None
    rules: list[Armed]
    stats: Stats


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The answer to any request; the fields depend on the request."""

    error: str | None = None
    hint: str = ""
    status: Status | None = None
    accounts: list[Accounts] | None = None
    armed: Armed | None = None
    released: int = 0
