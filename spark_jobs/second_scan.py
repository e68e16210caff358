"""Second scans: they read doubtful words or lanes again, and return rows for single records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from harness.evidence.bit_words import (
    EXAMPLES,
    WORD_SEQS,
    Bools,
    Ints,
    Words,
    group_starts,
    single_bits,
    unite,
)
from spark_jobs import scan_rows as row
from spark_jobs.lane_runs import Highest, Places
from spark_jobs.record_columns import (
    ORIGIN_SAME,
    field_of,
    is_output,
    number,
    origin_sequences,
    same_as_before,
)
from spark_jobs.record_reader import UNFOLDED, Reader, portions
from spark_jobs.scan_pass import Batches, Wanted

_WORD_SHIFT = 40
_NAMES = ("origin_producer", "origin_lane", "part")


class WordSet(NamedTuple):
    """A set of words, stored as sorted columns.

    Each word has the packed key of its lane, its number and its bits.
    """

    lanes: Ints
    """Packed keys of the lanes, sorted."""
    keys: Ints
    """One number per word, sorted. It combines the lane's index in `lanes` with the number of the word."""
    bits: Words

    @classmethod
    def of(cls, lane: Ints, word: Ints, bits: Words | None = None) -> WordSet:
        """Build a set from columns of words.

        If several rows have the same lane and word number, their bits are combined.
        """
        lanes = np.unique(lane)
        keys = (np.searchsorted(lanes, lane) << _WORD_SHIFT) + word
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = group_starts(keys)
        bits = np.zeros((len(keys), 4), np.uint64) if bits is None else bits[order]
        return cls(lanes, keys[starts], unite(bits, starts))

    def find(self, lane: Ints, word: Ints) -> Ints:
        """Return the index of each given word in the set, or -1 if the set does not contain it."""
        if not len(self.keys):
            return np.full(len(lane), -1, np.int64)
        index = np.minimum(np.searchsorted(self.lanes, lane), len(self.lanes) - 1)
        key = (index << _WORD_SHIFT) + word
        at = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        position: Ints = np.where((self.lanes[index] == lane) & (self.keys[at] == key), at, -1)
        return position

    def has(self, lane: Ints, seq: Ints) -> Bools:
        """Return a mask that is True for each of the given records that is in the set."""
        at = self.find(lane, seq // WORD_SEQS)
        if not len(self.keys):
            return at >= 0
        return (at >= 0) & (self.bits[at] & single_bits(seq)).any(axis=1)

    def with_seqs(self, lane: Ints, seq: Ints) -> WordSet:
        """Return a set with the records of this set and the given records."""
        known = self.lanes[self.keys >> _WORD_SHIFT] if len(self.keys) else self.keys
        words = self.keys & ((1 << _WORD_SHIFT) - 1)
        return WordSet.of(
            np.append(known, lane),
            np.append(words, seq // WORD_SEQS),
            np.concatenate([self.bits.reshape(-1, 4), single_bits(seq)]),
        )


def scan_records(wanted: Wanted, words: WordSet) -> Callable[[Batches], Batches]:
    """Return a function for mapInArrow that yields one row for every record of the given words."""

    def run(batches: Batches) -> Batches:
        reader = Reader(wanted.run)
        for decoded in reader.decoded(batches):
            lane, seq, offset = decoded.records()
            matching = np.flatnonzero(words.find(lane, seq // WORD_SEQS) >= 0)
            if len(matching):
                yield _record_rows(row.RECORD, lane[matching], seq[matching], offset[matching], reader)

    return run


def scan_outputs(wanted: Wanted, inputs: WordSet) -> Callable[[Batches], Batches]:
    """Return a function for mapInArrow that yields one row for every output of the given inputs.

    `inputs` is a set of words; an output is yielded if its input is in one of these words.
    """

    def run(batches: Batches) -> Batches:
        reader = Reader(wanted.run)
        for decoded in reader.decoded(batches):
            outputs = np.flatnonzero(decoded.of_rows(is_output(decoded.table, decoded.heads)))
            if not len(outputs):
                continue
            table = np.ascontiguousarray(decoded.table[outputs])
            places = Places(decoded.places.offset[outputs], decoded.places.n[outputs])
            same = same_as_before(table, ORIGIN_SAME)
            seq, offset = places.unfolded(origin_sequences(table, same), places.offset)
            window, producer, lane, part = (
                np.repeat(column, places.n)
                for column in (decoded.window[outputs], *(number(table, field_of(n)) for n in _NAMES))
            )
            key = row.pack(np.zeros_like(seq), part, producer, lane)
            matching = np.flatnonzero(inputs.find(key, seq // WORD_SEQS) >= 0)
            if len(matching):
                columns = {"window": window, "producer": producer, "lane": lane, "part": part}
                columns |= {"word": seq, "lo": offset}
                columns = {name: column[matching] for name, column in columns.items()}
                yield row.to_batch({**columns, "n": 1, "kind": row.OUTPUT}, len(matching))

    return run


def _record_rows(
    kind: int, lane: Ints, seq: Ints, offset: Ints, reader: Reader, **more: Ints | int
) -> pa.RecordBatch:
    parts = row.unpack(lane)
    columns = {"window": parts.window, "producer": parts.producer, "lane": parts.lane, "word": seq}
    names = pa.array(reader.names).take(pa.array(parts.run))
    return row.to_batch({**columns, "run": names, "lo": offset, "n": 1, "kind": kind, **more}, len(seq))


class LateScan:
    """Scan for late records of given lanes.

    A record is late if a record with a higher sequence of its lane was read before it. Only the first
    appearance of each record counts: a record that appeared before, in this partition or in one with a lower
    number, is a repeat and not late. `earlier` is the set of records that occur in a partition with a lower
    number.
    """

    def __init__(self, wanted: Wanted, lanes: Ints, earlier: WordSet) -> None:
        self.reader = Reader(wanted.run)
        self.lanes = lanes
        self.known = earlier
        self._highest = Highest()
        self._counts: dict[int, int] = {}

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Process one batch, and yield rows for late records: at most EXAMPLES for each lane."""
        decoded = self.reader.read(batch)
        if decoded is None:
            return
        lane, seq, offset = decoded.records()
        chosen = np.flatnonzero(np.isin(lane, self.lanes))
        lane, seq, offset = lane[chosen], seq[chosen], offset[chosen]
        first = self._first_here(lane, seq) & ~self.known.has(lane, seq)
        lane, seq, offset = lane[first], seq[first], offset[first]
        if not len(seq):
            return
        self.known = self.known.with_seqs(lane, seq)
        highest, leader = self._highest.before(lane, seq, offset)
        late = np.flatnonzero(seq < highest)
        kept = []
        for i in late.tolist():
            count = self._counts[int(lane[i])] = self._counts.get(int(lane[i]), 0) + 1
            if count <= EXAMPLES:
                kept.append(i)
        if kept:
            yield _record_rows(
                row.LATE,
                lane[kept],
                seq[kept],
                offset[kept],
                self.reader,
                n=0,
                b0=highest[kept],
                hi=leader[kept],
            )

    def _first_here(self, lane: Ints, seq: Ints) -> Bools:
        order = np.lexsort((np.arange(len(seq)), seq, lane))
        first = np.zeros(len(seq), np.bool_)
        first[order[group_starts(lane[order], seq[order])]] = True
        return first

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield one row for each lane that has late records, with the number of these records."""
        if self._counts:
            lanes = np.array(list(self._counts), np.int64)
            counts = np.array(list(self._counts.values()), np.int64)
            nowhere = np.full(len(lanes), -1, np.int64)
            yield _record_rows(row.LATE, lanes, nowhere, nowhere, self.reader, n=counts)


def scan_late(wanted: Wanted, lanes: Ints, earlier: WordSet) -> Callable[[Batches], Batches]:
    """Return a function for mapInArrow that finds and counts the late records of given lanes.

    One Spark task must read all records of a partition, in offset order.
    """

    def run(batches: Batches) -> Batches:
        scan = LateScan(wanted, lanes, earlier)
        for batch in portions(batches, UNFOLDED):
            yield from scan.feed(batch)
        yield from scan.finish()

    return run
