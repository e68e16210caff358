"""The curves and bars of a report's timeline, computed from the histories and events of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

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
from harness.evidence.bit_words import Ints
from harness.evidence.ledger import ABORTED, COMMITTED, UNKNOWN, Ledger

_EVENTS: Final = Started | PhaseEvent | Injected | NoBite | Healed | ProgressEvent | Timed | VerdictEvent
_OUTCOMES: Final = {"committed": COMMITTED, "aborted": ABORTED, "unknown": UNKNOWN}
_PERCENTILES: Final = {"median": 50, "95 %": 95, "slowest": 100}

PIECES: Final = 300
"""Number of equal pieces into which `thinned` divides the time axis. A curve keeps at most two points per
piece. A page has only about two pixels per piece, so more points would not be visible.
"""

Line = list[tuple[float, float]]
"""The points of a curve. Each point is a pair: seconds since the start of the run, and a value."""


class Bar(NamedTuple):
    """One injection: the times at which it began, took effect and was healed (None: never healed)."""

    name: str
    begin: float
    bitten: float
    healed: float | None


@dataclass
class TimelineData:
    """The content of a timeline: the phases, injections and curves of one run on one time axis."""

    seconds: float = 1.0
    phases: list[tuple[float, str]] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    no_bites: list[tuple[float, str]] = field(default_factory=list)
    records: dict[str, Line] = field(default_factory=dict)
    latency: dict[str, Line] = field(default_factory=dict)
    lag: Line = field(default_factory=list)
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


def series_of(events: list[Event], ledger: Ledger) -> TimelineData:
    """Return the content of a run's timeline."""
    series = TimelineData(seconds=max([event.at for event in events], default=1.0) or 1.0)
    for event in events:
        match event:
            case PhaseEvent():
                series.phases.append((event.at, event.name))
            case ProgressEvent():
                series.lag += [(event.at, float(event.lso_lag))] if event.lso_lag is not None else []
                series.isr += [(event.at, float(event.isr))] if event.isr is not None else []
    for event, healed in injections(events):
        if isinstance(event, NoBite):
            series.no_bites.append((event.at, event.fault))
        else:
            begin = max(0.0, event.at - event.took_s)
            name = f"{event.fault} {', '.join(event.names)}"
            series.bars.append(Bar(name, begin, event.at, healed.at if healed else None))
    began = next((event.mono for event in events if isinstance(event, Started)), 0)
    if began:
        _from_ledger(series, ledger, began)
    for curves in (series.records, series.latency):
        curves.update({name: thinned(line, series.seconds) for name, line in curves.items()})
    series.lag, series.isr = thinned(series.lag, series.seconds), thinned(series.isr, series.seconds)
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


def _from_ledger(series: TimelineData, ledger: Ledger, began: int) -> None:
    """Add the curves that come from the ledger.

    These are the number of records per second for each fate, and percentiles of the answer latency. A record
    counts in the second in which its client received the answer. Without an answer, it counts in the second
    of the request. The latency covers committed records only.
    """
    groups = ledger.groups
    count = len(groups.producer)
    sizes = ledger.intervals.last - ledger.intervals.first + 1
    records = np.bincount(ledger.intervals.group, np.where(sizes < 1 << 40, sizes, 0), count)
    answered = groups.answered > 0
    ends = np.where(answered, groups.answered, groups.asked)
    second = ((ends - began) // 10**9).astype(np.int64)
    last = int(series.seconds) + 1
    inside = (second >= 0) & (second < last)
    for name, fate in _OUTCOMES.items():
        chosen = inside & (groups.fate == fate)
        per_second = np.bincount(second[chosen], records[chosen], last)
        series.records[name] = [(at + 0.5, float(value)) for at, value in enumerate(per_second)]
    chosen = inside & answered & (groups.fate == COMMITTED)
    _percentiles(series, second[chosen], (groups.answered - groups.asked)[chosen] / 1e6)


def _percentiles(series: TimelineData, second: Ints, millis: np.ndarray) -> None:
    order = np.argsort(second, kind="stable")
    seconds, starts = np.unique(second[order], return_index=True)
    pieces = np.split(millis[order], starts[1:]) if len(seconds) else []
    for name, percent in _PERCENTILES.items():
        series.latency[name] = [
            (float(at) + 0.5, float(np.percentile(piece, percent)))
            for at, piece in zip(seconds, pieces, strict=True)
        ]


def verdict_of(events: Iterable[Event]) -> VerdictEvent | None:
    """Return the verdict of a run; None if the run has none."""
    return next((event for event in events if isinstance(event, VerdictEvent)), None)
