"""Offsets: all sources report the same record at an offset, and a group's position matches its outputs.

Anomalies:

    two different records are reported at one offset                inconsistent_offset
    a reader was given a record that is now at another offset       inconsistent_offset
    an input before the group's position has no output,             offset_drift
    or an input at or after the position has one

The sources are the producers' acknowledgements and the runs of consecutive records that each witness read.
Two acknowledgements of the same record at one offset do not contradict each other. An offset without a
readable record holds a transaction marker or an aborted record.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import numpy as np

from harness.base.partition_id import PartitionId
from harness.evidence.bit_words import EXAMPLES, WORD_SEQS, Bools, Ints, split_lane_key
from harness.evidence.checkers.ack_words import check_acks_in_words
from harness.evidence.checkers.distinct import RecordSet, Tally
from harness.evidence.checkers.given_records import Gone, gone_records
from harness.evidence.checkers.group_samples import check_group_samples
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef, Result, place
from harness.evidence.checkers.positions import check_positions
from harness.evidence.checkers.visibility_index import (
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
    # Both checks may look at the same offset, which counts once. So take the larger number.
    out.compared = max(_claims(evidence, out), _bounds(evidence, out))
    _moved(evidence, out)
    for view in evidence.committed_views():
        check_acks_in_words(visibility_of(evidence, view), _homes(evidence.ledger), out)
    if evidence.expect.pipeline is not None:
        check_positions(evidence, evidence.expect.pipeline, out)
    check_group_samples(evidence, out)
    return out.result()


def _numbered_places(ledger: Ledger) -> dict[PartitionId, int]:
    """Return a number for each partition that a client declared."""
    return {place: i for i, place in enumerate(sorted(set(ledger.places)))}


def _homes(ledger: Ledger) -> Ints:
    """Return the number of each lane's partition."""
    places = _numbered_places(ledger)
    return np.array([places[place] for place in ledger.places], np.int64)


def _clashes(evidence: Evidence, out: Collector) -> None:
    """Report offsets at which one witness read two records.

    A witness reads most offsets only once. It does not count those that it read again, so they do not count
    as compared.
    """
    for observation in evidence.observations:
        if observation.meta.purpose == "outputs":
            continue  # there, a clash is a record with two tokens: the property `contract` reports it
        clashes, witness = observation.meta.clashes, observation.meta.witness
        examples = [
            Example(
                what=f"two records were read at offset {spot.offset} of {spot.topic}-{spot.partition}: "
                f"sequence {spot.seq} of producer {spot.producer} and sequence {spot.other_seq}",
                witness=witness,
                offsets=place(spot),
            )
            for spot in clashes.examples
        ]
        named = frozenset((spot.topic, spot.partition, spot.offset) for spot in clashes.examples)
        found = Tally({"clash": clashes.count}, {"clash": named})
        out.add("inconsistent_offset", "offsets", found, examples, witness=witness)


def _moved(evidence: Evidence, out: Collector) -> None:
    """Find records that a reader was given at one offset, and that a witness read only at other offsets."""
    ledger = evidence.ledger
    home, durable = _homes(ledger), contract_of_lanes(ledger, "no_loss")
    for gone in gone_records(evidence):
        for permitted in (False, True):
            moved = gone.rows(~gone.absent & (durable[gone.lane] != permitted))
            found = RecordSet.of_intervals(home[moved.lane], moved.offset, moved.offset)
            examples = [_moved_example(moved, i) for i in range(min(len(moved.lane), EXAMPLES))]
            out.add(
                "inconsistent_offset",
                "offsets",
                found,
                examples,
                permitted=permitted,
                witness=gone.index.name,
            )


def _moved_example(moved: Gone, i: int) -> Example:
    lane, seq, offset = int(moved.lane[i]), int(moved.seq[i]), int(moved.offset[i])
    name = moved.reader.name
    topic, partition = moved.index.ledger.places[lane]
    return Example(
        what=f"{lane_name(moved.index.ledger, lane)}: {name} was given sequence {seq} at offset {offset}, "
        "but it can be read only at another offset",
        witness=moved.index.name,
        lines=[HistoryRef(name, int(moved.line[i]))] if moved.line[i] else [],
        offsets=[OffsetRef(topic, partition, offset, offset), *moved.index.offsets(lane, seq, seq)],
    )


def _claims(evidence: Evidence, out: Collector) -> int:
    """Compare the overlapping claims of all sources, and return the number of offsets compared.

    A claim is a report that certain records are at a range of offsets.
    """
    ledger = evidence.ledger
    places = _numbered_places(ledger)
    tables = [_acks(ledger)]
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
    compared = 0
    for permitted, chosen in ((False, claims[durable]), (True, claims[: 0 if durable.all() else None])):
        before, after, offsets = _contradictions(chosen)
        compared = max(compared, offsets)
        if permitted:
            loose = (chosen[before, 8] & chosen[after, 8]) == 0
            before, after = before[loose], after[loose]
        examples: dict[Hashable, Example] = {
            (int(chosen[b, 0]), int(chosen[b, 1])): _claim_example(
                ledger, chosen[a], chosen[b], names, sources
            )
            for a, b in zip(before[:EXAMPLES].tolist(), after[:EXAMPLES].tolist(), strict=True)
        }
        found = RecordSet.of_intervals(
            chosen[after, 0], chosen[after, 1], np.minimum(chosen[before, 2], chosen[after, 2]) - 1
        )
        out.add("inconsistent_offset", "offsets", found, examples, permitted=permitted)
    return compared


def _contradictions(claims: Ints) -> tuple[Ints, Ints, int]:
    """Return the pairs of claims that contradict each other, and the number of offsets in several claims.

    Two claims contradict each other if they overlap and report different records. The claims must be sorted
    by place and offset. The pairs are two columns of row numbers.
    """
    if len(claims) < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    ends = (claims[:, 0] << _PLACE_SHIFT) + claims[:, 2]
    furthest = np.maximum.accumulate(ends)
    # Compare each claim with only one earlier claim: the one that reaches the highest offset. If a claim
    # overlaps any earlier claim, it also overlaps this one.
    reach = np.maximum.accumulate(np.where(ends == furthest, np.arange(len(ends)), 0))
    before, after = reach[:-1], np.arange(1, len(ends))
    starts = (claims[after, 0] << _PLACE_SHIFT) + claims[after, 1]
    overlap = furthest[:-1] > starts
    differ = np.any(claims[before, 3:6] != claims[after, 3:6], axis=1)
    pairs = np.flatnonzero(overlap & differ)
    # The overlaps are sorted by their starts. Count the offsets of their union.
    first, end = starts[overlap], np.minimum(furthest[:-1], ends[1:])[overlap]
    counted = np.maximum.accumulate(np.append(0, end))[:-1]
    offsets = np.maximum(end - np.maximum(first, counted), 0)
    return before[pairs], after[pairs], int(offsets.sum())


def _acks(ledger: Ledger) -> Ints:
    acks = ledger.acks
    if not len(acks):
        return np.zeros((0, 9), np.int64)
    home = _homes(ledger)
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


def _bounds(evidence: Evidence, out: Collector) -> int:
    """Find acknowledged offsets at which a witness cannot have read the record.

    For each word, an observation has the lowest and the highest offset at which its records were read. The
    acknowledged offset of a record must be in the range of its word. Compare the first and the last record of
    each acknowledgement; return the number of their offsets.
    """
    acks = evidence.ledger.acks
    compared = np.zeros((2, len(acks)), np.bool_)
    for observation in evidence.committed_views() if len(acks) else ():
        index = visibility_of(evidence, observation)
        for row, end in enumerate((1, 2)):
            compared[row] |= _bounds_of(index, end, out)
    return int(compared[0].sum() + (compared[1] & (acks[:, 1] != acks[:, 2])).sum())


def _bounds_of(index: VisibilityIndex, end: int, out: Collector) -> Bools:
    """Check one record of each acknowledgement; `end` is the column of `acks` with its sequence."""
    acks, words = index.ledger.acks, index.words
    if not len(words):
        return np.zeros(len(acks), np.bool_)
    home, durable = _homes(index.ledger), contract_of_lanes(index.ledger, "no_loss")
    lane, seq = acks[:, 0], acks[:, end]
    offset = acks[:, 3] + seq - acks[:, 1]
    at = index.word_at(lane, seq // WORD_SEQS)
    read = index.count(lane, seq, seq) > 0
    outside = read & ((offset < words["lo"][at]) | (offset > words["hi"][at]))
    for permitted in (False, True):
        misplaced = np.flatnonzero(outside & (durable[lane] != permitted))
        examples = [
            _bounds_example(index, i, int(seq[i]), int(offset[i])) for i in misplaced[:EXAMPLES].tolist()
        ]
        found = RecordSet.of_intervals(home[lane[misplaced]], offset[misplaced], offset[misplaced])
        out.add("inconsistent_offset", "offsets", found, examples, permitted=permitted, witness=index.name)
    return read


def _bounds_example(index: VisibilityIndex, i: int, seq: int, offset: int) -> Example:
    lane, line = int(index.ledger.acks[i, 0]), int(index.ledger.acks[i, 4])
    topic, partition = index.ledger.places[lane]
    producer = split_lane_key(int(index.ledger.lanes[lane]))[0]
    return Example(
        what=f"{lane_name(index.ledger, lane)}: sequence {seq} was acknowledged at offset {offset} "
        "but is read at another offset",
        witness=index.name,
        lines=[HistoryRef(index.ledger.client_of(producer), line)],
        offsets=[OffsetRef(topic, partition, offset, offset), *index.offsets(lane, seq, seq)],
    )
