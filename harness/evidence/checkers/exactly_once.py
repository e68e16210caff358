"""Exactly once: every committed record can be read exactly once, and every readable record was sent.

Anomalies:

    a committed record cannot be read             lost        (permitted without acks=all)
    a reader was given a record that is gone      lost        (likewise)
    a record can be read more than once           duplicate   (permitted without idempotence)
    a record can be read that was never sent      phantom

A record with an unknown outcome may be readable or not. But once a read_committed reader was given the
record, it must stay readable. Only a witness that read to the end of the partition can prove a loss.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from harness.evidence.bit_words import EXAMPLES, WORD_SEQS, Bools, Ints, lane_key, popcount
from harness.evidence.checkers.causes import cause_text
from harness.evidence.checkers.client_ends import producers_without_history
from harness.evidence.checkers.distinct import Copies, RecordSet, Tally, expand, key_of_words
from harness.evidence.checkers.given_records import Gone, gone_records, sent_later, undecided_reads
from harness.evidence.checkers.interval_sums import count_records, sum_by
from harness.evidence.checkers.model import (
    Collector,
    Evidence,
    Example,
    HistoryRef,
    OffsetRef,
    Result,
    join_names,
    place,
)
from harness.evidence.checkers.promotion import judge_promoted, promote, proof_of
from harness.evidence.checkers.visibility_index import (
    VisibilityIndex,
    compacted_lanes,
    contract_of_lanes,
    group_lines,
    group_name,
    lane_name,
    ranges,
    visibility_of,
)
from harness.evidence.ledger import COMMITTED, NEVER, OPEN_END, UNKNOWN, Ledger
from harness.evidence.observation import Rows
from harness.evidence.record import MAX_SEQ

LARGE_SHARE = 0.2
"""Share of records with an unknown outcome from which on a note reports it."""


def check(evidence: Evidence) -> Result:
    """Compare every read_committed witness with the ledger, record by record.

    `compared` is the number of records that were certainly committed, and that a witness must have read.
    """
    out = Collector("exactly_once", "committed records")
    intervals = evidence.ledger.intervals
    judged = np.zeros(len(intervals.lane), np.bool_)
    covered = judged.copy()
    for observation in evidence.committed_views():
        index = visibility_of(evidence, observation)
        if len(judged):
            expected = _expected(index)
            judged |= (intervals.fate == COMMITTED) & expected
            covered |= index.covered[intervals.lane]
            _lost(evidence, index, expected, out)
        _duplicate(index, out)
        _phantom(evidence, index, out)
    for gone in gone_records(evidence):
        _gone(evidence, gone, out)
    out.reasons += undecided_reads(evidence)
    out.reasons += _unread(evidence.ledger, (intervals.fate == COMMITTED) & covered & ~judged)
    out.compared = count_records(intervals, judged)
    if not out.compared:
        out.reasons += unknown_share(evidence.ledger, 0.0)
    return out.result()


def unknown_share(ledger: Ledger, least: float = LARGE_SHARE) -> list[str]:
    """Return a sentence on the share of records with an unknown outcome, if it is above `least`."""
    intervals = ledger.intervals
    sent = (intervals.fate != NEVER) & (intervals.last < OPEN_END)
    total = count_records(intervals, sent)
    unknown = count_records(intervals, sent & (intervals.fate == UNKNOWN))
    if unknown <= least * total:
        return []
    return [
        f"the outcome of {unknown} of the {total} sent records ({unknown / total:.0%}) is unknown: "
        "a loss of these records cannot be found unless a reader was given them"
    ]


def _expected(index: VisibilityIndex) -> Bools:
    """Return which intervals a witness must have read if they are committed."""
    intervals = index.ledger.intervals
    later = sent_later(index.ledger, index.observation.meta)
    return index.covered[intervals.lane] & ~later[intervals.group]


def _unread(ledger: Ledger, chosen: Bools) -> list[str]:
    """Return a reason if committed records were acknowledged only after each witness captured the ends."""
    if not chosen.any():
        return []
    intervals = ledger.intervals
    records = count_records(intervals, chosen)
    name = group_name(ledger, int(intervals.group[np.flatnonzero(chosen)[0]]))
    return [
        f"{records} committed records were acknowledged after the witnesses captured the ends of the "
        f"partitions, such as those of {name}"
    ]


def _lost(evidence: Evidence, index: VisibilityIndex, expected: Bools, out: Collector) -> None:
    intervals = index.ledger.intervals
    fate = np.where(
        judge_promoted(evidence, index).lost[intervals.group], promote(evidence).intervals, intervals.fate
    )
    judged = (fate == COMMITTED) & expected
    rows = np.flatnonzero(judged & index.short)
    lane, first, last = intervals.lane[rows].astype(np.int64), intervals.first[rows], intervals.last[rows]
    missing = last - first + 1 - index.visible[rows]
    compacted = compacted_lanes(evidence)[lane]
    if removed := int(missing[compacted].sum()):
        out.reasons.append(
            f"{index.name} did not read {removed} committed records of compacted topics: a broker may have "
            "removed them, or they are lost"
        )
        missing[compacted] = 0
    promised = contract_of_lanes(index.ledger, "no_loss")[lane]
    for mask, permitted in ((promised, False), (~promised, True)):
        lost = np.flatnonzero((missing > 0) & mask)
        worst = lost[np.argsort(-missing[lost], kind="stable")][:EXAMPLES].tolist()
        examples = [_lost_example(evidence, index, int(rows[i]), int(missing[i])) for i in worst]
        records = index.missing_in(lane[lost], first[lost], last[lost])
        out.add("lost", "records", records, examples, permitted=permitted, witness=index.name)


def _lost_example(evidence: Evidence, index: VisibilityIndex, i: int, missing: int) -> Example:
    ledger, intervals = index.ledger, index.ledger.intervals
    lane, first, last = int(intervals.lane[i]), int(intervals.first[i]), int(intervals.last[i])
    group = int(intervals.group[i])
    lines = group_lines(ledger, group)
    reason = "was acknowledged"
    if intervals.fate[i] != COMMITTED:
        readers, polls = proof_of(evidence, group)
        reason = f"was read by {join_names(readers)}"
        lines += polls
    return Example(
        what=f"{group_name(ledger, group)} {reason}, but {missing} of its records cannot be read: "
        f"{lane_name(ledger, lane)} sent {first}-{last}, missing are {index.missing(lane, first, last)}"
        f"{cause_text(evidence, group)}",
        weight=missing,
        witness=index.name,
        lines=lines,
        offsets=index.offsets(lane, first, last),
    )


def _gone(evidence: Evidence, gone: Gone, out: Collector) -> None:
    """Find records that a reader was given, and that a witness should have read but did not.

    A record that no client sent, or of an aborted transaction, is another anomaly.
    """
    ledger, index = evidence.ledger, gone.index
    if not len(ledger.intervals.lane):
        return
    at, known = ledger.interval_at(gone.lane, gone.seq)
    fate = ledger.intervals.fate[at]
    kept = ~compacted_lanes(evidence)[gone.lane]
    lost = gone.rows(gone.absent & known & kept & ((fate == COMMITTED) | (fate == UNKNOWN)))
    promised = contract_of_lanes(ledger, "no_loss")[lost.lane]
    for mask, permitted in ((promised, False), (~promised, True)):
        records = lost.rows(mask)
        found = RecordSet.of_intervals(records.lane, records.seq, records.seq)
        out.add(
            "lost",
            "records",
            found,
            _gone_examples(evidence, records),
            permitted=permitted,
            witness=index.name,
        )


def _gone_examples(evidence: Evidence, gone: Gone) -> dict[Hashable, Example]:
    """Describe the records that are gone, one example for each poll, if no other example describes them."""
    ledger, index = evidence.ledger, gone.index
    at, _ = ledger.interval_at(gone.lane, gone.seq)
    described = (ledger.intervals.fate[at] == COMMITTED) | judge_promoted(evidence, index).lost[
        ledger.intervals.group[at]
    ]
    gone = gone.rows(~(described & index.covered[gone.lane]))
    _, starts, sizes = np.unique(
        np.column_stack([gone.line, gone.lane]), axis=0, return_index=True, return_counts=True
    )
    examples: dict[Hashable, Example] = {}
    for i in starts[np.argsort(-sizes, kind="stable")][:EXAMPLES].tolist():
        mine = (gone.line == gone.line[i]) & (gone.lane == gone.lane[i])
        lane, line, name = int(gone.lane[i]), int(gone.line[i]), gone.reader.name
        sequences, offsets = gone.seq[mine], gone.offset[mine]
        topic, partition = ledger.places[lane]
        group = int(ledger.intervals.group[ledger.interval_at(gone.lane[i : i + 1], sequences[:1])[0][0]])
        example = Example(
            what=f"{name} was given sequences {ranges(sequences.tolist())} of {lane_name(ledger, lane)} at "
            f"offsets {ranges(offsets.tolist())}, but these records cannot be read any more",
            weight=len(sequences),
            witness=index.name,
            lines=[*([HistoryRef(name, line)] if line else []), *group_lines(ledger, group)],
            offsets=[OffsetRef(topic, partition, int(offsets.min()), int(offsets.max()))],
        )
        # Several readers that were given the same records are one case.
        examples[lane, ranges(sequences.tolist())] = example
    return examples


def _duplicate(index: VisibilityIndex, out: Collector) -> None:
    words = index.words
    distinct = popcount(words["bits"])
    extra = words["n"] - distinct
    if np.any(extra < 0):
        out.reasons.append(
            f"witness {index.name} reports fewer records than distinct sequences: its observation is damaged"
        )
    promised = contract_of_lanes(index.ledger, "no_duplicates")[index.word_lane] if len(words) else extra > 0
    for mask, permitted in ((promised, False), (~promised, True)):
        repeated = np.flatnonzero((extra > 0) & mask)
        worst = repeated[np.argsort(-extra[repeated], kind="stable")][:EXAMPLES].tolist()
        examples: dict[Hashable, Example] = {
            (int(index.word_lane[i]), int(words["word"][i])): _duplicate_example(index, i, int(extra[i]))
            for i in worst
        }
        keys = key_of_words(index.word_lane[repeated], words["word"][repeated])
        copies = Copies(keys, extra[repeated], _copies(index, keys))
        out.add("duplicate", "records", copies, examples, permitted=permitted, witness=index.name)


def _copies(index: VisibilityIndex, keys: Ints) -> Ints:
    """Return the copies of records in the words with these keys, as far as the witness names them.

    The columns are: key of the word, sequence, offset. The first copy of each record is left out.
    """
    runs = index.observation.runs
    if runs is None or not len(keys):
        named = index.observation.meta.repeats.examples
        spots = [(s.producer, s.lane, s.seq, s.offset) for s in named if index.is_home(s)]
        table = np.array(spots, np.int64).reshape(-1, 4)
        lane, _ = index.ledger.lane_index(lane_key(table[:, 0], table[:, 1]))
        rows = np.column_stack([key_of_words(lane, table[:, 2] // WORD_SEQS), table[:, 2:]])
        return rows[np.isin(rows[:, 0], keys)]
    lane, known = index.ledger.lane_index(lane_key(runs["producer"].astype(np.int64), runs["lane"]))
    known &= np.isin(lane, keys >> 32) & (runs["partition"] == index.homes[lane])
    runs, lane = runs[known], lane[known]
    owner, step = expand(runs["count"])
    seq = runs["seq"][owner] + step
    rows = np.column_stack([key_of_words(lane[owner], seq // WORD_SEQS), seq, runs["offset"][owner] + step])
    rows = rows[np.isin(rows[:, 0], keys)]
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
    again = np.zeros(len(rows), np.bool_)
    again[1:] = np.all(rows[1:, :2] == rows[:-1, :2], axis=1)
    return rows[again]


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
        witness=index.name,
        lines=_lines_of(index, lane, spots[0].seq if spots else first),
        offsets=place(spots[0]) if spots else [span],
    )


def _lines_of(index: VisibilityIndex, lane: int, seq: int) -> list[HistoryRef]:
    intervals = index.ledger.intervals
    holding = np.flatnonzero((intervals.lane == lane) & (intervals.first <= seq) & (intervals.last >= seq))
    return group_lines(index.ledger, int(intervals.group[holding[0]])) if len(holding) else []


def _phantom(evidence: Evidence, index: VisibilityIndex, out: Collector) -> None:
    ledger, meta = index.ledger, index.observation.meta
    foreign: dict[Hashable, Example] = {
        (spot.topic, spot.partition, spot.offset): Example(
            what=f"a record that no client of this run wrote: {spot.detail}",
            witness=index.name,
            offsets=place(spot),
        )
        for spot in meta.foreign.examples
    }
    found = Tally({"foreign": meta.foreign.count}, {"foreign": frozenset(foreign)})
    without_history = producers_without_history(evidence)
    stray = index.stray[~np.isin(index.stray["producer"], [*_contradictory(ledger), *without_history])]
    for number in np.unique(index.stray["producer"]).tolist():
        if name := without_history.get(number):
            out.reasons.append(
                f"{index.name} read records of producer {number}, which no history declares: the history of "
                f"client {name} is missing or incomplete"
            )
    found |= _stray_tally(index, stray)
    strays = [_stray_example(index, row) for row in stray[:EXAMPLES]]
    foreign |= {example.what: example for example in strays}
    out.add("phantom", "records", found, foreign, witness=index.name)
    if not len(ledger.lanes):
        return
    lanes = np.arange(len(ledger.lanes))
    total = index.count(lanes, np.zeros_like(lanes), np.full_like(lanes, MAX_SEQ))
    intervals = ledger.intervals
    sent = intervals.fate != NEVER
    known = sum_by(intervals.lane, len(lanes), lambda part: index.visible[part] * sent[part])
    for lane in np.flatnonzero(total > known).tolist():
        first, last = _gaps(index, lane, sent)
        records = index.read_in(np.full(len(first), lane), first, last)
        out.add("phantom", "records", records, [_phantom_example(index, lane, records)], witness=index.name)


def _gaps(index: VisibilityIndex, lane: int, sent: Bools) -> tuple[Ints, Ints]:
    """Return the first and the last sequence of each gap between sends in which records were read."""
    intervals = index.ledger.intervals
    sent_here = np.flatnonzero((intervals.lane == lane) & sent)
    first: Ints = np.append(0, intervals.last[sent_here] + 1)
    last: Ints = np.append(intervals.first[sent_here] - 1, MAX_SEQ)
    used = np.flatnonzero((first <= last) & (index.count(np.full(len(first), lane), first, last) > 0))
    return first[used], last[used]


def _phantom_example(index: VisibilityIndex, lane: int, records: RecordSet) -> Example:
    ((_, phantoms),) = records.first(EXAMPLES)
    return Example(
        what=f"{lane_name(index.ledger, lane)}: sequences {ranges(phantoms)} can be read but were never sent",
        weight=len(phantoms),
        witness=index.name,
        lines=_lines_of(index, lane, phantoms[0]),
        offsets=index.offsets(lane, phantoms[0], phantoms[-1]),
    )


def _contradictory(ledger: Ledger) -> list[int]:
    """Return the producers whose declarations do not show which partition a lane belongs to."""
    return [number for number, declared in ledger.producers.items() if declared.is_contradictory]


def _stray_tally(index: VisibilityIndex, stray: Rows) -> Tally:
    """Count the records in partitions or lanes that no client declared, for each of their words."""
    places = [(w.topic, w.partition) for w in index.observation.meta.windows]
    columns = (stray[name].tolist() for name in ("partition", "producer", "lane", "word", "n"))
    return Tally({(places[p], *rest): n for p, *rest, n in zip(*columns, strict=True)})


def _stray_example(index: VisibilityIndex, word: Any) -> Example:
    window = index.observation.window(int(word["partition"]))
    producer, lane = int(word["producer"]), int(word["lane"])
    _, declared = index.ledger.lane_index(np.array([lane_key(producer, lane)]))
    why = "the lane belongs to another partition" if declared[0] else "no client declared this lane"
    return Example(
        what=f"{window.topic}-{window.partition} holds {int(word['n'])} records of producer {producer} "
        f"lane {lane}: {why}",
        weight=int(word["n"]),
        witness=index.name,
        offsets=[OffsetRef(window.topic, window.partition, int(word["lo"]), int(word["hi"]))],
    )
