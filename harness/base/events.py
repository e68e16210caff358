"""What a run tells whoever listens: the console, the recorder, and what is plugged in later.

A run knows none of its listeners. Every event has the seconds since the run began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from harness.base.secrets import redact_bytes


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Something that happened in a run."""

    at: float = 0.0


class Started(Event, frozen=True, kw_only=True, tag="started"):
    """The run began: first of all, with everything that was drawn or found."""

    scenario: str
    run: str
    seed: int
    directory: str
    environment: dict[str, Any]
    mono: int = 0
    """The monotonic clock of the histories at second zero, in nanoseconds."""


class PhaseEvent(Event, frozen=True, kw_only=True, tag="phase"):
    """A phase began."""

    name: str
    detail: str = ""


class Injected(Event, frozen=True, kw_only=True, tag="injected"):
    """A fault was injected and bit."""

    fault: str
    names: list[str]
    bite: dict[str, Any]
    took_s: float


class NoBite(Event, frozen=True, kw_only=True, tag="no_bite"):
    """A fault was injected and did not bite: the run cannot be valid."""

    fault: str
    reason: str


class Healed(Event, frozen=True, kw_only=True, tag="healed"):
    """A fault was healed and its effect is gone."""

    fault: str
    names: list[str]
    health: dict[str, Any]
    took_s: float


class ProgressEvent(Event, frozen=True, kw_only=True, tag="progress"):
    """How far the clients are, about once a second."""

    phase: str
    acknowledged: int
    rate: float
    committed: int
    aborted: int
    unknown: int
    in_flight: int
    active: list[str]
    lso_lag: int | None
    spark: str = ""
    isr: int | None = None
    """The fewest in-sync replicas of any of the run's partitions; None while no broker could say."""


class ClientEnded(Event, frozen=True, kw_only=True, tag="client_ended"):
    """A client ended that nobody had asked to."""

    client: str
    exit_code: int | None
    said: str


class VerdictEvent(Event, frozen=True, kw_only=True, tag="verdict"):
    """The end: what was found, and how to see it again."""

    verdict: str
    expected: bool
    exit_code: int
    text: str
    directory: str
    replay: str


EventListener = Callable[[Event], None]


def redacted(event: Event) -> Event:
    """The event without secrets: what it tells may come from an error of a library."""
    told = msgspec.json.encode(event)
    clean = redact_bytes(told)
    return event if clean == told else msgspec.json.decode(clean, type=type(event))
