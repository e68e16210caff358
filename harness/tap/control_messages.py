"""Messages of the tap's control channel. Each request and each answer is one line of JSON."""

from __future__ import annotations

import msgspec

from harness.tap.counters import Stats
from harness.tap.hub import Accounts
from harness.tap.rules import Armed, Rule


class _Ask(msgspec.Struct, tag_field="do", forbid_unknown_fields=True, kw_only=True):
    """Base class of the requests to the tap."""


class AskStatus(_Ask, tag="status"):
    """Request for the state of the tap."""


class AskAccounts(_Ask, tag="accounts"):
    """Request for the byte counts of every connection."""


class AskArm(_Ask, tag="arm"):
    """Request to arm a rule."""

    rule: Rule


class AskDisarm(_Ask, tag="disarm"):
    """Request to remove a rule. It has no effect if no rule has this id."""

    id: str


class AskRelease(_Ask, tag="release"):
    """Request to forward the frames that a rule keeps back."""

    id: str


class AskLog(_Ask, tag="log"):
    """Request to start a frame log in the file `path`. Without a path, it is a request to stop the log."""

    path: str | None
    exchanges_per_s: int
    most_bytes: int


class AskFlush(_Ask, tag="flush"):
    """Request to write the queued lines of the frame log to its file."""


Ask = AskStatus | AskAccounts | AskArm | AskDisarm | AskRelease | AskLog | AskFlush


class TapStatus(msgspec.Struct, kw_only=True):
    """The state of the tap."""

    pid: int
    listens: dict[int, int]
    """Port on which the tap listens for clients, by broker id."""
    upstreams: dict[int, int]
    open_connections: int
    keeps: int
    log: str | None
    rules: list[Armed]
    stats: Stats


class TapAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The answer to any request to the tap. The type of the request determines which fields are set."""

    error: str | None = None
    hint: str = ""
    status: TapStatus | None = None
    accounts: list[Accounts] | None = None
    armed: Armed | None = None
    released: int = 0
