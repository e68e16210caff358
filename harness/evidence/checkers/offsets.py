"""Offsets: all sources report the same record at an offset, and a group's position matches its outputs.

Anomalies:

    two different records are reported at one offset                inconsistent_offset
    an end of a partition went back (log_ends.py)                   log_truncated
    an input before the group's position has no output,             offset_drift
    or an input at or after the position has one

The sources are the producers' acknowledgements and the runs of consecutive records that each witness read.
Two acknowledgements of the same record at one offset do not contradict each other. An offset without a
readable record holds a transaction marker or an aborted record.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from harness.base.partition_id import PartitionId
from harness.evidence.bit_words import EXAMPLES, WORD_SEQS, Ints, split_lane_key
from harness.evidence.checkers.ack_words import check_acks_in_words
from harness.evidence.checkers.log_ends import check_log_ends
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef, Result, place
from harness.evidence.checkers.positions import check_positions
from harness.evidence.checkers.visibility_index import (
    QUARTER_SHIFT,
    VisibilityIndex,
    contract_of_lanes,
    lane_name,
    visibility_of,
)
from harness.evidence.ledger import Ledger
from harness.evidence.observation import Observation

_PLACE_SHIFT: Final = 44


def check(evidence: Evidence) -> Result:
    """Compare the records that different sources report at an offset.

    Also compare the position of the pipeline's group with its outputs, and the offsets of acknowledged
    records with the offsets that the witnesses read.
    """
    out = Collector("offsets", "offsets reported by two sources")
    _clashes(evidence, out)
    _claims(evidence, out)
    for observation in evidence.committed_views():
        _bounds(visibility_of(evidence, observation), out)
        check_acks_in_words(visibility_of(evidence, observation), out)
    check_log_ends(evidence, out)
    if evidence.expect.pipeline is not None:
        check_positions(evidence, evidence.expect.pipeline, out)
    return out.result()


def _clashes(evidence: Evidence, out: Collector) -> None:
    for observation in evidence.observations:
        clashes, witness = observation.meta.clashes, observation.meta.witness
        examples = [
            Example(
                what=f"{witness} read two records at offset {spot.offset} of {spot.topic}-{spot.partition}: "
                f"sequence {spot.seq} of producer {spot.producer} and sequence {spot.other_seq}",
                witness=witness,
                offsets=place(spot),
            )
            for spot in clashes.examples
        ]
        out.compared += clashes.compared
        out.add("inconsistent_offset", "offsets", clashes.count, examples)


def _claims(evidence: Evidence, out: Collector) -> None:
    """Compare the overlapping claims of all sources.

    A claim is a report that certain records are at a range of offsets.
    """
    ledger = evidence.ledger
    places = {place: i for i, place in enumerate(sorted(set(ledger.places)))}
    tables = [_acks(ledger, places)]
    sources = ["an acknowledgement"]
    for observation in evidence.observations:
        if observation.runs is not None and len(observation.runs):
            tables.append(_runs(observation, places, len(sources)))
            sources.append(observation.meta.witness)
    # Each claim is a row of nine columns: place (index of topic and partition), first offset, end (the offset
    # after the last one), producer, lane, first sequence minus first offset, source (index into `sources`),
    # line number in the history (0 for a witness), durable (0 or 1).
    claims = np.concatenate(tables)
    claims = claims[np.lexsort((claims[:, 2], claims[:, 1], claims[:, 0]))]
    names = {i: place for place, i in places.items()}
    durable = claims[:, 8] == 1
    # Compare the durable claims first, without the other claims. A claim is durable if a witness read the
    # records, or if Kafka guarantees that the producer's acknowledged records are not lost. Two witnesses may
    # contradict each other. A claim that is not durable could be sorted between their claims and hide this.
    for permitted, chosen in ((False, claims[durable]), (True, claims[: 0 if durable.all() else None])):
        pairs, overlaps = _contradictions(chosen)
        out.compared += 0 if permitted else overlaps
        contradictions = [(a, b) for a, b in pairs if not permitted or not (chosen[a, 8] and chosen[b, 8])]
        examples = [
            _claim_example(ledger, chosen[a], chosen[b], names, sources) for a, b in contradictions[:EXAMPLES]
        ]
        out.add("inconsistent_offset", "offsets", len(contradictions), examples, permitted=permitted)


def _contradictions(claims: Ints) -> tuple[list[tuple[int, int]], int]:
    """Return the pairs of claims that contradict each other, and the number of all overlapping pairs.

    Two claims contradict each other if they overlap and report different records. The claims must be sorted
    by place and offset.
    """
    if len(claims) < 2:
        return [], 0
    ends = (claims[:, 0] << _PLACE_SHIFT) + claims[:, 2]
    furthest = np.maximum.accumulate(ends)
    # Compare each claim with only one earlier claim: the one that reaches the highest offset. If a claim
    # overlaps any earlier claim, it also overlaps this one.
    reach = np.maximum.accumulate(np.where(ends == furthest, np.arange(len(ends)), 0))
    before, after = reach[:-1], np.arange(1, len(ends))
    overlap = furthest[:-1] > (claims[after, 0] << _PLACE_SHIFT) + claims[after, 1]
    differ = np.any(claims[before, 3:6] != claims[after, 3:6], axis=1)
    pairs = np.flatnonzero(overlap & differ)
    return list(zip(before[pairs].tolist(), after[pairs].tolist(), strict=True)), int(overlap.sum())


def _acks(ledger: Ledger, places: dict[PartitionId, int]) -> Ints:
    acks = ledger.acks
    if not len(acks):
        return np.zeros((0, 9), np.int64)
    home = np.array([places[place] for place in ledger.places], np.int64)
    durable = contract_of_lanes(ledger, "no_loss")
    lane, first, last, offset, line = acks.T
    return np.column_stack(
        [
            home[lane],
            offset,
            offset + last - first + 1,
            *split_lane_key(ledger.lanes[lane]),
            first - offset,
            np.zeros(len(acks), np.int64),
            line,
            durable[lane],
        ]
    )


def _runs(observation: Observation, places: dict[PartitionId, int], source: int) -> Ints:
    runs = observation.runs
    assert runs is not None
    windows = [(w.topic, w.partition) for w in observation.meta.windows]
    for window in windows:
        places.setdefault(window, len(places))
    home = np.array([places[window] for window in windows], np.int64)
    zeros = np.zeros(len(runs), np.int64)
    return np.column_stack(
        [
            home[runs["partition"]],
            runs["offset"],
            runs["offset"] + runs["count"],
            runs["producer"],
            runs["lane"],
            runs["seq"] - runs["offset"],
            zeros + source,
            zeros,
            zeros + 1,
        ]
    )


def _claim_example(
    ledger: Ledger, before: Ints, after: Ints, names: dict[int, PartitionId], sources: list[str]
) -> Example:
    topic, partition = names[int(after[0])]
    offset = int(after[1])
    reports = [
        f"{sources[int(c[6])]} reports sequence {int(c[5]) + offset} of producer {int(c[3])} lane {int(c[4])}"
        for c in (before, after)
    ]
    lines = [HistoryRef(ledger.client_of(int(c[3])), int(c[7])) for c in (before, after) if c[7]]
    return Example(
        what=f"offset {offset} of {topic}-{partition}: {reports[0]}, {reports[1]}",
        lines=lines,
        offsets=[OffsetRef(topic, partition, offset, offset)],
    )


def _bounds(index: VisibilityIndex, out: Collector) -> None:
    """Find acknowledged offsets at which the witness cannot have read the record.

    For each word, an observation has the lowest and the highest offset at which its records were read. The
    acknowledged offset of a record must be in the range of its word.
    """
    acks, words = index.ledger.acks, index.words
    if not len(acks) or not len(words):
        return
    durable = contract_of_lanes(index.ledger, "no_loss")
    keys = index.keys[::4] >> 2
    for end in (1, 2):
        lane, seq = acks[:, 0], acks[:, end]
        offset = acks[:, 3] + seq - acks[:, 1]
        key = (lane << (QUARTER_SHIFT - 2)) | (seq // WORD_SEQS)
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        read = (keys[at] == key) & (index.count(lane, seq, seq) > 0)
        out.compared += int(read.sum())
        outside = read & ((offset < words["lo"][at]) | (offset > words["hi"][at]))
        for permitted in (False, True):
            misplaced = np.flatnonzero(outside & (durable[lane] != permitted))
            examples = [
                _bounds_example(index, i, int(seq[i]), int(offset[i])) for i in misplaced[:EXAMPLES].tolist()
            ]
            out.add("inconsistent_offset", "offsets", len(misplaced), examples, permitted=permitted)


def _bounds_example(index: VisibilityIndex, i: int, seq: int, offset: int) -> Example:
    lane, line = int(index.ledger.acks[i, 0]), int(index.ledger.acks[i, 4])
    topic, partition = index.ledger.places[lane]
    producer = split_lane_key(int(index.ledger.lanes[lane]))[0]
    return Example(
        what=f"{lane_name(index.ledger, lane)}: sequence {seq} was acknowledged at offset {offset} "
        "but is read at another offset",
        witness=index.observation.meta.witness,
        lines=[HistoryRef(index.ledger.client_of(producer), line)],
        offsets=[OffsetRef(topic, partition, offset, offset), *index.offsets(lane, seq, seq)],
    )
