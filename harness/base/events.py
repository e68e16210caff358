"""The events of a run, and the interfaces that receive them.

A listener is a function of one event, such as the console. A handler also has a start and a shutdown, such as
the recorder, which opens and closes a file. Every event has the seconds since the run began.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.base.secrets import redact_bytes


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Something that happened in a run."""

    at: float = 0.0


class Started(Event, frozen=True, kw_only=True, tag="started"):
    """The run began. It is the first event, and names the seed and the environment."""

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
    """A fault was injected and took effect."""

    fault: str
    names: list[str]
    bite: dict[str, Any]
    took_s: float


class NoBite(Event, frozen=True, kw_only=True, tag="no_bite"):
    """A fault was injected and had no measured effect, so the run cannot be valid."""

    fault: str
    reason: str


class Healed(Event, frozen=True, kw_only=True, tag="healed"):
    """A fault was healed and its effect is gone."""

    fault: str
    names: list[str]
    health: dict[str, Any]
    took_s: float


class ProgressEvent(Event, frozen=True, kw_only=True, tag="progress"):
    """What all clients have done so far, about once a second."""

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
    """The fewest in-sync replicas of any partition of the run. None while no broker answers."""


class ClientEnded(Event, frozen=True, kw_only=True, tag="client_ended"):
    """A client process ended although the run did not stop it."""

    client: str
    exit_code: int | None
    last_line: str = msgspec.field(name="said")  # prose: keep (the name in events.jsonl)
    """The last line of its log."""


class VerdictEvent(Event, frozen=True, kw_only=True, tag="verdict"):
    """The run was judged: the verdict, and the command that replays the plan."""

    verdict: str
    expected: bool
    exit_code: int
    text: str
    directory: str
    replay: str


EventListener = Callable[[Event], None]


class EventHandler:
    """Receives the events of one run between `start` and `shutdown`; by default it ignores all of them."""

    def start(self, directory: Path) -> None:
        """Prepare for the events of the run that writes into this directory."""

    def handle(self, event: Event) -> None:
        """Process one event."""

    def shutdown(self) -> None:
        """Finish after the last event, also when the run ended with an error."""


class EventStream:
    """Passes the events of one run to its listeners, one event at a time, with the time since the start."""

    def __init__(self, listeners: Sequence[EventListener]) -> None:
        self.began = time.monotonic()
        self._listeners = listeners
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Pass an event to every listener, without secrets. Callable from any thread."""
        event = redacted(msgspec.structs.replace(event, at=round(time.monotonic() - self.began, 3)))
        with self._lock:
            for listener in self._listeners:
                listener(event)

    def phase(self, name: str, detail: str = "") -> None:
        """Report that a phase begins, or what happens in it."""
        self.emit(PhaseEvent(name=name, detail=detail))


def redacted(event: Event) -> Event:
    """Return the event without secrets, which may be in the error text of a library."""
    encoded = msgspec.json.encode(event)
    clean = redact_bytes(encoded)
    return event if clean == encoded else msgspec.json.decode(clean, type=type(event))
