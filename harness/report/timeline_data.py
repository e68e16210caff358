"""The curves and phases of a report's timeline, from the events and figures of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec

from harness.base.events import (
    Event,
    Healed,
    Injected,
    NoBite,
    PhaseEvent,
    ProgressEvent,
    Started,
    Timed,
    VerdictEvent,
)
from harness.base.unreadable import UNREADABLE
from harness.evidence.checkers.run_figures import Curve, Figures

_EVENTS: Final = Started | PhaseEvent | Injected | NoBite | Healed | ProgressEvent | Timed | VerdictEvent
PHASES: Final = ("settle", "steady", "faults", "recover", "drain", "interrupted", "aborted", "verify")
"""Phases that a timeline names, besides the steps of a walkthrough. Other phase events are messages."""

_MARGIN: Final = 0.02
"""Share of the time axis that remains after the beginning of the verification, which has no curves."""

GROUPS_SHOWN: Final = 3
"""Number of consumer groups whose lag is drawn: those with the largest lag."""

PIECES: Final = 300
"""Number of equal pieces into which `thinned` divides the time axis. A curve keeps at most two points per
piece. A page has only about two pixels per piece, so more points would not be visible.
"""

Line = list[tuple[float, float]]
"""The points of a curve. Each point is a pair: seconds since the start of the run, and a value."""


@dataclass
class TimelineData:
    """The content of a timeline: the phases and curves of one run on one time axis."""

    seconds: float = 1.0
    slice_s: float = 1.0
    """Seconds between two points of a curve that has no gap."""
    phases: list[tuple[float, str]] = field(default_factory=list)
    records: dict[str, Line] = field(default_factory=dict)
    sends: dict[str, Line] = field(default_factory=dict)
    commits: dict[str, Line] = field(default_factory=dict)
    lags: dict[str, Line] = field(default_factory=dict)
    in_flight: Line = field(default_factory=list)
    spark: Line = field(default_factory=list)
    """Stable offsets that Spark's stream has not read."""
    unstable: Line = field(default_factory=list)
    isr: Line = field(default_factory=list)


def read_events(directory: Path) -> list[Event]:
    """Read the events of a run. Skip event types that no report uses, and lines that cannot be decoded."""
    path = directory / "events.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    events: list[Event] = []
    for line in lines:
        try:
            events.append(msgspec.json.decode(line, type=_EVENTS))
        except UNREADABLE:
            continue
    return events


def series_of(events: list[Event], figures: Figures) -> TimelineData:
    """Return the content of a run's timeline."""
    series = TimelineData(seconds=max([event.at for event in events], default=1.0) or 1.0)
    for event in events:
        match event:
            case PhaseEvent(name=name) if name in PHASES or name.startswith("step "):
                if name not in [known for _, known in series.phases]:
                    series.phases.append((event.at, name))
            case ProgressEvent():
                series.in_flight.append((event.at, float(event.in_flight)))
                series.unstable += [(event.at, float(event.lso_lag))] if event.lso_lag is not None else []
                series.spark += (
                    [(event.at, float(event.spark_behind))] if event.spark_behind is not None else []
                )
                series.isr += [(event.at, float(event.isr))] if event.isr is not None else []
    began = next((event.mono for event in events if isinstance(event, Started)), 0)
    if began:
        ends = [curve[-1][0] for curve in (*figures.records.values(), *figures.lags.values()) if curve]
        series.seconds = max([series.seconds, *((end - began) / 1e9 for end in ends)])
    if verify := next((at for at, name in series.phases if name == "verify"), 0.0):
        series.seconds = min(series.seconds, verify * (1 + _MARGIN))
    if began:
        _add_figures(series, figures, began)
    for curves in (series.records, series.sends, series.commits, series.lags):
        curves.update({name: thinned(line, series.seconds) for name, line in curves.items()})
    series.in_flight, series.spark = (
        thinned(line, series.seconds) for line in (series.in_flight, series.spark)
    )
    series.unstable, series.isr = (
        thinned(series.unstable, series.seconds),
        thinned(series.isr, series.seconds),
    )
    return series


def thinned(line: Line, seconds: float) -> Line:
    """Reduce a long curve to the lowest and the highest point in each piece of the time axis."""
    if len(line) <= 2 * PIECES:
        return line
    pieces: dict[int, Line] = defaultdict(list)
    for point in line:
        pieces[int(point[0] / seconds * PIECES)].append(point)
    by_value = itemgetter(1)
    kept = [{min(piece, key=by_value), max(piece, key=by_value)} for piece in pieces.values()]
    return sorted(point for ends in kept for point in ends)


def injections(events: list[Event]) -> list[tuple[Injected | NoBite, Healed | None]]:
    """Return every injection in order of time, paired with its healing (None if it was never healed)."""
    pairs: list[tuple[Injected | NoBite, Healed | None]] = []
    unhealed: dict[tuple[str, ...], int] = {}
    for event in events:
        match event:
            case Injected():
                unhealed[event.fault, *event.names] = len(pairs)
                pairs.append((event, None))
            case NoBite():
                pairs.append((event, None))
            case Healed() if (event.fault, *event.names) in unhealed:
                index = unhealed.pop((event.fault, *event.names))
                pairs[index] = pairs[index][0], event
    return pairs


def _add_figures(series: TimelineData, figures: Figures, began: int) -> None:
    """Add the curves of the figures, with times since the start of the run."""

    def moved(curve: Curve) -> Line:
        return [((at - began) / 1e9, value) for at, value in curve]

    series.slice_s = max(float(figures.slice_s), series.seconds / PIECES)
    for name, curve in figures.records.items():
        series.records[name] = _with_zeros(moved(curve), figures.slice_s, series.seconds)
    series.sends = {name: moved(curve) for name, curve in figures.sends.items()}
    series.commits = {name: moved(curve) for name, curve in figures.commits.items()}
    lags = sorted(figures.lags.items(), key=lambda item: -max(value for _, value in item[1]))
    series.lags = {group: moved(curve) for group, curve in lags[:GROUPS_SHOWN]}


def _with_zeros(line: Line, width: float, seconds: float) -> Line:
    """Return a curve of rates with zeros where nothing was counted for longer than one slice."""
    points: Line = []
    previous = 0.0
    for at, value in [*line, (seconds + width / 2, 0.0)]:
        if at - previous > 1.5 * width:
            points += [(previous + width, 0.0), (at - width, 0.0)]
        points.append((at, value))
        previous = at
    return [(at, value) for at, value in points if 0 <= at <= seconds]


def verdict_of(events: Iterable[Event]) -> VerdictEvent | None:
    """Return the verdict of a run; None if the run has none."""
    return next((event for event in events if isinstance(event, VerdictEvent)), None)
