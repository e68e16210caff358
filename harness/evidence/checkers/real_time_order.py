"""Real time: the log's order and the times of reads agree with the clock of the producers' host.

If a record was acknowledged before another one was sent, its offset in the same partition is lower. A record
of a producer without transactions cannot be read before it was sent. Times are compared only within one
monotonic clock.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

import numpy as np

from harness.base.partition_id import PartitionId, partition_name
from harness.evidence.bit_words import EXAMPLES, Bools, Ints, split_lane_key
from harness.evidence.checkers.consumer_reads import Reads, reads_of
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef
from harness.evidence.checkers.offset_ranges import OffsetRanges
from harness.evidence.checkers.record_pieces import clocks_of_groups, pieces_of
from harness.evidence.checkers.visibility_index import (
    VisibilityIndex,
    contract_of_lanes,
    group_lines,
    group_name,
    visibility_of,
)
from harness.evidence.ledger import COMMITTED, Ledger
from harness.evidence.ledger.tables import Small
from harness.evidence.observation import Observation
from harness.evidence.record import MAX_SEQ

_LAST: Final = np.iinfo(np.int64).max


def check_real_time(evidence: Evidence, out: Collector) -> None:
    """Find records that are in the wrong order, and records that were read before they were sent."""
    ledger = evidence.ledger
    clocks, clock_of = clocks_of_groups(ledger)
    early = _EarlyReads(ledger)
    inversions: dict[bool, dict[int, Example]] = {False: {}, True: {}}
    for reads in reads_of(ledger):
        early.add_polls(reads, clock_of == clocks.index(reads.clock))
    for view in evidence.committed_views():
        if view.meta.finished and view.meta.clock in clocks:
            early.add_view(visibility_of(evidence, view), clock_of == clocks.index(view.meta.clock))
        if view.runs is not None:
            _log_order(ledger, view, clock_of, inversions)
        elif len(ledger.intervals.lane):
            _word_order(visibility_of(evidence, view), clock_of, inversions)
    early.report(out)
    # Several witnesses may show the same inversion, which counts once. One that involves only guaranteed
    # records is an anomaly, even if others are permitted.
    for permitted, found in inversions.items():
        examples = [e for group, e in found.items() if not permitted or group not in inversions[False]]
        examples.sort(key=lambda example: (-example.weight, example.what))
        out.add("reordered", "sends", len(examples), examples[:EXAMPLES], permitted=permitted)


class _EarlyReads:
    """Records of sends that were read before the producer requested the send. Each record counts once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sequences: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._examples: dict[int, Example] = {}

    def add_polls(self, reads: Reads, same_clock: Bools) -> None:
        """Add the early records among those that a live reader was given."""
        pieces, groups = pieces_of(self._ledger, reads.rows), self._ledger.groups
        ahead = groups.asked[pieces.group] - reads.rows["mono"][pieces.run]
        sends = (groups.txn[pieces.group] < 0) & same_clock[pieces.group]
        for i in np.flatnonzero(sends & (ahead > 0)).tolist():
            row, group, offset = reads.rows[pieces.run[i]], int(pieces.group[i]), int(pieces.offset[i])
            count = int(pieces.records[i])
            example = Example(
                what=f"{group_name(self._ledger, group)} was read by {reads.client} {ahead[i] / 1e6:.3f} ms "
                "before it was requested",
                weight=count,
                witness=reads.client,
                lines=[*group_lines(self._ledger, group), HistoryRef(reads.client, int(row["line"]))],
                offsets=[OffsetRef(*reads.places[int(row["place"])], offset, offset + count - 1)],
            )
            self._add(int(pieces.interval[i]), int(pieces.first[i]), count, example)

    def add_view(self, index: VisibilityIndex, same_clock: Bools) -> None:
        """Add the early records among those that a witness had read when it finished."""
        intervals, groups = self._ledger.intervals, self._ledger.groups
        finished, witness = index.observation.meta.finished, index.observation.meta.witness
        late = (groups.txn < 0) & same_clock & (groups.asked > finished)
        for i in np.flatnonzero(late[intervals.group] & (index.visible > 0)).tolist():
            lane, group = int(intervals.lane[i]), int(intervals.group[i])
            first, last = int(intervals.first[i]), int(intervals.last[i])
            ahead = (int(groups.asked[group]) - finished) / 1e6
            example = Example(
                what=f"{group_name(self._ledger, group)} was read by {witness} {ahead:.3f} ms before it was "
                "requested",
                weight=int(index.visible[i]),
                witness=witness,
                lines=group_lines(self._ledger, group),
                offsets=index.offsets(lane, first, last),
            )
            for seq in index.sequences(lane, first, last):
                self._add(i, seq, 1, example)

    def _add(self, interval: int, first: int, count: int, example: Example) -> None:
        group = int(self._ledger.intervals.group[interval])
        self._sequences[int(self._ledger.intervals.lane[interval])].append((first, first + count))
        if group not in self._examples or example.weight > self._examples[group].weight:
            self._examples[group] = example

    def report(self, out: Collector) -> None:
        """Add the early records to the result."""
        examples = sorted(self._examples.values(), key=lambda example: (-example.weight, example.what))
        count = sum(len(OffsetRanges.of(pairs)) for pairs in self._sequences.values())
        out.add("early_read", "records", count, examples[:EXAMPLES])


class _Points(NamedTuple):
    """Pieces of sends and transactions in the log. The columns have one value per piece."""

    group: Ints
    offset: Ints
    begun: Ints
    acked: Ints
    """Time of the acknowledgement, or _LAST without one."""
    window: Ints
    clock: Ints
    durable: Ints
    """1 if Kafka may not lose the records once they are acknowledged, else 0."""

    def rows(self, chosen: Ints) -> _Points:
        """Return the chosen rows."""
        return _Points(*(column[chosen] for column in self))


def _log_order(
    ledger: Ledger, view: Observation, clock_of: Small, found: dict[bool, dict[int, Example]]
) -> None:
    """Find sends that are at a lower offset than a record that was acknowledged before them.

    `found` gets an example for each such send, by whether Kafka permits the inversion.
    """
    assert view.runs is not None
    pieces, groups, intervals = pieces_of(ledger, view.runs), ledger.groups, ledger.intervals
    durable = contract_of_lanes(ledger, "no_loss")[intervals.lane[pieces.interval]]
    acked = np.where(intervals.fate[pieces.interval] == COMMITTED, groups.answered[pieces.group], 0)
    acked[(acked == 0) | _repeated(pieces.interval, pieces.first, pieces.records)] = _LAST
    window = view.runs["partition"][pieces.run].astype(np.int64)
    clock = clock_of[pieces.group].astype(np.int64)
    columns = (groups.begun[pieces.group], acked, window, clock, durable.astype(np.int64))
    _compare_points(ledger, view, _Points(pieces.group, pieces.offset, *columns), found)


def _word_order(index: VisibilityIndex, clock_of: Small, found: dict[bool, dict[int, Example]]) -> None:
    """Find the same inversions if the witness recorded no runs, so that only bounds of offsets are known.

    A send is at the highest possible offset of its first record, and an acknowledgement at the lowest
    possible offset of its last record. Only sends and transactions that were read as a whole are compared.
    """
    ledger, view = index.ledger, index.observation
    groups, intervals = ledger.groups, ledger.intervals
    chosen = np.flatnonzero(index.visible == intervals.last - intervals.first + 1)
    if not len(chosen):
        return
    lane, group = intervals.lane[chosen].astype(np.int64), intervals.group[chosen].astype(np.int64)
    low = _bounds_with_acks(index, lane, intervals.last[chosen])[0]
    high = _bounds_with_acks(index, lane, intervals.first[chosen])[1]
    committed = (intervals.fate[chosen] == COMMITTED) & (groups.answered[group] > 0) & ~_repeats(index, lane)
    acked = np.where(committed, groups.answered[group], _LAST)
    zeros = np.zeros(len(chosen), np.int64)
    durable = contract_of_lanes(ledger, "no_loss")[lane].astype(np.int64)
    rest = (index.homes[lane], clock_of[group].astype(np.int64), durable)
    begins = _Points(group, high, groups.begun[group], zeros + _LAST, *rest)
    acknowledgements = _Points(group, low, zeros, acked, *rest)
    joined = (np.concatenate(pair) for pair in zip(begins, acknowledgements, strict=True))
    _compare_points(ledger, view, _Points(*joined), found)


def _repeats(index: VisibilityIndex, lane: Ints) -> Bools:
    """Return which lanes may contain records twice: an acknowledgement belongs to the first copy only."""
    repeats = index.observation.meta.repeats
    producer = split_lane_key(index.ledger.lanes)[0][lane]
    if repeats.count and not repeats.by_producer:
        return np.ones(len(lane), np.bool_)
    repeated: Bools = np.isin(producer, [producer for producer, _ in repeats.by_producer])
    return repeated


def _bounds_with_acks(index: VisibilityIndex, lane: Ints, seq: Ints) -> tuple[Ints, Ints]:
    """Return the lowest and highest possible offset of each record; an acknowledgement gives the offset.

    An acknowledgement that contradicts the witness is another anomaly, and is ignored here.
    """
    low, high = index.offset_bounds(lane, seq)
    acks = index.ledger.acks
    if not len(acks):
        return low, high
    acks = acks[np.lexsort((acks[:, 1], acks[:, 0]))]
    keys = acks[:, 0] * (MAX_SEQ + 1) + acks[:, 1]
    at = np.maximum(np.searchsorted(keys, lane * (MAX_SEQ + 1) + seq, side="right") - 1, 0)
    offset = acks[at, 3] + seq - acks[at, 1]
    known = (acks[at, 0] == lane) & (acks[at, 1] <= seq) & (seq <= acks[at, 2])
    known &= (low <= offset) & (offset <= high)
    return np.where(known, offset, low), np.where(known, offset, high)


def _compare_points(
    ledger: Ledger, view: Observation, points: _Points, found: dict[bool, dict[int, Example]]
) -> None:
    """Find the inversions among the points of each partition and clock."""
    for window, clock in np.unique(np.column_stack([points.window, points.clock]), axis=0).tolist():
        here = np.flatnonzero((points.window == window) & (points.clock == clock) & (points.clock >= 0))
        here = here[np.argsort(points.offset[here], kind="stable")]
        place = (view.meta.windows[window].topic, view.meta.windows[window].partition)
        # Kafka may lose an acknowledged record of a producer without acks=all.
        for permitted, chosen in ((False, here[points.durable[here] == 1]), (True, here)):
            for pair in _inversions(points.rows(chosen)):
                found[permitted].setdefault(pair[0], _inversion(ledger, view, place, pair))


def _repeated(interval: Ints, first: Ints, count: Ints) -> Bools:
    """Return which pieces belong to intervals of which a record was read twice.

    The acknowledgement of a record belongs to its first copy, so the second copy proves no order.
    """
    order = np.lexsort((first, interval))
    again = np.zeros(len(order), np.bool_)
    again[1:] = (interval[order][1:] == interval[order][:-1]) & (
        first[order][1:] < (first + count)[order][:-1]
    )
    return np.isin(interval, interval[order][again])


def _inversions(stretch: _Points) -> list[tuple[int, int, int, int]]:
    """Return the sends that are before a record that was acknowledged before the send was requested.

    The points must be those of one partition and clock, sorted by offset.

    Each item has four fields: the group of the send, its offset, the group of the acknowledged record, and
    the offset of that record.
    """
    if len(stretch.group) < 2:
        return []
    # For each piece, the earliest acknowledgement among it and all pieces that follow it in the log, and the
    # index of the piece that has it.
    backward = stretch.acked[::-1]
    earliest = np.minimum.accumulate(backward)
    holder = np.maximum.accumulate(np.where(backward == earliest, np.arange(len(backward)), 0))
    earliest, holder = earliest[::-1], len(backward) - 1 - holder[::-1]
    inverted = np.flatnonzero((stretch.begun[:-1] > earliest[1:]) & (stretch.begun[:-1] > 0))
    _, starts = np.unique(stretch.group[inverted], return_index=True)
    first = inverted[np.sort(starts)]
    ends = holder[first + 1]
    columns = (stretch.group[first], stretch.offset[first], stretch.group[ends], stretch.offset[ends])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _inversion(
    ledger: Ledger, view: Observation, place: PartitionId, pair: tuple[int, int, int, int]
) -> Example:
    later, low, earlier, high = pair
    # Without runs, only bounds of the offsets are known.
    below, above = ("", "") if view.runs is not None else (" or lower", " or higher")
    ahead = (int(ledger.groups.begun[later]) - int(ledger.groups.answered[earlier])) / 1e6
    return Example(
        what=f"{group_name(ledger, later)} began {ahead:.3f} ms after {group_name(ledger, earlier)} was "
        f"acknowledged, but is at offset {low}{below} of {partition_name(place)}, before offset "
        f"{high}{above}",
        weight=high - low,
        witness=view.meta.witness,
        lines=[*group_lines(ledger, earlier), *group_lines(ledger, later)],
        offsets=[OffsetRef(*place, low, low), OffsetRef(*place, high, high)],
    )
