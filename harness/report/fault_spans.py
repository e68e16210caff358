"""The faults of a run with all their times in one clock: seconds since the start of the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.base.errors import HarnessError
from harness.base.events import Event, NoBite, Started
from harness.base.unreadable import UNREADABLE
from harness.evidence.history import FaultLine, HistoryFile
from harness.evidence.run_directory import RunDirectory
from harness.report.timeline_data import injections

JOURNAL: Final = "faults.jsonl"
"""History of the injections in the folder of the histories."""


@dataclass
class FaultSpan:
    """One injection: when it began, took effect, when its healing began and ended (None: not recorded).

    Without `bitten` it had no measured effect, and `reason` is why.
    """

    fault: str
    names: list[str]
    begin: float
    bitten: float | None = None
    heal_began: float | None = None
    healed: float | None = None
    bite: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

    @property
    def name(self) -> str:
        """The fault and its targets, such as `kill kafka-1`."""
        return f"{self.fault} {', '.join(self.names)}".strip()

    def covers(self, first: float, last: float) -> bool:
        """Return whether the fault was active at any time from `first` to `last`."""
        return (
            self.bitten is not None and self.begin <= last and (self.healed is None or self.healed >= first)
        )


def start_of(events: Iterable[Event]) -> int:
    """Return the monotonic time in ns at which the run started; 0 if no event records it."""
    return next((event.mono for event in events if isinstance(event, Started)), 0)


def fault_spans(run: RunDirectory, events: Sequence[Event]) -> list[FaultSpan]:
    """Return the faults of a run in order of time.

    They come from the events. If these list none, they come from the journal of the injections, because an
    older version emitted no events of the faults of a walkthrough.
    """
    spans = [
        FaultSpan(event.fault, [], event.at, reason=event.reason)
        if isinstance(event, NoBite)
        else FaultSpan(
            event.fault,
            list(event.names),
            max(0.0, event.at - event.took_s),
            event.at,
            max(event.at, healed.at - healed.took_s) if healed else None,
            healed.at if healed else None,
            event.bite,
        )
        for event, healed in injections(list(events))
    ]
    return spans or _from_journal(run, start_of(events))


def _from_journal(run: RunDirectory, start: int) -> list[FaultSpan]:
    path = run.histories / JOURNAL
    spans: dict[str, FaultSpan] = {}
    if not start or not path.is_file():
        return []
    try:
        lines = [line for _, line in HistoryFile(path).read() if isinstance(line, FaultLine)]
    except (HarnessError, *UNREADABLE):
        return []  # the report names the damaged file elsewhere
    for line in lines:
        at = (line.mono - start) / 1e9
        if line.stage == "intent":
            spans[line.id] = FaultSpan(line.fault or "", line.resolved, at)
        elif span := spans.get(line.id):
            match line.stage:
                case "bite":
                    span.bitten, span.bite = at, line.measured
                case "no_bite":
                    span.reason = line.detail or ""
                case "healed":
                    span.healed = at
    return list(spans.values())
