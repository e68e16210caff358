"""Real time: the log's order and the times of reads agree with the clock of the producers' host.

If a record was acknowledged before another one was sent, its offset in the same partition is lower. A record
of a producer without transactions cannot be read before it was sent. Times are compared only within one
monotonic clock.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.base.partition_id import PartitionId, partition_name
from harness.evidence.bit_words import EXAMPLES, Bools, Ints
from harness.evidence.checkers.consumer_reads import Reads, reads_of
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef
from harness.evidence.checkers.record_pieces import clocks_of_groups, pieces_of
from harness.evidence.checkers.visibility_index import (
    contract_of_lanes,
    group_lines,
    group_name,
    visibility_of,
)
from harness.evidence.ledger import COMMITTED, Ledger
from harness.evidence.observation import Observation

_LAST: int = np.iinfo(np.int64).max


def check_real_time(evidence: Evidence, out: Collector) -> None:
    """Find records that are in the wrong order, and records that were read before they were sent."""
    ledger = evidence.ledger
    clocks, clock_of = clocks_of_groups(ledger)
    for reads in reads_of(ledger):
        _early_polls(ledger, reads, clock_of == clocks.index(reads.clock), out)
    for view in evidence.committed_views():
        if view.meta.finished and view.meta.clock in clocks:
            _early_views(evidence, view, clock_of == clocks.index(view.meta.clock), out)
        if view.runs is not None:
            _log_order(ledger, view, clock_of, out)


def _early_polls(ledger: Ledger, reads: Reads, same_clock: Bools, out: Collector) -> None:
    pieces = pieces_of(ledger, reads.rows)
    groups, polled = ledger.groups, reads.rows["mono"][pieces.run]
    early = np.flatnonzero(
        (groups.txn[pieces.group] < 0) & same_clock[pieces.group] & (groups.asked[pieces.group] > polled)
    )
    ahead = groups.asked[pieces.group] - polled
    examples = []
    for i in early[np.argsort(-ahead[early], kind="stable")][:EXAMPLES].tolist():
        row, group, offset = reads.rows[pieces.run[i]], int(pieces.group[i]), int(pieces.offset[i])
        count = int(pieces.records[i])
        examples.append(
            Example(
                what=f"{group_name(ledger, group)} was read by {reads.client} {ahead[i] / 1e6:.3f} ms before "
                "it was requested",
                weight=count,
                witness=reads.client,
                lines=[*group_lines(ledger, group), HistoryRef(reads.client, int(row["line"]))],
                offsets=[OffsetRef(*reads.places[int(row["place"])], offset, offset + count - 1)],
            )
        )
    out.add("early_read", "records", int(pieces.records[early].sum()), examples)


def _early_views(evidence: Evidence, view: Observation, same_clock: Bools, out: Collector) -> None:
    ledger, index = evidence.ledger, visibility_of(evidence, view)
    intervals, groups = ledger.intervals, ledger.groups
    late = (groups.txn < 0) & same_clock & (groups.asked > view.meta.finished)
    early = np.flatnonzero(late[intervals.group] & (index.visible > 0))
    examples = [
        Example(
            what=f"{group_name(ledger, group)} was read before it was requested",
            weight=int(index.visible[i]),
            witness=view.meta.witness,
            lines=group_lines(ledger, group),
            offsets=index.offsets(int(intervals.lane[i]), int(intervals.first[i]), int(intervals.last[i])),
        )
        for i in early[:EXAMPLES].tolist()
        for group in [int(intervals.group[i])]
    ]
    out.add("early_read", "records", int(index.visible[early].sum()), examples)


class _Stretch(NamedTuple):
    """Pieces of one partition on one clock, sorted by offset. The columns have one value per piece."""

    group: Ints
    offset: Ints
    begun: Ints
    acked: Ints
    """Time of the acknowledgement, or _LAST without one."""


def _log_order(ledger: Ledger, view: Observation, clock_of: Ints, out: Collector) -> None:
    """Find sends that are at a lower offset than a record that was acknowledged before them."""
    assert view.runs is not None
    pieces, groups, intervals = pieces_of(ledger, view.runs), ledger.groups, ledger.intervals
    durable = contract_of_lanes(ledger, "no_loss")[intervals.lane[pieces.interval]]
    acked = np.where(intervals.fate[pieces.interval] == COMMITTED, groups.answered[pieces.group], 0)
    acked[(acked == 0) | _repeated(pieces.interval, pieces.first, pieces.records)] = _LAST
    window = view.runs["partition"][pieces.run].astype(np.int64)
    begun, clock = groups.begun[pieces.group], clock_of[pieces.group]
    for key in np.unique(np.column_stack([window, clock]), axis=0).tolist():
        here = np.flatnonzero((window == key[0]) & (clock == key[1]) & (clock >= 0))
        here = here[np.argsort(pieces.offset[here], kind="stable")]
        place = (view.meta.windows[key[0]].topic, view.meta.windows[key[0]].partition)
        settled: set[int] = set()
        # Kafka may lose an acknowledged record of a producer without acks=all. So check the others first.
        for permitted, chosen in ((False, here[durable[here]]), (True, here)):
            stretch = _Stretch(pieces.group[chosen], pieces.offset[chosen], begun[chosen], acked[chosen])
            pairs = [pair for pair in _inversions(stretch) if pair[0] not in settled]
            settled.update(pair[0] for pair in pairs)
            examples = [_inversion(ledger, view, place, pair) for pair in pairs[:EXAMPLES]]
            out.add("reordered", "sends", len(pairs), examples, permitted=permitted)


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


def _inversions(stretch: _Stretch) -> list[tuple[int, int, int, int]]:
    """Return the sends that are before a record that was acknowledged before the send was requested.

    Each item has four fields: the group of the send, its offset, the group of the acknowledged record, and
    the offset of that record.
    """
    if len(stretch.group) < 2:
        return []
    # For each piece, the earliest acknowledgement among the pieces that follow it in the log.
    earliest = np.minimum.accumulate(stretch.acked[::-1])[::-1]
    inverted = np.flatnonzero((stretch.begun[:-1] > earliest[1:]) & (stretch.begun[:-1] > 0))
    _, starts = np.unique(stretch.group[inverted], return_index=True)
    pairs = []
    for i in inverted[np.sort(starts)].tolist():
        j = i + 1 + int(np.argmax(stretch.acked[i + 1 :] == earliest[i + 1]))
        pairs.append(
            (int(stretch.group[i]), int(stretch.offset[i]), int(stretch.group[j]), int(stretch.offset[j]))
        )
    return pairs


def _inversion(
    ledger: Ledger, view: Observation, place: PartitionId, pair: tuple[int, int, int, int]
) -> Example:
    later, low, earlier, high = pair
    ahead = (int(ledger.groups.begun[later]) - int(ledger.groups.answered[earlier])) / 1e6
    return Example(
        what=f"{group_name(ledger, later)} began {ahead:.3f} ms after {group_name(ledger, earlier)} was "
        f"acknowledged, but is at offset {low} of {partition_name(place)}, before offset {high}",
        weight=high - low,
        witness=view.meta.witness,
        lines=[*group_lines(ledger, earlier), *group_lines(ledger, later)],
        offsets=[OffsetRef(*place, low, low), OffsetRef(*place, high, high)],
    )
