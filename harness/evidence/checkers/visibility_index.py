"""Index of the sequences that a witness read. It counts the read sequences of many intervals in one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from harness.evidence.bit_words import WORD_SEQS, Bools, Ints, interval_bits, lane_key, split_lane_key
from harness.evidence.checkers.distinct import RecordSet, expand, key_of_words
from harness.evidence.checkers.interval_sums import sizes
from harness.evidence.checkers.model import Evidence, HistoryRef, OffsetRef
from harness.evidence.ledger import Ledger
from harness.evidence.observation import Observation, Rows, Spot

QUARTER_SHIFT: Final = 36
"""Number of low bits of a key that hold the number of a quarter, which is a group of 64 sequences of a lane.

The higher bits hold the index of the lane. 2^36 quarters are enough for all 10^12 possible sequences.
"""

CHUNK: Final = 1 << 16
"""Number of intervals that are processed at a time, to limit the memory for temporary columns."""


class VisibilityIndex:
    """Index of the sequences that one witness read in the declared partition of each lane.

    Words that were read in other partitions, and words of undeclared lanes, are kept in `stray`.
    """

    def __init__(self, ledger: Ledger, observation: Observation) -> None:
        self.ledger = ledger
        self.observation = observation
        words = observation.words
        lane, declared = ledger.lane_index(lane_key(words["producer"].astype(np.int64), words["lane"]))
        windows = {(w.topic, w.partition): i for i, w in enumerate(observation.meta.windows)}
        homes = np.array([windows.get(place, -1) for place in ledger.places], np.int64)
        at_home = declared & (homes[lane] == words["partition"]) if len(homes) else declared
        self.homes = homes
        self.stray: Rows = words[~at_home]
        self.words: Rows = words[at_home]
        self.word_lane = lane[at_home]
        self._index()
        self._visible: Ints | None = None
        self._short: Bools = np.zeros(0, np.bool_)

    @property
    def name(self) -> str:
        """Name of the witness."""
        return self.observation.meta.witness

    def is_home(self, spot: Spot) -> bool:
        """Return whether a record is in the declared partition of its lane."""
        lane, declared = self.ledger.lane_index(np.array([lane_key(spot.producer, spot.lane)]))
        return bool(declared[0]) and self.ledger.places[int(lane[0])] == (spot.topic, spot.partition)

    def _index(self) -> None:
        order = np.lexsort((self.words["word"], self.word_lane))
        self.words, self.word_lane = self.words[order], self.word_lane[order]
        keys = (self.word_lane[:, None] << QUARTER_SHIFT) | (self.words["word"][:, None] * 4 + np.arange(4))
        # Keep 64-bit quarters in which no bit is set. Removing them would require a copy and have no benefit.
        self.keys: Ints = keys.reshape(-1)
        self.bits: np.ndarray[Any, np.dtype[np.uint64]] = np.ascontiguousarray(self.words["bits"]).reshape(-1)
        self.before: Ints = np.zeros(len(self.keys) + 1, np.int64)
        np.cumsum(np.bitwise_count(self.bits), out=self.before[1:])
        self._quarters = _Quarters.of(self.word_lane, self.words["word"], len(self.ledger.lanes))

    def rank(self, lane: Ints, seq: Ints) -> Ints:
        """Return, for each pair of `lane` and `seq`, how many of the sequences before it were read.

        The sequences before it are the lower sequences of the lane, and all sequences of lanes with a lower
        index.
        """
        if not len(self.keys):
            return np.zeros(len(lane), np.int64)
        key = (lane << QUARTER_SHIFT) | (seq >> 6)
        at = (
            np.searchsorted(self.keys, key) if self._quarters is None else self._quarters.rows(lane, seq >> 6)
        )
        inside = np.minimum(at, len(self.keys) - 1)
        mask = (np.uint64(1) << (seq & 63).astype(np.uint64)) - np.uint64(1)
        partial = np.bitwise_count(self.bits[inside] & mask) * (self.keys[inside] == key)
        total: Ints = self.before[at] + partial
        return total

    def count(self, lane: Ints, first: Ints, last: Ints) -> Ints:
        """Return, for each interval, how many of its sequences were read."""
        return self.rank(lane, last + 1) - self.rank(lane, first)

    @property
    def visible(self) -> Ints:
        """For each interval of the ledger, how many of its sequences were read."""
        if self._visible is None:
            intervals = self.ledger.intervals
            most = int(self.before[-1])  # no interval has more readable records than all together
            kind: Any = np.int32 if most < 1 << 31 else np.int64
            out: Any = np.empty(len(intervals.lane), kind)
            self._short = np.empty(len(out), np.bool_)
            for at in range(0, len(out), CHUNK):
                part = slice(at, at + CHUNK)
                out[part] = self._count_neighbours(
                    intervals.lane[part].astype(np.int64), intervals.first[part], intervals.last[part]
                )
                self._short[part] = out[part] < sizes(intervals, part)
            self._visible = out
        return cast(Ints, self._visible)

    def _count_neighbours(self, lane: Ints, first: Ints, last: Ints) -> Ints:
        """Return what `count` returns. Most intervals begin where the one before them ends."""
        before = self.rank(lane, first)
        apart = np.ones(len(lane), np.bool_)
        apart[:-1] = (lane[1:] != lane[:-1]) | (first[1:] != last[:-1] + 1)
        count = np.empty(len(lane), np.int64)
        count[:-1] = before[1:] - before[:-1]
        count[apart] = self.count(lane[apart], first[apart], last[apart])
        return count

    @property
    def short(self) -> Bools:
        """For each interval of the ledger, whether some of its sequences were not read."""
        assert len(self.visible) == len(self._short)
        return self._short

    def word_at(self, lane: Ints, word: Ints) -> Ints:
        """Return the row of each word in `words`. It is the row of another word if the word was not read."""
        at = np.searchsorted(key_of_words(self.word_lane, self.words["word"]), key_of_words(lane, word))
        return np.minimum(at, len(self.words) - 1)

    def orderly(self, lane: Ints) -> Bools:
        """Return, for each lane, whether the witness read its records once and in the order of sequences."""
        meta = self.observation.meta
        disorderly: set[int] = set()
        for findings in (meta.late, meta.repeats):
            if findings.count and not findings.by_producer:
                return np.zeros(len(lane), np.bool_)
            disorderly |= {producer for producer, _ in findings.by_producer}
        producer = split_lane_key(self.ledger.lanes)[0]
        ordered: Bools = ~np.isin(producer, sorted(disorderly))[lane]
        return ordered

    def offset_bounds(self, lane: Ints, seq: Ints) -> tuple[Ints, Ints]:
        """Return the lowest and the highest offset at which each record can have been read.

        The records must have been read. Only the ends of their words are known. If the lane is orderly, each
        record of the word that is below or above takes one offset, and the outermost records are at the ends.
        """
        word = self.word_at(lane, seq // WORD_SEQS)
        low, high = self.words["lo"][word], self.words["hi"][word]
        start = seq // WORD_SEQS * WORD_SEQS
        before = self.count(lane, start, seq) - 1
        after = self.count(lane, seq, start + WORD_SEQS - 1) - 1
        ordered = self.orderly(lane)
        lowest = np.where(ordered, np.where(after == 0, high, low + before), low)
        highest = np.where(ordered, np.where(before == 0, low, high - after), high)
        return lowest, highest

    def read_in(self, lane: Ints, first: Ints, last: Ints) -> RecordSet:
        """Return the records of the given intervals that were read."""
        keys = key_of_words(self.word_lane, self.words["word"])
        low = np.searchsorted(keys, key_of_words(lane, first // WORD_SEQS))
        high = np.searchsorted(keys, key_of_words(lane, last // WORD_SEQS), side="right")
        owner, step = expand(high - low)
        row = low[owner] + step
        start = self.words["word"][row] * WORD_SEQS
        inside = interval_bits(
            np.maximum(first[owner], start), np.minimum(last[owner], start + WORD_SEQS - 1)
        )
        return RecordSet(keys[row], self.words["bits"][row] & inside)

    def read_in_intervals(self, chosen: Bools) -> RecordSet:
        """Return the records of some intervals of the ledger that were read; `chosen` is their mask."""
        intervals = self.ledger.intervals
        return self.read_in(
            intervals.lane[chosen].astype(np.int64), intervals.first[chosen], intervals.last[chosen]
        )

    def missing_in(self, lane: Ints, first: Ints, last: Ints) -> RecordSet:
        """Return the records of the given intervals that were not read."""
        return RecordSet.of_intervals(lane, first, last) - self.read_in(lane, first, last)

    def sequences(self, lane: int, first: int, last: int) -> list[int]:
        """Return the sequences of one interval that were read, in ascending order."""
        key_first, key_last = (lane << QUARTER_SHIFT) | (first >> 6), (lane << QUARTER_SHIFT) | (last >> 6)
        low, high = np.searchsorted(self.keys, [key_first, key_last + 1]).tolist()
        sequences: list[int] = []
        for key, bits in zip(self.keys[low:high].tolist(), self.bits[low:high].tolist(), strict=True):
            base = (key & ((1 << QUARTER_SHIFT) - 1)) << 6
            sequences += [base + bit for bit in range(64) if bits >> bit & 1 and first <= base + bit <= last]
        return sequences

    def missing(self, lane: int, first: int, last: int) -> str:
        """Return the sequences of one interval that were not read, formatted as ranges."""
        read = set(self.sequences(lane, first, last))
        return ranges([seq for seq in range(first, last + 1) if seq not in read])

    def offsets(self, lane: int, first: int, last: int) -> list[OffsetRef]:
        """Return the range from the lowest to the highest offset of the words that an interval touches.

        The list is empty if none of these words was read.
        """
        inside = (self.word_lane == lane) & (self.words["word"] >= first // WORD_SEQS)
        rows = self.words[inside & (self.words["word"] <= last // WORD_SEQS)]
        if not len(rows):
            return []
        topic, partition = self.ledger.places[lane]
        return [OffsetRef(topic, partition, int(rows["lo"].min()), int(rows["hi"].max()))]

    @property
    def covered(self) -> Bools:
        """For each lane, whether the witness read its partition from offset 0 to the high watermark.

        Only then is a missing record a lost record. While the last stable offset is behind the high
        watermark, committed records between these two offsets cannot be read yet. Records below the log's
        first offset may have been deleted by retention.
        """
        meta = self.observation.meta
        whole = [meta.complete and w.start == 0 and w.read_to >= w.hw for w in meta.windows]
        return np.array([*whole, False], np.bool_)[self.homes]


@dataclass
class _Quarters:
    """The rows of quarters in an index whose lanes have all their words from the first to the last one."""

    base: Ints
    """For each lane: the row of its first quarter, minus the number of this quarter."""
    low: Ints
    high: Ints

    @classmethod
    def of(cls, lane: Ints, word: Ints, lanes: int) -> _Quarters | None:
        """Return the rows of the quarters of sorted words; None if words are missing between others."""
        together = (lane[1:] != lane[:-1]) | (word[1:] == word[:-1] + 1)
        if not lanes or not together.all():
            return None
        ends = np.searchsorted(lane, np.arange(lanes + 1))
        first = np.append(word, 0)[ends[:-1]]
        return cls(4 * (ends[:-1] - first), 4 * ends[:-1], 4 * ends[1:])

    def rows(self, lane: Ints, quarter: Ints) -> Ints:
        """Return the row of each quarter, or where it would be."""
        rows: Ints = np.clip(self.base[lane] + quarter, self.low[lane], self.high[lane])
        return rows


def visibility_of(evidence: Evidence, observation: Observation) -> VisibilityIndex:
    """Return the index of an observation. It is built at the first call, and all checkers share it."""
    index: VisibilityIndex | None = evidence.cache.get(id(observation))
    if index is None:
        index = evidence.cache[id(observation)] = VisibilityIndex(evidence.ledger, observation)
    return index


def compacted_lanes(evidence: Evidence) -> Bools:
    """Return, for each lane, whether it is in a compacted topic, so that a missing record proves nothing."""
    return np.array([topic in evidence.expect.compacted for topic, _ in evidence.ledger.places], np.bool_)


def ranges(numbers: list[int], most: int = 6) -> str:
    """Format numbers as at most `most` ranges, such as "1-3, 7 and 2 more ranges"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    text = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts[:most])
    return text if len(parts) <= most else f"{text} and {len(parts) - most} more ranges"


def group_lines(ledger: Ledger, group: int) -> list[HistoryRef]:
    """Return references to the history lines that determine the fate of a transaction or send.

    `group` is its index in the ledger's groups.
    """
    producer = int(ledger.groups.producer[group])
    if producer not in ledger.producers:
        return []
    client = ledger.client_of(producer)
    lines = (int(ledger.groups.ask_line[group]), int(ledger.groups.answer_line[group]))
    return [HistoryRef(client, line) for line in lines if line]


def group_name(ledger: Ledger, group: int) -> str:
    """Describe a transaction or send in words, for examples; `group` is its index in the ledger's groups."""
    producer, txn = int(ledger.groups.producer[group]), int(ledger.groups.txn[group])
    return f"a send of producer {producer}" if txn < 0 else f"transaction {txn} of producer {producer}"


def lane_name(ledger: Ledger, lane: int) -> str:
    """Return a lane as text for examples, with its partition."""
    producer, number = split_lane_key(int(ledger.lanes[lane]))
    topic, partition = ledger.places[lane]
    return f"producer {producer} lane {number} ({topic}-{partition})"


def contract_of_lanes(ledger: Ledger, name: str) -> Bools:
    """Return, for each lane, whether Kafka gives its producer the guarantee `name`, a field of Contract."""
    producers = split_lane_key(ledger.lanes)[0].tolist()
    return np.array([getattr(ledger.producers[p].contract, name) for p in producers], np.bool_)
