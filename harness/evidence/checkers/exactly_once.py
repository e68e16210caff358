"""Exactly once: every committed record is read, once, and nothing is read that was never sent.

    committed and not read               lost         (permitted to a producer without acks=all)
    read more often than once            duplicate    (permitted to a producer without idempotence)
    read, and no history sent it         phantom

A record whose end is unknown may be read or not. Only a witness that read to the end can say lost.
"""

from __future__ import annotations

import numpy as np

from harness.evidence.bit_words import EXAMPLES, WORD_SEQS, Bools, Ints, lane_key, popcount
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef, Result, place
from harness.evidence.checkers.visibility_index import (
    VisibilityIndex,
    contract_of_lanes,
    group_lines,
    group_name,
    lane_name,
    ranges,
    seen_by,
)
from harness.evidence.ledger import COMMITTED, NEVER
from harness.evidence.record import MAX_SEQ


def check(evidence: Evidence) -> Result:
    """Compare every read_committed witness with the ledger, record by record."""
    out = Collector("exactly_once", "records")
    for observation in evidence.committed_views():
        seen = seen_by(evidence, observation)
        _lost(seen, out)
        _duplicate(seen, out)
        _phantom(seen, out)
        out.compared += int(seen.before[-1]) + int(seen.stray["n"].sum())
    return out.result()


def _lost(seen: VisibilityIndex, out: Collector) -> None:
    intervals = seen.ledger.intervals
    if not len(intervals.lane):
        return
    size = intervals.last - intervals.first + 1
    judged = (intervals.fate == COMMITTED) & seen.covered[intervals.lane]
    missing = np.where(judged, size - seen.visible, 0)
    out.compared += int(missing.sum())
    promised = contract_of_lanes(seen.ledger, "no_loss")[intervals.lane]
    for mask, permitted in ((promised, False), (~promised, True)):
        found = np.flatnonzero((missing > 0) & mask)
        worst = found[np.argsort(-missing[found], kind="stable")][:EXAMPLES].tolist()
        examples = [_lost_example(seen, i, int(missing[i])) for i in worst]
        out.add("lost", "records", int(missing[found].sum()), examples, permitted=permitted)


def _lost_example(seen: VisibilityIndex, i: int, missing: int) -> Example:
    ledger, intervals = seen.ledger, seen.ledger.intervals
    lane, first, last = int(intervals.lane[i]), int(intervals.first[i]), int(intervals.last[i])
    group = int(intervals.group[i])
    return Example(
        what=f"{group_name(ledger, group)} was acknowledged, and {missing} of its records {first}-{last} on "
        f"{lane_name(ledger, lane)} cannot be read: {seen.missing(lane, first, last)}",
        weight=missing,
        witness=seen.observation.meta.witness,
        lines=group_lines(ledger, group),
        offsets=seen.offsets(lane, first, last),
    )


def _duplicate(seen: VisibilityIndex, out: Collector) -> None:
    words = seen.words
    distinct = popcount(words["bits"])
    extra = words["n"] - distinct
    if np.any(extra < 0):
        out.reasons.append(f"witness {seen.observation.meta.witness} counted fewer records than it saw")
    promised = contract_of_lanes(seen.ledger, "no_duplicates")[seen.word_lane] if len(words) else extra > 0
    for mask, permitted in ((promised, False), (~promised, True)):
        found = np.flatnonzero((extra > 0) & mask)
        worst = found[np.argsort(-extra[found], kind="stable")][:EXAMPLES].tolist()
        examples = [_duplicate_example(seen, i, int(extra[i])) for i in worst]
        out.add("duplicate", "records", int(extra[found].sum()), examples, permitted=permitted)


def _duplicate_example(seen: VisibilityIndex, i: int, extra: int) -> Example:
    word, lane = seen.words[i], int(seen.word_lane[i])
    first = int(word["word"]) * WORD_SEQS
    spots = [
        spot
        for spot in seen.observation.meta.repeats.examples
        if (spot.producer, spot.lane) == (word["producer"], word["lane"])
        and first <= spot.seq < first + WORD_SEQS
    ]
    where = f"sequence {spots[0].seq}" if spots else f"among sequences {first}-{first + WORD_SEQS - 1}"
    topic, partition = seen.ledger.places[lane]
    span = OffsetRef(topic, partition, int(word["lo"]), int(word["hi"]))
    return Example(
        what=f"{lane_name(seen.ledger, lane)}: {extra} more read than sent, {where}"
        + (f" ({spots[0].detail})" if spots and spots[0].detail else ""),
        weight=extra,
        witness=seen.observation.meta.witness,
        lines=_lines_of(seen, lane, spots[0].seq if spots else first),
        offsets=place(spots[0]) if spots else [span],
    )


def _lines_of(seen: VisibilityIndex, lane: int, seq: int) -> list[HistoryRef]:
    intervals = seen.ledger.intervals
    found = np.flatnonzero((intervals.lane == lane) & (intervals.first <= seq) & (intervals.last >= seq))
    return group_lines(seen.ledger, int(intervals.group[found[0]])) if len(found) else []


def _phantom(seen: VisibilityIndex, out: Collector) -> None:
    ledger, meta = seen.ledger, seen.observation.meta
    foreign = [
        Example(
            what=f"no client of this run wrote it: {spot.detail}", witness=meta.witness, offsets=place(spot)
        )
        for spot in meta.foreign.examples
    ]
    out.compared += meta.foreign.count
    out.add("phantom", "records", meta.foreign.count, foreign)
    strays = [_stray_example(seen, i) for i in range(min(len(seen.stray), EXAMPLES))]
    out.add("phantom", "records", int(seen.stray["n"].sum()), strays)
    if not len(ledger.lanes):
        return
    lanes = np.arange(len(ledger.lanes))
    total = seen.count(lanes, np.zeros_like(lanes), np.full_like(lanes, MAX_SEQ))
    intervals = ledger.intervals
    sent = intervals.fate != NEVER
    known = np.bincount(intervals.lane[sent], seen.visible[sent], len(lanes)).astype(np.int64)
    for lane in np.flatnonzero(total > known).tolist():
        out.add("phantom", "records", int(total[lane] - known[lane]), [_phantom_example(seen, lane, sent)])


def _phantom_example(seen: VisibilityIndex, lane: int, sent: Bools) -> Example:
    intervals = seen.ledger.intervals
    mine = np.flatnonzero((intervals.lane == lane) & sent)
    first: Ints = np.append(0, intervals.last[mine] + 1)
    last: Ints = np.append(intervals.first[mine] - 1, MAX_SEQ)
    gaps = np.flatnonzero(seen.count(np.full(len(first), lane), first, last))[:EXAMPLES].tolist()
    found = [seq for gap in gaps for seq in seen.sequences(lane, int(first[gap]), int(last[gap]))]
    return Example(
        what=f"{lane_name(seen.ledger, lane)}: read, and never sent: sequences {ranges(found)}",
        weight=len(found),
        witness=seen.observation.meta.witness,
        lines=_lines_of(seen, lane, found[0]),
        offsets=seen.offsets(lane, found[0], found[-1]),
    )


def _stray_example(seen: VisibilityIndex, i: int) -> Example:
    word, window = seen.stray[i], seen.observation.window(int(seen.stray["partition"][i]))
    producer, lane = int(word["producer"]), int(word["lane"])
    _, declared = seen.ledger.lane_index(np.array([lane_key(producer, lane)]))
    why = "which belongs into another partition" if declared[0] else "which no client declared"
    return Example(
        what=f"{int(word['n'])} records of producer {producer} lane {lane}, {why}, in "
        f"{window.topic}-{window.partition}",
        weight=int(word["n"]),
        witness=seen.observation.meta.witness,
        offsets=[OffsetRef(window.topic, window.partition, int(word["lo"]), int(word["hi"]))],
    )
