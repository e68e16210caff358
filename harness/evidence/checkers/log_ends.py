"""Ends of the log: whether the end of a partition went back.

Anomaly:

    an offset that was readable is at or after an end that was frozen later      log_truncated

The offsets that were readable are known from four sources: the ends that an observer sampled, the records
that live readers got, the acknowledgements, and the ends of witnesses that had already finished. The ends
that the witnesses froze are compared with them. If only the high watermark went back, nothing is gone that a
read_committed consumer could read; this is a reason for unknown.

A leader that is isolated from the controller does not know its successor. Until then, it reports its old
ends. So a sample may be below an earlier one during a fail-over; only ends that stay low prove that the log
went back. Times are compared only within one clock.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.base.partition_id import PartitionId, partition_name
from harness.evidence.bit_words import Bools, Ints, split_lane_key
from harness.evidence.checkers.consumer_reads import reads_of
from harness.evidence.checkers.given_records import sent_later
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef, Result
from harness.evidence.checkers.visibility_index import contract_of_lanes, visibility_of
from harness.evidence.ledger import COMMITTED, Ledger, Scan
from harness.evidence.observation import Meta, Observation, Window
from harness.evidence.record import MAX_SEQ


class Mark(NamedTuple):
    """Proof that all offsets before `end` of a partition existed.

    `stable` means that they were before the last stable offset; otherwise, they were before the high
    watermark. `given` means that a client got the records or their acknowledgements.
    """

    end: int
    stable: bool
    given: bool
    what: str
    clock: str
    mono: int
    lines: list[HistoryRef]


Marks = dict[PartitionId, list[Mark]]


class Worst(dict[PartitionId, Example]):
    """The example with the most missing offsets, for each partition whose log went back.

    `reasons` has one reason for unknown for each partition whose log may have gone back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reasons: dict[PartitionId, str] = {}

    def keep(
        self, place: PartitionId, text: str, ends: tuple[int, int], lines: list[HistoryRef], witness: str = ""
    ) -> None:
        """Keep an example if it is the worst of its partition; `ends` are the lower and the higher end."""
        low, high = ends
        if place not in self or self[place].weight < high - low:
            self[place] = Example(
                what=f"{partition_name(place)}: {text}",
                weight=high - low,
                witness=witness,
                lines=lines,
                offsets=[OffsetRef(*place, low, high - 1)],
            )


def applies(evidence: Evidence) -> bool:
    """Return whether any witness froze the ends of partitions."""
    return any(view.meta.windows for view in evidence.observations if view.meta.kind != "client")


def check(evidence: Evidence) -> Result:
    """Find partitions whose log went back: readable offsets that are gone when the witnesses read."""
    out = Collector("log_ends", "known ends of partitions")
    marks = _marks(evidence)
    frozen = [view for view in evidence.observations if view.meta.kind != "client"]
    covered = {(window.topic, window.partition) for view in frozen for window in view.meta.windows}
    # Witnesses that read to the same end show one known end.
    ends = {
        (partition, mark.end, mark.lines[0] if mark.lines else None)
        for partition, known in marks.items()
        for mark in known
    }
    out.compared += len(ends) + len(evidence.ledger.acks) + len(covered)
    worst = Worst()
    for view in frozen:
        for window in view.meta.windows:
            _compare_own_end(window, view.meta, worst)
            for mark in marks.get((window.topic, window.partition), []):
                _compare(mark, window, view.meta, worst)
    for view in evidence.committed_views():
        if view.meta.kind != "client":
            _compare_acks(evidence, view, worst)
    for client in evidence.ledger.clients:
        _compare_samples(evidence.ledger, client, covered, worst)
    out.add("log_truncated", "partitions", len(worst), list(worst.values()))
    for place, reason in sorted(worst.reasons.items()):
        if place not in worst:
            out.reasons.append(f"{partition_name(place)}: {reason}")
    return out.result()


def _marks(evidence: Evidence) -> Marks:
    marks: Marks = {}
    for client in evidence.ledger.clients:
        _add_samples(client, marks)
    _add_reads(evidence.ledger, marks)
    for view in evidence.observations:
        if view.meta.kind != "client":
            _add_finished(view.meta, marks)
    return marks


def _clock(client: Scan) -> str:
    return client.opening.clock if client.opening else ""


def _series(client: Scan) -> dict[PartitionId, Ints]:
    """Return the samples of each partition.

    The columns are: line number, time, log start, last stable offset, high watermark.
    """
    series: dict[PartitionId, list[tuple[int, ...]]] = {}
    for number, sample in client.samples():
        for topic, partition, *bounds in sample.bounds:
            series.setdefault((topic, partition), []).append((number, sample.mono, *bounds))
    return {place: np.array(rows, np.int64) for place, rows in series.items()}


def _rising(ends: Ints) -> Bools:
    """Return a mask of the values that are higher than all values before them."""
    before = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(ends)[:-1])
    return ends > before


def _add_samples(client: Scan, marks: Marks) -> None:
    for place, rows in _series(client).items():
        for column, stable, name in ((3, True, "last stable offset"), (4, False, "high watermark")):
            what = f"{client.name} sampled the {name}"
            for row in rows[_rising(rows[:, column])].tolist():
                line = HistoryRef(client.name, row[0])
                mark = Mark(row[column], stable, False, what, _clock(client), row[1], [line])
                marks.setdefault(place, []).append(mark)


def _add_reads(ledger: Ledger, marks: Marks) -> None:
    """Add the ends of the records that live readers got.

    The isolation of the readers is unknown, so compare these ends with the high watermark.
    """
    for reads in reads_of(ledger):
        what = f"{reads.client} got records up to offset"
        for place, name in enumerate(reads.places):
            rows = reads.rows[reads.rows["place"] == place]
            rows = rows[np.argsort(rows["mono"], kind="stable")]
            ends = rows["offset"] + rows["count"]
            for i in np.flatnonzero(_rising(ends)).tolist():
                line = HistoryRef(reads.client, int(rows["line"][i]))
                mark = Mark(int(ends[i]), False, True, what, reads.clock, int(rows["mono"][i]), [line])
                marks.setdefault(name, []).append(mark)


def _add_finished(meta: Meta, marks: Marks) -> None:
    """Add the offsets up to which a witness read, if it recorded when it finished."""
    if not meta.finished:
        return
    stable = meta.isolation == "read_committed"
    for window in meta.windows:
        what = f"{meta.witness} read everything up to offset"
        mark = Mark(window.read_to, stable, True, what, meta.clock, meta.finished, [])
        marks.setdefault((window.topic, window.partition), []).append(mark)


def _compare_own_end(window: Window, meta: Meta, worst: Worst) -> None:
    """Find a stream that had read beyond the last stable offset before this offset was frozen."""
    if meta.isolation == "read_committed" and window.read_to > window.lso:
        text = f"{meta.witness} had read up to offset {window.read_to}, and then the last stable offset was "
        text += f"frozen at {window.lso}"
        place = (window.topic, window.partition)
        worst.keep(place, text, (window.lso, window.read_to), [], meta.witness)


def _compare(mark: Mark, window: Window, meta: Meta, worst: Worst) -> None:
    """Compare one mark with the ends that one witness froze later.

    A witness without times read after the run. Two witnesses are compared only if the time of the freeze is
    known, because otherwise the second one may have frozen its ends before the first one finished.
    """
    of_witness = not mark.lines
    frozen_at = meta.frozen if of_witness else meta.frozen or meta.finished
    same_clock = mark.clock == meta.clock
    if (of_witness and not frozen_at) or (same_clock and frozen_at and mark.mono > frozen_at):
        return
    name, end = ("last stable offset", window.lso) if mark.stable else ("high watermark", window.hw)
    if mark.end <= end:
        return
    text = f"{mark.what} {mark.end}, but {meta.witness} later froze the {name} at {end}"
    place = (window.topic, window.partition)
    if not same_clock:
        worst.reasons.setdefault(place, f"{text}; their clocks differ, so the order of these is unknown")
    elif not mark.stable and not mark.given:
        worst.reasons.setdefault(place, f"{text}; the records between them were undecided")
    else:
        worst.keep(place, text, (end, mark.end), mark.lines, meta.witness)


def _compare_acks(evidence: Evidence, view: Observation, worst: Worst) -> None:
    """Find acknowledged offsets at or after the high watermark that a witness froze.

    A record that the witness read at another offset is an inconsistent_offset. A committed record that a
    complete witness did not read is lost. So both are left out.
    """
    ledger, index = evidence.ledger, visibility_of(evidence, view)
    if not len(ledger.acks) or not view.meta.windows:
        return
    lane, first, last, offset, line = ledger.acks.T
    home = index.homes[lane]
    chosen = (home >= 0) & contract_of_lanes(ledger, "no_loss")[lane]
    if len(ledger.intervals.lane):
        at, known = ledger.interval_at(lane, first)
        chosen &= ~(known & sent_later(ledger, view.meta)[ledger.intervals.group[at]])
    chosen = np.flatnonzero(chosen)
    high = np.array([window.hw for window in view.meta.windows], np.int64)
    missing = offset[chosen] + last[chosen] - first[chosen] + 1 - high[home[chosen]]
    chosen, missing = chosen[missing > 0], missing[missing > 0]
    first_missing = np.maximum(first[chosen], last[chosen] - missing + 1)
    unread = index.count(lane[chosen], first_missing, last[chosen]) == 0
    settled = index.covered[lane[chosen]] & (_fates(ledger, lane[chosen], first[chosen]) == COMMITTED)
    for i in chosen[unread & ~settled].tolist():
        place = ledger.places[lane[i]]
        client = ledger.client_of(split_lane_key(int(ledger.lanes[lane[i]]))[0])
        end, frozen = int(offset[i] + last[i] - first[i] + 1), int(high[home[i]])
        text = f"{client} got an acknowledgement of offset {end - 1}, but {view.meta.witness} later froze "
        text += f"the high watermark at {frozen}"
        worst.keep(place, text, (frozen, end), [HistoryRef(client, int(line[i]))], view.meta.witness)


def _fates(ledger: Ledger, lane: Ints, seq: Ints) -> Ints:
    """Return the fate of each record, which is given by its lane and sequence; 0 if it is in no interval."""
    intervals = ledger.intervals
    keys = intervals.lane.astype(np.int64) * (MAX_SEQ + 1) + intervals.first
    at = np.searchsorted(keys, lane * (MAX_SEQ + 1) + seq, side="right") - 1
    inside = (at >= 0) & (intervals.lane[at] == lane) & (intervals.last[at] >= seq)
    fates: Ints = np.where(inside, intervals.fate[at], 0).astype(np.int64)
    return fates


def _compare_samples(ledger: Ledger, client: Scan, covered: set[PartitionId], worst: Worst) -> None:
    """Compare the samples of one observer with each other."""
    first_fault = min(
        (fault.mono for c in ledger.clients if _clock(c) == _clock(client) for _, fault in c.faults()),
        default=np.iinfo(np.int64).max,
    )
    for place, rows in sorted(_series(client).items()):
        reasons = _start_went_back(rows)
        for column, name in ((3, "last stable offset"), (4, "high watermark")):
            ends, peak = rows[:, column], np.maximum.accumulate(rows[:, column])
            low = np.flatnonzero(ends < peak)
            if not len(low):
                continue
            at = int(low[0])
            text = f"{client.name} sampled the {name} {peak[at]}, and later {ends[at]}"
            grew = low[1:][(ends[low[1:]] > ends[low[:-1]]) & (peak[low[1:]] == peak[low[:-1]])]
            stays = low[-1] == len(rows) - 1
            if stays and column == 3 and place not in covered:
                at = int(np.argmax(ends))
                text = f"{client.name} sampled the {name} {ends[at]}, but {ends[-1]} in its last sample"
                lines = [HistoryRef(client.name, int(rows[i, 0])) for i in (at, -1)]
                worst.keep(place, text, (int(ends[-1]), int(ends[at])), lines)
            elif len(grew):
                reasons.append(f"{text}, and it grew from there")
            elif stays and place not in covered:
                reasons.append(f"{text} to the end")
            elif rows[at, 1] < first_fault:
                reasons.append(f"{text}, although no fault was injected before")
        for reason in reasons:
            worst.reasons.setdefault(place, reason)


def _start_went_back(rows: Ints) -> list[str]:
    """Return a reason if the log start went back.

    Kafka deletes old records on each replica separately, so this may happen in a fail-over.
    """
    back = np.flatnonzero(rows[1:, 2] < rows[:-1, 2])
    if not len(back):
        return []
    before, after = rows[back[0], 2], rows[back[0] + 1, 2]
    return [f"the log start went back from {before} to {after}, so deleted records are readable again"]
