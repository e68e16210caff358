"""Atomicity: a transaction can be read as a whole or not at all, and never before its commit is requested.

Anomalies:

    a record of an aborted transaction can be read          aborted_read
    only a part of a transaction can be read                torn_transaction
    a record was read before the commit was requested       early_read

If the outcome of a transaction is unknown, either all of its records may be readable or none of them. Once a
reader was given one of the records, all of them must be readable (promotion.py).
Transactions of several producers may interleave in a partition.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from harness.evidence.bit_words import EXAMPLES, Bools, Ints, lane_key
from harness.evidence.checkers.causes import cause_text
from harness.evidence.checkers.consumer_reads import Reads, reads_of
from harness.evidence.checkers.distinct import RecordSet
from harness.evidence.checkers.interval_sums import sizes, sum_by
from harness.evidence.checkers.model import (
    Collector,
    Evidence,
    Example,
    HistoryRef,
    OffsetRef,
    Result,
    join_names,
)
from harness.evidence.checkers.promotion import judge_promoted, promote, proof_of
from harness.evidence.checkers.visibility_index import (
    VisibilityIndex,
    compacted_lanes,
    group_lines,
    group_name,
    lane_name,
    ranges,
    visibility_of,
)
from harness.evidence.ledger import ABORTED, FATE_NAMES, NEVER, OPEN_END, Ledger


def check(evidence: Evidence) -> Result:
    """Check every transaction: which of its records each witness read, and when."""
    out = Collector("atomicity", "transactions")
    ledger = evidence.ledger
    compared = np.zeros(len(ledger.groups.fate), np.bool_)
    covered = np.zeros(len(ledger.lanes), np.bool_)
    for observation in evidence.committed_views():
        index = visibility_of(evidence, observation)
        _check_witness(evidence, index, out)
        covered |= index.covered
    for reads in reads_of(ledger):
        compared |= _early_polls(evidence, reads, out)
    # Several witnesses may together cover all partitions of a transaction. If one of them read a part of it,
    # the transaction is promoted, and each other witness must have the rest.
    compared |= _is_covered(ledger, covered)
    out.compared = int(compared.sum())
    return out.result()


def _check_witness(evidence: Evidence, index: VisibilityIndex, out: Collector) -> None:
    size, visible, judged = _totals(index, compacted_lanes(evidence))
    contradicted = judge_promoted(evidence, index)
    # Skip a transaction of unknown size: its client died before it recorded the end of the transaction.
    torn = judged & (visible > 0) & (visible < size) & (size < OPEN_END // 2)
    _torn(evidence, index, torn | contradicted.torn, out)
    _aborted(evidence, index, visible, out)
    _early(evidence, index, visible, out)


def _totals(index: VisibilityIndex, compacted: Bools) -> tuple[Ints, Ints, Bools]:
    """Return three columns: the size of each group, its number of readable records, whether to check it.

    A group is a transaction, or one send without a transaction. Its size is its number of records. Only
    transactions are checked for atomicity. Of compacted topics, only the readable records count.
    """
    ledger, intervals = index.ledger, index.ledger.intervals
    groups = len(ledger.groups.fate)
    judged = _is_covered(ledger, index.covered)
    size = sum_by(
        intervals.group,
        groups,
        lambda part: np.where(compacted[intervals.lane[part]], index.visible[part], sizes(intervals, part)),
    )
    most = int(index.visible.sum(dtype=np.int64))
    kind: Any = np.int32 if most < 1 << 31 else np.int64
    visible = sum_by(intervals.group, groups, lambda part: index.visible[part], kind)
    return size, visible, judged


def _is_covered(ledger: Ledger, covered: Bools) -> Bools:
    """Return a mask of the transactions whose records all lie in the covered lanes.

    A witness may read some partitions further than others. So check a transaction only if every partition
    with records of this transaction was read to the high watermark.
    """
    intervals, groups = ledger.intervals, ledger.groups
    if not len(covered):
        return np.zeros(len(groups.fate), np.bool_)
    number = len(groups.fate)
    lane, group = intervals.lane, intervals.group
    records = sum_by(group, number, lambda part: lane[part] >= 0, np.int32)
    uncovered = sum_by(group, number, lambda part: ~covered[lane[part]], np.int32)
    checked: Bools = (groups.txn >= 0) & (records > 0) & (uncovered == 0)
    return checked


def _torn(evidence: Evidence, index: VisibilityIndex, mask: Bools, out: Collector) -> None:
    ledger, intervals = index.ledger, index.ledger.intervals
    torn = np.flatnonzero(mask)
    if not len(torn):
        return
    # Count only the partitions that the witness read to the end: it cannot miss records of the others.
    covered = np.where(index.covered[intervals.lane], intervals.last - intervals.first + 1, index.visible)
    size = np.bincount(intervals.group, covered, len(mask)).astype(np.int64)
    visible = np.bincount(intervals.group, index.visible, len(mask)).astype(np.int64)
    examples: dict[Hashable, Example] = {}
    for group in torn[np.argsort(-(size - visible)[torn], kind="stable")][:EXAMPLES].tolist():
        readers, polls = proof_of(evidence, group) if promote(evidence).promoted[group] else ([], [])
        others = [reader for reader in readers if reader != index.name]
        what = (
            f"{group_name(ledger, group)} ({FATE_NAMES[int(ledger.groups.fate[group])]}): "
            f"only {visible[group]} of its {size[group]} records can be read"
            + (f", and {join_names(others)} read one of its records" if others else "")
        )
        example = _example(evidence, index, group, what, int(size[group] - visible[group]))
        example.lines += polls
        examples[group] = example
    found = frozenset(torn.tolist())
    out.add("torn_transaction", "transactions", found, examples, witness=index.name)


def _aborted(evidence: Evidence, index: VisibilityIndex, visible: Ints, out: Collector) -> None:
    groups, intervals = index.ledger.groups, index.ledger.intervals
    aborted = (groups.fate == ABORTED) & (groups.txn >= 0) & (visible > 0)
    leaked = np.flatnonzero(aborted)
    examples: dict[Hashable, Example] = {}
    for group in leaked[np.argsort(-visible[leaked], kind="stable")][:EXAMPLES].tolist():
        reason = "its commit did not succeed" if groups.committing[group] else "no commit was requested"
        what = (
            f"{group_name(index.ledger, group)} did not commit ({reason}), "
            f"but {visible[group]} of its records can be read"
        )
        examples[group] = _example(evidence, index, group, what, int(visible[group]))
    records = index.read_in_intervals(aborted[intervals.group])
    out.add("aborted_read", "records", records, examples, witness=index.name)


def _early(evidence: Evidence, index: VisibilityIndex, visible: Ints, out: Collector) -> None:
    """Find transactions whose records a witness read before the producer requested their commit."""
    meta, groups = index.observation.meta, index.ledger.groups
    if not meta.finished:
        return
    same_clock = _producers_on(index.ledger, meta.clock)
    late = groups.committing & (groups.txn >= 0) & (groups.asked > meta.finished) & same_clock
    read_early = late & (visible > 0)
    early = np.flatnonzero(read_early)
    examples = []
    for group in early[np.argsort(-visible[early], kind="stable")][:EXAMPLES].tolist():
        ahead = (int(groups.asked[group]) - meta.finished) / 1e6
        what = f"{group_name(index.ledger, group)} was read {ahead:.3f} ms before its commit was requested"
        examples.append(_example(evidence, index, group, what, int(visible[group])))
    records = index.read_in_intervals(read_early[index.ledger.intervals.group])
    out.add("early_read", "records", records, examples, witness=index.name)


def _producers_on(ledger: Ledger, clock: str) -> Bools:
    """Return a mask of the ledger's transactions and sends: True if their producer used the clock `clock`.

    `clock` is the id of a monotonic clock. Times can be compared only if they are from the same clock.
    """
    numbers = sorted(ledger.producers)
    clocks = {client.name: client.opening.clock for client in ledger.clients if client.opening}
    same = [number for number in numbers if clocks.get(ledger.client_of(number)) == clock]
    return np.isin(ledger.groups.producer, same)


def _early_polls(evidence: Evidence, reads: Reads, out: Collector) -> Bools:
    """Find records that a live reader got before the producer requested their commit.

    Return a mask of the transactions that were checked.
    """
    ledger = evidence.ledger
    intervals, groups = ledger.intervals, ledger.groups
    compared = np.zeros(len(groups.fate), np.bool_)
    if not len(intervals.lane) or not len(reads.rows):
        return compared
    same_clock = _producers_on(ledger, reads.clock)
    lane, declared = ledger.lane_index(lane_key(reads.rows["producer"], reads.rows["lane"]))
    last = reads.rows["seq"] + reads.rows["count"] - 1
    # A run of consecutive records may span several transactions of its producer. The producer commits them
    # one after another, so the transaction of the run's last record is committed last. Compare the time of
    # the poll with that commit.
    at, known = ledger.interval_at(lane, last)
    group = intervals.group[at]
    judged = declared & known & groups.committing[group] & (groups.txn[group] >= 0) & same_clock[group]
    compared[group[judged]] = True
    early = np.flatnonzero(judged & (groups.asked[group] > reads.rows["mono"]))
    first = np.maximum(intervals.first[at], reads.rows["seq"])
    weight = last - first + 1
    examples = []
    for i in early[np.argsort(-weight[early], kind="stable")][:EXAMPLES].tolist():
        row, records = reads.rows[i], int(weight[i])
        ahead = (int(groups.asked[group[i]]) - int(row["mono"])) / 1e6
        topic, partition = reads.places[int(row["place"])]
        end = int(row["offset"]) + int(row["count"]) - 1
        example = Example(
            what=f"{group_name(ledger, int(group[i]))} was read by {reads.client} {ahead:.3f} ms before its "
            f"commit was requested{cause_text(evidence, int(group[i]))}",
            weight=records,
            witness=reads.client,
            lines=[*group_lines(ledger, int(group[i])), HistoryRef(reads.client, int(row["line"]))],
            offsets=[OffsetRef(topic, partition, end - records + 1, end)],
        )
        examples.append(example)
    found = RecordSet.of_intervals(lane[early], first[early], last[early])
    out.add("early_read", "records", found, examples, witness=reads.client)
    return compared


def _example(evidence: Evidence, index: VisibilityIndex, group: int, what: str, weight: int) -> Example:
    """Describe a transaction as an example of an anomaly.

    For each lane, the text lists the sequences sent, the sequences read, and their offsets.
    """
    ledger, intervals = index.ledger, index.ledger.intervals
    parts, offsets = [], []
    for i in np.flatnonzero(intervals.group == group)[:EXAMPLES].tolist():
        if intervals.fate[i] == NEVER:
            continue
        lane, first, last = int(intervals.lane[i]), int(intervals.first[i]), int(intervals.last[i])
        readable = index.sequences(lane, first, last)
        part = "nothing" if not readable else "all" if len(readable) == last - first + 1 else ranges(readable)
        sent = f"{first}-{last}" if last < OPEN_END else f"{first} and later"
        parts.append(f"{lane_name(ledger, lane)} sent {sent}, read {part}")
        offsets += index.offsets(lane, readable[0], readable[-1]) if readable else []
    return Example(
        what=f"{what} ({'; '.join(parts)}){cause_text(evidence, group)}",
        weight=weight,
        witness=index.name,
        lines=group_lines(ledger, group),
        offsets=offsets[:EXAMPLES],
    )
