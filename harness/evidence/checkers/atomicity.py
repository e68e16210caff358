"""Atomicity: a transaction is read as a whole or not at all, and never before it commits.

    aborted, and something of it read            aborted_read
    read in part, whatever its end               torn_transaction
    read before its commit was asked for         early_read

An unknown transaction may be read as a whole or not at all. Interleaved transactions are permitted.
"""

from __future__ import annotations

import numpy as np

from harness.evidence.bit_words import EXAMPLES, Bools, Ints, lane_key
from harness.evidence.checkers.consumer_reads import Reads, reads_of
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef, Result
from harness.evidence.checkers.visibility_index import (
    VisibilityIndex,
    group_lines,
    group_name,
    lane_name,
    ranges,
    seen_by,
)
from harness.evidence.ledger import ABORTED, FATE_NAMES, NEVER, OPEN_END, Ledger


def check(evidence: Evidence) -> Result:
    """Compare every transaction with what each witness read of it, and when."""
    out = Collector("atomicity", "transactions")
    ledger = evidence.ledger
    for observation in evidence.committed_views():
        seen = seen_by(evidence, observation)
        size, visible, judged = _totals(seen)
        _torn(seen, size, visible, judged, out)
        _aborted(seen, visible, out)
        _early(seen, visible, out)
        out.compared += int(judged.sum())
    for reads in reads_of(ledger):
        out.compared += _early_polls(ledger, reads, out)
    return out.result()


def _totals(seen: VisibilityIndex) -> tuple[Ints, Ints, Bools]:
    """Return every group's size and visible records, and which are transactions that can be judged."""
    ledger, intervals = seen.ledger, seen.ledger.intervals
    groups = len(ledger.groups.fate)
    # A transaction is judged when all its partitions were read to their ends: each end moves by itself.
    readable = seen.covered[intervals.lane] if len(seen.homes) else np.zeros(0, np.bool_)
    size = np.bincount(intervals.group, intervals.last - intervals.first + 1, groups).astype(np.int64)
    visible = np.bincount(intervals.group, seen.visible, groups).astype(np.int64)
    unreadable = np.bincount(intervals.group, ~readable, groups) > 0
    judged = (ledger.groups.txn >= 0) & (size > 0) & ~unreadable
    return size, visible, judged


def _torn(seen: VisibilityIndex, size: Ints, visible: Ints, judged: Bools, out: Collector) -> None:
    # The size of a transaction whose client died before it wrote its end is not known.
    torn = np.flatnonzero(judged & (visible > 0) & (visible < size) & (size < OPEN_END // 2))
    examples = []
    for group in torn[np.argsort(-(size - visible)[torn], kind="stable")][:EXAMPLES].tolist():
        what = (
            f"{group_name(seen.ledger, group)} ({FATE_NAMES[int(seen.ledger.groups.fate[group])]}): "
            f"{visible[group]} of its {size[group]} records can be read"
        )
        examples.append(_example(seen, group, what, int(size[group] - visible[group])))
    out.add("torn_transaction", "transactions", len(torn), examples)


def _aborted(seen: VisibilityIndex, visible: Ints, out: Collector) -> None:
    groups = seen.ledger.groups
    found = np.flatnonzero((groups.fate == ABORTED) & (groups.txn >= 0) & (visible > 0))
    examples = []
    for group in found[np.argsort(-visible[found], kind="stable")][:EXAMPLES].tolist():
        asked = "asked to commit, and aborted" if groups.committing[group] else "never asked to commit"
        what = f"{group_name(seen.ledger, group)} was {asked}; {visible[group]} of its records can be read"
        examples.append(_example(seen, group, what, int(visible[group])))
    out.add("aborted_read", "records", int(visible[found].sum()), examples)


def _early(seen: VisibilityIndex, visible: Ints, out: Collector) -> None:
    """Find transactions that a witness saw although it had finished before their commit was asked for."""
    meta, groups = seen.observation.meta, seen.ledger.groups
    if not meta.finished:
        return
    same_clock = _producers_on(seen.ledger, meta.clock)
    late = groups.committing & (groups.txn >= 0) & (groups.asked > meta.finished) & same_clock
    found = np.flatnonzero(late & (visible > 0))
    examples = []
    for group in found[np.argsort(-visible[found], kind="stable")][:EXAMPLES].tolist():
        ahead = (int(groups.asked[group]) - meta.finished) / 1e6
        what = f"{group_name(seen.ledger, group)} was read {ahead:.3f} ms before its commit was asked for"
        examples.append(_example(seen, group, what, int(visible[group])))
    out.add("early_read", "records", int(visible[found].sum()), examples)


def _producers_on(ledger: Ledger, clock: str) -> Bools:
    """Return, group by group, whether its producer reads the same monotonic clock."""
    numbers = sorted(ledger.producers)
    clocks = {client.name: client.opening.clock for client in ledger.clients if client.opening}
    same = [clocks.get(ledger.client_of(number)) == clock for number in numbers]
    return np.array(same, np.bool_)[np.searchsorted(np.array(numbers, np.int64), ledger.groups.producer)]


def _early_polls(ledger: Ledger, reads: Reads, out: Collector) -> int:
    """Compare when a live reader was given records with when their transaction was asked to commit."""
    intervals, groups = ledger.intervals, ledger.groups
    if not len(intervals.lane) or not len(reads.rows):
        return 0
    same_clock = _producers_on(ledger, reads.clock)
    lane, known = ledger.lane_index(lane_key(reads.rows["producer"], reads.rows["lane"]))
    width = OPEN_END + 1
    keys = intervals.lane.astype(np.int64) * width + intervals.first
    last = reads.rows["seq"] + reads.rows["count"] - 1
    # Commits of one producer follow each other, so the last transaction of a run was asked for last.
    at = np.searchsorted(keys, lane * width + last, side="right") - 1
    held = known & (at >= 0) & (intervals.lane[at] == lane) & (intervals.last[at] >= last)
    group = intervals.group[at]
    judged = held & groups.committing[group] & (groups.txn[group] >= 0) & same_clock[group]
    early = np.flatnonzero(judged & (groups.asked[group] > reads.rows["mono"]))
    examples: list[Example] = []
    count = 0
    for i in early.tolist():
        row, first = reads.rows[i], int(intervals.first[at[i]])
        records = int(last[i]) - max(first, int(row["seq"])) + 1
        count += records
        ahead = (int(groups.asked[group[i]]) - int(row["mono"])) / 1e6
        topic, partition = reads.places[int(row["place"])]
        end = int(row["offset"]) + int(row["count"]) - 1
        example = Example(
            what=f"{group_name(ledger, int(group[i]))} was given to {reads.client} {ahead:.3f} ms before its "
            "commit was asked for",
            weight=records,
            witness=reads.client,
            lines=[*group_lines(ledger, int(group[i])), HistoryRef(reads.client, int(row["line"]))],
            offsets=[OffsetRef(topic, partition, end - records + 1, end)],
        )
        examples = sorted([*examples, example], key=lambda e: -e.weight)[:EXAMPLES]
    out.add("early_read", "records", count, examples)
    return int(judged.sum())


def _example(seen: VisibilityIndex, group: int, what: str, weight: int) -> Example:
    """Show a transaction: what of every lane can be read, and where."""
    ledger, intervals = seen.ledger, seen.ledger.intervals
    parts, offsets = [], []
    for i in np.flatnonzero(intervals.group == group)[:EXAMPLES].tolist():
        if intervals.fate[i] == NEVER:
            continue
        lane, first, last = int(intervals.lane[i]), int(intervals.first[i]), int(intervals.last[i])
        found = seen.sequences(lane, first, last)
        part = "nothing" if not found else "all" if len(found) == last - first + 1 else ranges(found)
        sent = f"{first}-{last}" if last < OPEN_END else f"{first} and later"
        parts.append(f"{lane_name(ledger, lane)} sent {sent}, read {part}")
        offsets += seen.offsets(lane, found[0], found[-1]) if found else []
    return Example(
        what=f"{what} ({'; '.join(parts)})",
        weight=weight,
        witness=seen.observation.meta.witness,
        lines=group_lines(ledger, group),
        offsets=offsets[:EXAMPLES],
    )
