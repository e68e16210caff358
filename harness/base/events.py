"""The events of a run, and the interfaces that receive them.

A listener is a function that is called with one event at a time; the console is a listener. A handler is an
object with the methods `start`, `handle` and `shutdown`. The recorder, which writes the events to
events.jsonl, is a handler because it opens and closes this file. Every event contains the seconds since the
run started.
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
    """Base class of the events of a run; `at` is the time in seconds since the run started."""

    at: float = 0.0


class Started(Event, frozen=True, kw_only=True, tag="started"):
    """Start of the run. This is the first event, and it contains the seed and the environment."""

    scenario: str
    run: str
    seed: int
    directory: str
    environment: dict[str, Any]
    mono: int = 0
    """The reading of the monotonic clock in nanoseconds at the start of the run, when `at` was 0. The
    histories use the same clock.
    """
    faults: int = 0
    """Number of planned injections."""
    lasts_s: float = 0.0
    """Planned seconds with faults; 0 for a walkthrough."""


class PhaseEvent(Event, frozen=True, kw_only=True, tag="phase"):
    """Start of a phase of the run, or a message (`detail`) during the phase."""

    name: str
    detail: str = ""


class Injected(Event, frozen=True, kw_only=True, tag="injected"):
    """Successful injection of a fault. `bite` is the measurement that proves that the fault took effect."""

    fault: str
    names: list[str]
    bite: dict[str, Any]
    took_s: float


class NoBite(Event, frozen=True, kw_only=True, tag="no_bite"):
    """Failed injection of a fault: no effect was measured, so the run cannot be valid."""

    fault: str
    reason: str


class Healed(Event, frozen=True, kw_only=True, tag="healed"):
    """Successful healing of a fault. The event is emitted after the effect of the fault is gone."""

    fault: str
    names: list[str]
    health: dict[str, Any]
    took_s: float


class ProgressEvent(Event, frozen=True, kw_only=True, tag="progress"):
    """Progress of the run: sums over all its clients so far. The event is emitted about once a second."""

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
    spark_behind: int | None = None
    """Number of stable offsets that Spark's stream has not read. None if Spark has not reported any batch."""
    isr: int | None = None
    """The smallest number of in-sync replicas among the partitions of the run's topics at this moment. None
    while no broker answers.
    """


class ClientEnded(Event, frozen=True, kw_only=True, tag="client_ended"):
    """End of a client process. The event is not emitted for clients that the run itself stops."""

    client: str
    exit_code: int | None
    last_line: str = msgspec.field(name="said")  # prose: keep ("said" is the field's name in events.jsonl)
    """The last line of the client's log."""


class Timed(Event, frozen=True, kw_only=True, tag="timed"):
    """End of one step of the verification, such as the reading of one witness."""

    step: str
    took_s: float


class VerdictEvent(Event, frozen=True, kw_only=True, tag="verdict"):
    """Verdict of the run. `replay` is the command that runs the same plan again."""

    verdict: str
    expected: bool
    exit_code: int
    text: str
    directory: str
    replay: str
    wanted: str = ""
    """The verdict that the scenario expects, such as "invalid with duplicate"."""
    breaches: list[str] = []
    """What it means that limits were exceeded, and what to do: one sentence for each of them."""

    @property
    def comparison(self) -> str:
        """Whether the verdict is the expected one, and if not, which one is expected."""
        if self.expected:
            return "as expected"
        return f"NOT as expected ({self.wanted})" if self.wanted else "NOT as expected"


EventListener = Callable[[Event], None]


class EventHandler:
    """Base class of an object that receives the events of one run. Its methods do nothing by default."""

    def start(self, directory: Path) -> None:
        """Prepare for the events of a run before the first event; `directory` contains the run's files."""

    def handle(self, event: Event) -> None:
        """Process one event."""

    def shutdown(self) -> None:
        """Finish after the last event. This method is called even if the run ended with an error."""


class EventStream:
    """Distributor of a run's events. It sets the time of an event and passes the event to every listener."""

    def __init__(self, listeners: Sequence[EventListener]) -> None:
        self.began = time.monotonic()
        self._listeners = listeners
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Remove secrets from an event and pass it to every listener. Any thread may call this method."""
        event = redacted(msgspec.structs.replace(event, at=round(time.monotonic() - self.began, 3)))
        with self._lock:
            for listener in self._listeners:
                listener(event)

    def phase(self, name: str, detail: str = "") -> None:
        """Emit the start of a phase, or a message during the phase."""
        self.emit(PhaseEvent(name=name, detail=detail))


def redacted(event: Event) -> Event:
    """Return the event with its secrets redacted.

    Events quote error messages of libraries, which may contain secrets.
    """
    encoded = msgspec.json.encode(event)
    clean = redact_bytes(encoded)
    return event if clean == encoded else msgspec.json.decode(clean, type=type(event))
