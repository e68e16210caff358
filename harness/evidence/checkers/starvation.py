"""Starvation: times in which the machine was so busy that a slow answer is no evidence about Kafka.

The run and each client record how late a thread of theirs wakes (history/lateness_recorder.py). A window of
this record is starved if the thread woke more than LATE_MS late on average. The brokers' threads wait as long
for a processor, again at each step of a request. If they wait twice as long, the same work takes twice as
long. So only a share of a starved window counts: that of LATE_MS in the lateness.

A limit is breached if the time that counts is longer than the limit. If only the whole time is longer, this
is a reason for unknown: neither an anomaly nor valid. If the run promised the record, but a part of it is
missing, this part may have been starved, so it does not count either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from harness.evidence.bit_words import Ints
from harness.evidence.checkers.client_ends import HARNESS_ROLES, OBSERVER
from harness.evidence.checkers.model import Collector, Evidence
from harness.evidence.ledger import Scan

LATE_MS: Final = 20
"""Mean lateness in milliseconds above which a window is starved.

`python -m tools.lateness` measures it beside busy processes. On two cores, the mean was 12 ms beside 12 of
them, and 46 ms beside 30.
"""
GAP_NS: Final = 2_000_000_000
"""Time without a record that is no gap: the last window of a process that was killed is missing."""
READER: Final = "reader"
"""Role of the clients that stop last."""


class Lost(NamedTuple):
    """Times in nanoseconds that do not count: starved ones, and ones of which there is no record.

    `largest` is the largest lateness in the starved windows.
    """

    starved: int = 0
    unknown: int = 0
    largest: int = 0

    @property
    def time(self) -> int:
        """Both times together."""
        return self.starved + self.unknown

    def text(self) -> str:
        """Describe the times as part of a sentence."""
        if self.starved >= self.unknown:
            return (
                f"the machine was starved: {self.starved / 1e9:.1f} s of this do not count, because threads "
                f"of the harness woke up to {self.largest / 1e6:.0f} ms late"
            )
        return (
            f"there is no record of {self.unknown / 1e9:.1f} s of this, so the machine may have been starved"
        )


@dataclass
class Record:
    """How late a thread of one process woke: windows without gaps, and how much of each does not count."""

    edges: Ints
    """The start of the first window, and the end of each window."""
    lost: Ints
    largest: Ints

    def within(self, start: int, end: int) -> Lost:
        """Return how much of a time does not count."""
        if end <= start:
            return Lost()
        if not len(self.lost):
            return Lost(unknown=end - start)
        sums = np.append(0, np.cumsum(self.lost))
        before, after = np.interp([start, end], self.edges, sums)
        first, last = np.clip([start, end], self.edges[0], self.edges[-1])
        unknown = end - start - int(last - first)
        touched = (self.edges[:-1] < end) & (self.edges[1:] > start) & (self.lost > 0)
        largest = int(self.largest[touched].max()) if touched.any() else 0
        return Lost(round(after - before), unknown if unknown > GAP_NS else 0, largest)


NOTHING: Final = Record(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
"""The record of a process that recorded nothing, although it promised to."""


def lost_time(evidence: Evidence, client: Scan, start: int, end: int) -> Lost:
    """Return how much of a time does not count, according to the client's own record and that of the run.

    Both times are of the client's clock. Without any promised record, all of the time counts.
    """
    records = _records(evidence)
    clock = _clock(client)
    observers = [c for c in evidence.ledger.clients if _is_observer(c)]
    names = [client.name, *(c.name for c in observers if _clock(c) == clock)]
    found = [records[name].within(start, end) for name in names if name in records]
    if evidence.expect.lateness and not observers:
        found.append(NOTHING.within(start, end))
    return max(found, key=lambda lost: lost.time, default=Lost())


def counted_time(observer: Scan, start: int, end: int) -> int:
    """Return how much of a time counts, according to the record that the run has kept so far.

    The record has no line yet about the last second or so. This time does not count.
    """
    rows = observer.lateness
    if not len(rows):
        return end - start
    record = _record(rows)
    end = min(end, int(record.edges[-1]))
    return max(0, end - start - record.within(start, end).time)


def unjudged_wait(evidence: Evidence) -> str:
    """Return why the run may have waited too little for the application; empty if it waited long enough.

    The run waits until the application has processed its inputs, but not longer than the bound of `stalled`,
    of which only counted time is a part (run/counted_wait.py). Without a group, it waits until the outputs
    stop growing.
    """
    contract, app = evidence.expect.contract, evidence.app
    observer = next(filter(_is_observer, evidence.ledger.clients), None)
    if contract is None or observer is None or observer.closing is None or (app is not None and app.gave_up):
        return ""
    clock = _clock(observer)
    stopped = [start.at for start in app.starts if start.ended == "stopped"] if app else []
    end = max(stopped) if stopped and app and app.clock == clock else observer.closing.mono
    began = [
        client.closing.mono
        for client in evidence.ledger.clients
        if client.closing is not None and _clock(client) == clock and _is_writer(client)
    ]
    healed = [
        fault.mono
        for client in evidence.ledger.clients
        if _clock(client) == clock
        for _, fault in client.faults()
        if fault.stage == "healed"
    ]
    start = max([*began, *healed], default=observer.opening.mono if observer.opening else end)
    lost = lost_time(evidence, observer, start, end)
    limit = evidence.expect.stall_ms * 1_000_000 if contract.group else end - start - 1_000_000_000
    if not lost.time or end - start - lost.time > limit:
        return ""
    return f"the run waited {(end - start) / 1e9:.1f} s for the application, and {lost.text()}"


def check_lateness(evidence: Evidence, out: Collector) -> None:
    """Check that the run and its clients kept the record that they promised."""
    observers = [client for client in evidence.ledger.clients if _is_observer(client)]
    if evidence.expect.lateness and not any(_promises(client) for client in observers):
        out.reasons.append("the run has no record of how late its threads woke")
    for client in evidence.ledger.clients:
        if _promises(client) and (problem := _problem(client)):
            out.reasons.append(f"client {client.name}: {problem}")


def notes(evidence: Evidence) -> list[str]:
    """Return a note if the machine was starved during the run."""
    found = []
    for client in filter(_is_observer, evidence.ledger.clients):
        record = _records(evidence).get(client.name, NOTHING)
        if not len(record.lost) or not record.lost.any():
            continue
        starved = record.lost > 0
        windows = np.diff(record.edges)
        found.append(
            f"the machine was starved in {windows[starved].sum() / 1e9:.0f} of {windows.sum() / 1e9:.0f} s: "
            f"threads of the run woke up to {record.largest.max() / 1e6:.0f} ms late, so measured times are "
            "no evidence about Kafka"
        )
    return found


def _records(evidence: Evidence) -> dict[str, Record]:
    """Return the records of all processes that promised one, or left one."""
    if "lateness" not in evidence.cache:
        evidence.cache["lateness"] = {
            client.name: NOTHING if _problem(client) else _record(client.lateness)
            for client in evidence.ledger.clients
            if _promises(client) or len(client.lateness)
        }
    found: dict[str, Record] = evidence.cache["lateness"]
    return found


def _record(rows: Ints) -> Record:
    since, until, wakes, largest, total, _ = rows.T
    late = total / wakes
    most = LATE_MS * 1_000_000
    lost = (until - since) * (1 - most / np.maximum(late, most))
    return Record(np.append(since[:1], until), lost.astype(np.int64), largest)


def _problem(client: Scan) -> str:
    """Return what is wrong with the record of a process; empty if it is whole."""
    rows = client.lateness
    if not len(rows):
        # A process that was killed in its first second has none.
        return "its record of late wakes is missing" if client.closing is not None else ""
    since, until, wakes, largest, total, line = rows.T
    began = client.opening.mono if client.opening else since[0]
    wrong = (until <= since) | (wakes < 1) | (largest < 0) | (total < largest) | (largest > until - since)
    wrong |= (total > largest * wakes) | (since != np.append(began, until[:-1]))
    if wrong.any():
        return f"line {line[wrong][0]}: its record of late wakes has a gap before this line, or is wrong"
    return ""


def _promises(client: Scan) -> bool:
    return client.opening is not None and client.opening.lateness


def _clock(client: Scan) -> str:
    return client.opening.clock if client.opening else ""


def _is_observer(client: Scan) -> bool:
    return client.opening is not None and client.opening.role == OBSERVER


def _is_writer(client: Scan) -> bool:
    return client.opening is not None and client.opening.role not in (*HARNESS_ROLES, READER)
