"""Exactly once: every committed record can be read exactly once, and every readable record was sent.

Anomalies:

    a committed record cannot be read             lost        (permitted without acks=all)
    a record can be read more than once           duplicate   (permitted without idempotence)
    a record can be read that was never sent      phantom

A record with an unknown outcome may be readable or not. Only a witness that read to the end of the partition
can prove a loss.
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
    visibility_of,
)
from harness.evidence.ledger import COMMITTED, NEVER
from harness.evidence.record import MAX_SEQ


def check(evidence: Evidence) -> Result:
    """Compare every read_committed witness with the ledger, record by record."""
    out = Collector("exactly_once", "records")
    for observation in evidence.committed_views():
        index = visibility_of(evidence, observation)
        _lost(index, out)
        _duplicate(index, out)
        _phantom(index, out)
        out.compared += int(index.before[-1]) + int(index.stray["n"].sum())
    return out.result()


def _lost(index: VisibilityIndex, out: Collector) -> None:
    intervals = index.ledger.intervals
    if not len(intervals.lane):
        return
    size = intervals.last - intervals.first + 1
    judged = (intervals.fate == COMMITTED) & index.covered[intervals.lane]
    missing = np.where(judged, size - index.visible, 0)
    out.compared += int(missing.sum())
    promised = contract_of_lanes(index.ledger, "no_loss")[intervals.lane]
    for mask, permitted in ((promised, False), (~promised, True)):
        lost = np.flatnonzero((missing > 0) & mask)
        worst = lost[np.argsort(-missing[lost], kind="stable")][:EXAMPLES].tolist()
        examples = [_lost_example(index, i, int(missing[i])) for i in worst]
        out.add("lost", "records", int(missing[lost].sum()), examples, permitted=permitted)


def _lost_example(index: VisibilityIndex, i: int, missing: int) -> Example:
    ledger, intervals = index.ledger, index.ledger.intervals
    lane, first, last = int(intervals.lane[i]), int(intervals.first[i]), int(intervals.last[i])
    group = int(intervals.group[i])
    return Example(
        what=f"{group_name(ledger, group)} was acknowledged, but {missing} of its records cannot be read: "
        f"{lane_name(ledger, lane)} sent {first}-{last}, missing are {index.missing(lane, first, last)}",
        weight=missing,
        witness=index.observation.meta.witness,
        lines=group_lines(ledger, group),
        offsets=index.offsets(lane, first, last),
    )


def _duplicate(index: VisibilityIndex, out: Collector) -> None:
    words = index.words
    distinct = popcount(words["bits"])
    extra = words["n"] - distinct
    if np.any(extra < 0):
        out.reasons.append(
            f"witness {index.observation.meta.witness} reports fewer records than distinct sequences: "
            "its observation is damaged"
        )
    promised = contract_of_lanes(index.ledger, "no_duplicates")[index.word_lane] if len(words) else extra > 0
    for mask, permitted in ((promised, False), (~promised, True)):
        repeated = np.flatnonzero((extra > 0) & mask)
        worst = repeated[np.argsort(-extra[repeated], kind="stable")][:EXAMPLES].tolist()
        examples = [_duplicate_example(index, i, int(extra[i])) for i in worst]
        out.add("duplicate", "records", int(extra[repeated].sum()), examples, permitted=permitted)


def _duplicate_example(index: VisibilityIndex, i: int, extra: int) -> Example:
    word, lane = index.words[i], int(index.word_lane[i])
    first = int(word["word"]) * WORD_SEQS
    spots = [
        spot
        for spot in index.observation.meta.repeats.examples
        if (spot.producer, spot.lane) == (word["producer"], word["lane"])
        and first <= spot.seq < first + WORD_SEQS
    ]
    where = (
        f"such as sequence {spots[0].seq}" if spots else f"among sequences {first}-{first + WORD_SEQS - 1}"
    )
    topic, partition = index.ledger.places[lane]
    span = OffsetRef(topic, partition, int(word["lo"]), int(word["hi"]))
    return Example(
        what=f"{lane_name(index.ledger, lane)}: {extra} readable records repeat an earlier one, {where}"
        + (f" ({spots[0].detail})" if spots and spots[0].detail else ""),
        weight=extra,
        witness=index.observation.meta.witness,
        lines=_lines_of(index, lane, spots[0].seq if spots else first),
        offsets=place(spots[0]) if spots else [span],
    )


def _lines_of(index: VisibilityIndex, lane: int, seq: int) -> list[HistoryRef]:
    intervals = index.ledger.intervals
    holding = np.flatnonzero((intervals.lane == lane) & (intervals.first <= seq) & (intervals.last >= seq))
    return group_lines(index.ledger, int(intervals.group[holding[0]])) if len(holding) else []


def _phantom(index: VisibilityIndex, out: Collector) -> None:
    ledger, meta = index.ledger, index.observation.meta
    foreign = [
        Example(
            what=f"a record that no client of this run wrote: {spot.detail}",
            witness=meta.witness,
            offsets=place(spot),
        )
        for spot in meta.foreign.examples
    ]
    out.compared += meta.foreign.count
    out.add("phantom", "records", meta.foreign.count, foreign)
    strays = [_stray_example(index, i) for i in range(min(len(index.stray), EXAMPLES))]
    out.add("phantom", "records", int(index.stray["n"].sum()), strays)
    if not len(ledger.lanes):
        return
    lanes = np.arange(len(ledger.lanes))
    total = index.count(lanes, np.zeros_like(lanes), np.full_like(lanes, MAX_SEQ))
    intervals = ledger.intervals
    sent = intervals.fate != NEVER
    known = np.bincount(intervals.lane[sent], index.visible[sent], len(lanes)).astype(np.int64)
    for lane in np.flatnonzero(total > known).tolist():
        out.add("phantom", "records", int(total[lane] - known[lane]), [_phantom_example(index, lane, sent)])


def _phantom_example(index: VisibilityIndex, lane: int, sent: Bools) -> Example:
    intervals = index.ledger.intervals
    sent_here = np.flatnonzero((intervals.lane == lane) & sent)
    first: Ints = np.append(0, intervals.last[sent_here] + 1)
    last: Ints = np.append(intervals.first[sent_here] - 1, MAX_SEQ)
    gaps = np.flatnonzero(index.count(np.full(len(first), lane), first, last))[:EXAMPLES].tolist()
    phantoms = [seq for gap in gaps for seq in index.sequences(lane, int(first[gap]), int(last[gap]))]
    return Example(
        what=f"{lane_name(index.ledger, lane)}: sequences {ranges(phantoms)} can be read but were never sent",
        weight=len(phantoms),
        witness=index.observation.meta.witness,
        lines=_lines_of(index, lane, phantoms[0]),
        offsets=index.offsets(lane, phantoms[0], phantoms[-1]),
    )


def _stray_example(index: VisibilityIndex, i: int) -> Example:
    word, window = index.stray[i], index.observation.window(int(index.stray["partition"][i]))
    producer, lane = int(word["producer"]), int(word["lane"])
    _, declared = index.ledger.lane_index(np.array([lane_key(producer, lane)]))
    why = "the lane belongs to another partition" if declared[0] else "no client declared this lane"
    return Example(
        what=f"{window.topic}-{window.partition} holds {int(word['n'])} records of producer {producer} "
        f"lane {lane}: {why}",
        weight=int(word["n"]),
        witness=index.observation.meta.witness,
        offsets=[OffsetRef(window.topic, window.partition, int(word["lo"]), int(word["hi"]))],
    )
