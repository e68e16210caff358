"""Records that read_committed readers were given, and whether they can still be read at the end of the run.

A reader is a client that polled during the run, or a witness. A log never loses a record that a consumer was
given, and never moves it to another offset. So each complete witness that covers the offset of such a record
must have read the same record there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from harness.evidence.bit_words import WORD_SEQS, Bools, Ints, lane_key
from harness.evidence.checkers.consumer_reads import Reads, observation_of, reads_of
from harness.evidence.checkers.distinct import RecordSet, expand, key_of_words
from harness.evidence.checkers.model import Evidence
from harness.evidence.checkers.record_pieces import clocks_of_groups
from harness.evidence.checkers.visibility_index import VisibilityIndex, visibility_of
from harness.evidence.ledger import Ledger
from harness.evidence.observation import Meta, Observation, Window

_PLACE_SHIFT: Final = 44
_FOREVER: Final = 1 << 60


class Rows(NamedTuple):
    """Runs of consecutive records that a reader was given; only records in the partition of their lane."""

    lane: Ints
    """Index of the lane in Ledger.lanes."""
    first: Ints
    last: Ints
    offset: Ints
    """Offset of the first record."""
    line: Ints
    """Line of the poll in the reader's history; 0 if it is unknown."""

    def rows(self, chosen: Bools | Ints) -> Rows:
        """Return the chosen rows."""
        return Rows(*(column[chosen] for column in self))


@dataclass
class Reader:
    """A read_committed reader, with the records that it was given."""

    name: str
    index: VisibilityIndex
    rows: Rows
    clock: str = ""
    live: bool = False
    reads: Reads | None = None
    """The polls of a client."""

    @property
    def is_complete(self) -> bool:
        """Whether the reader is a witness that read all its partitions to their ends."""
        return self.index.observation.meta.complete and self.index.observation.meta.purpose == "all"


@dataclass
class Gone:
    """Records that a reader was given, and that a complete witness did not read at the same offset.

    `absent` is True if the witness did not read the record at any offset.
    """

    reader: Reader
    index: VisibilityIndex
    """The index of the witness."""
    lane: Ints
    seq: Ints
    offset: Ints
    line: Ints
    absent: Bools

    def rows(self, chosen: Bools | Ints) -> Gone:
        """Return the chosen records."""
        return replace(
            self,
            lane=self.lane[chosen],
            seq=self.seq[chosen],
            offset=self.offset[chosen],
            line=self.line[chosen],
            absent=self.absent[chosen],
        )


def readers_of(evidence: Evidence) -> list[Reader]:
    """Return all read_committed readers, with everything that they were given."""
    readers: list[Reader] | None = evidence.cache.get("readers")
    if readers is None:
        by_client = {reads.client: reads for reads in reads_of(evidence.ledger)}
        readers = []
        for observation in evidence.observations:
            meta = observation.meta
            if meta.isolation == "read_committed" and meta.purpose in ("all", "consumed"):
                index = visibility_of(evidence, observation)
                reads = by_client.get(meta.witness) if meta.kind == "client" else None
                if reads is None:
                    live = meta.kind == "client"
                    readers.append(Reader(meta.witness, index, _rows_of_runs(index), meta.clock, live))
                elif reads.isolation == "read_committed":
                    rows = _rows_of_polls(evidence.ledger, reads)
                    readers.append(Reader(reads.client, index, rows, reads.clock, live=True, reads=reads))
        evidence.cache["readers"] = readers
    return readers


def readers_before(evidence: Evidence, meta: Meta) -> list[Reader]:
    """Return the readers, without the polls after a witness captured the ends of the partitions.

    The records of later polls may be newer than what the witness read.
    """
    return [_until(evidence, reader, meta) for reader in readers_of(evidence)]


def _until(evidence: Evidence, reader: Reader, meta: Meta) -> Reader:
    reads, end = reader.reads, end_time(meta)
    if reads is None or not end or meta.clock != reads.clock or not np.any(reads.rows["mono"] > end):
        return reader
    limited: Reader | None = evidence.cache.get(("reader", reader.name, end))
    if limited is None:
        reads = replace(reads, rows=reads.rows[reads.rows["mono"] <= end])
        index = VisibilityIndex(evidence.ledger, observation_of(reads))
        rows = _rows_of_polls(evidence.ledger, reads)
        limited = replace(reader, index=index, rows=rows, reads=reads)
        evidence.cache["reader", reader.name, end] = limited
    return limited


def end_time(meta: Meta) -> int:
    """Return the time at which a witness captured the ends of the partitions, or else finished; or 0."""
    return meta.frozen or meta.finished


def sent_later(ledger: Ledger, meta: Meta) -> Bools:
    """Return which groups of the ledger a witness may not have read, because it captured the ends before.

    These are the transactions and sends whose answer arrived after that time, on the same clock.
    """
    if not end_time(meta):
        return np.zeros(len(ledger.groups.fate), np.bool_)
    names, clock = clocks_of_groups(ledger)
    if meta.clock not in names:
        return np.zeros(len(ledger.groups.fate), np.bool_)
    later: Bools = (clock == names.index(meta.clock)) & (ledger.groups.answered > end_time(meta))
    return later


def _rows_of_polls(ledger: Ledger, reads: Reads) -> Rows:
    rows = reads.rows
    places = {place: i for i, place in enumerate(reads.places)}
    homes = np.array([places.get(place, -1) for place in ledger.places] or [-1], np.int64)
    lane, declared = ledger.lane_index(lane_key(rows["producer"], rows["lane"]))
    at_home = declared & (homes[lane] == rows["place"])
    last = rows["seq"] + rows["count"] - 1
    return Rows(lane, rows["seq"], last, rows["offset"], rows["line"]).rows(at_home)


def _has_all_runs(observation: Observation) -> bool:
    runs = observation.runs
    return runs is not None and bool(runs["count"].sum() == observation.words["n"].sum())


def _rows_of_runs(index: VisibilityIndex) -> Rows:
    runs = index.observation.runs
    if runs is None or not _has_all_runs(index.observation) or not len(index.homes):
        return Rows(*(np.zeros(0, np.int64) for _ in Rows._fields))
    lane, declared = index.ledger.lane_index(lane_key(runs["producer"].astype(np.int64), runs["lane"]))
    at_home = declared & (index.homes[lane] == runs["partition"])
    last = runs["seq"] + runs["count"] - 1
    return Rows(lane, runs["seq"], last, runs["offset"], np.zeros(len(runs), np.int64)).rows(at_home)


def gone_records(evidence: Evidence) -> list[Gone]:
    """Compare the records given to each reader with each complete witness that covers their offsets.

    Two complete witnesses are not compared here: if they differ, at least one of them is wrong, and the
    checker of the property `coverage` reports that.
    """
    gone: list[Gone] | None = evidence.cache.get("gone")
    if gone is None:
        witnesses = [
            visibility_of(evidence, view) for view in evidence.committed_views() if view.meta.complete
        ]
        gone = [
            _compare(reader, index)
            if reader.live or _has_all_runs(reader.index.observation)
            else _absent(reader, index)
            for index in witnesses
            for reader in readers_before(evidence, index.observation.meta)
            if not reader.is_complete
        ]
        evidence.cache["gone"] = gone
    return gone


def undecided_reads(evidence: Evidence) -> list[str]:
    """Return reasons why some records that a reader was given cannot be compared with a witness."""
    reasons = []
    for view in evidence.committed_views():
        index = visibility_of(evidence, view)
        for reader in readers_of(evidence):
            if view.meta.complete and reader.live and len(index.homes) and not _is_earlier(reader, index):
                home = index.homes[reader.rows.lane]
                ends = np.array([w.read_to for w in view.meta.windows] + [_FOREVER], np.int64)[home]
                if np.any(reader.rows.offset + reader.rows.last - reader.rows.first >= ends):
                    reasons.append(
                        f"{reader.name} was given records behind the end that {view.meta.witness} read to; "
                        "their clocks differ, so either may have read first"
                    )
    return reasons


def _is_earlier(reader: Reader, index: VisibilityIndex) -> bool:
    """Return whether a live reader got its records before the witness captured the ends, as far as known."""
    meta = index.observation.meta
    return not end_time(meta) or meta.clock == reader.clock


def _compare(reader: Reader, index: VisibilityIndex) -> Gone:
    rows = _covered_part(reader, index)
    size = rows.last - rows.first + 1
    # Most runs lie within one run of the witness. Look at single records only where this is not so.
    rows = rows.rows(~_is_located(index, rows) | (index.count(rows.lane, rows.first, rows.last) < size))
    owner, step = expand(rows.last - rows.first + 1)
    lane, seq, offset = rows.lane[owner], rows.first[owner] + step, rows.offset[owner] + step
    absent = index.count(lane, seq, seq) == 0
    records = Rows(lane, seq, seq, offset, rows.line[owner])
    located = _is_located(index, records)
    gone = Gone(reader, index, lane, seq, offset, records.line, absent)
    return gone.rows(absent | ~located)


def _absent(reader: Reader, index: VisibilityIndex) -> Gone:
    """Compare a witness that did not finish, and that recorded no runs, with a complete witness.

    The offsets of its records are known only as the lowest and the highest one of each word. So consider only
    words whose offsets the other witness covers, and report the lowest offset of the word.
    """
    window = [*index.observation.meta.windows, Window("", -1, _FOREVER, 0, 0, 0)]
    start, end = (np.array([getattr(w, name) for w in window], np.int64) for name in ("start", "read_to"))
    words, lane = reader.index.words, reader.index.word_lane
    home = index.homes[lane]
    inside = (words["lo"] >= start[home]) & (words["hi"] < end[home])
    read = RecordSet(key_of_words(lane, words["word"])[inside], words["bits"][inside])
    there = RecordSet(key_of_words(index.word_lane, index.words["word"]), index.words["bits"])
    missing = read - there
    pairs = [(at, seq) for at, sequences in missing.first(len(missing.keys)) for seq in sequences]
    lanes, seq = np.array(pairs, np.int64).reshape(-1, 2).T
    zeros = np.zeros(len(seq), np.int64)
    offset = reader.index.words["lo"][reader.index.word_at(lanes, seq // WORD_SEQS)] if len(seq) else zeros
    return Gone(reader, index, lanes, seq, offset, zeros, zeros == 0)


def _covered_part(reader: Reader, index: VisibilityIndex) -> Rows:
    """Return the part of the reader's records whose offsets the witness covers."""
    windows = index.observation.meta.windows
    # A live reader read before the witness. So if the witness read a partition to its high watermark, it
    # also covers the offsets behind it: the log cannot become shorter.
    beyond = reader.live and _is_earlier(reader, index)
    ends = [_FOREVER if beyond and w.read_to >= w.hw else w.read_to for w in windows]
    start = np.array([*(w.start for w in windows), _FOREVER], np.int64)[index.homes]
    end = np.array([*ends, 0], np.int64)[index.homes]
    lane, first, last, offset, line = reader.rows
    before = np.maximum(start[lane] - offset, 0)
    behind = np.maximum(offset + last - first + 1 - end[lane], 0)
    rows = Rows(lane, first + before, last - behind, offset + before, line)
    return rows.rows(rows.first <= rows.last)


def _is_located(index: VisibilityIndex, rows: Rows) -> Bools:
    """Return whether the witness read each row at the same offsets, as far as it recorded offsets."""
    whole = _has_all_runs(index.observation)
    return _is_inside(index, rows) if whole else _is_within_words(index, rows)


def _is_inside(index: VisibilityIndex, rows: Rows) -> Bools:
    """Return whether one run of the witness contains each row at the same offsets."""
    runs = index.observation.runs
    assert runs is not None
    if not len(runs):
        return np.zeros(len(rows.lane), np.bool_)
    keys = (runs["partition"].astype(np.int64) << _PLACE_SHIFT) + runs["offset"]
    order = np.argsort(keys, kind="stable")
    runs, keys = runs[order], keys[order]
    home = index.homes[rows.lane] << _PLACE_SHIFT
    run = runs[np.maximum(np.searchsorted(keys, home + rows.offset, side="right") - 1, 0)]
    same_lane = lane_key(run["producer"].astype(np.int64), run["lane"]) == index.ledger.lanes[rows.lane]
    same_place = run["partition"] == index.homes[rows.lane]
    steady = run["seq"] - run["offset"] == rows.first - rows.offset
    whole = (run["seq"] <= rows.first) & (rows.last < run["seq"] + run["count"])
    inside: Bools = same_lane & same_place & steady & whole
    return inside


def _is_within_words(index: VisibilityIndex, rows: Rows) -> Bools:
    """Return whether the words that the witness read leave room for each row at its offsets.

    A record that the witness did not read is not within its words.
    """
    if not len(index.words):
        return np.zeros(len(rows.lane), np.bool_)
    parts = rows.last // WORD_SEQS - rows.first // WORD_SEQS + 1
    owner, step = expand(parts)
    word = rows.first[owner] // WORD_SEQS + step
    lane, offset = rows.lane[owner], rows.offset[owner] - rows.first[owner]
    within = np.ones(len(owner), np.bool_)
    for seq in (
        np.maximum(rows.first[owner], word * WORD_SEQS),
        np.minimum(rows.last[owner], word * WORD_SEQS + WORD_SEQS - 1),
    ):
        low, high = index.offset_bounds(lane, seq)
        within &= (index.count(lane, seq, seq) > 0) & (low <= offset + seq) & (offset + seq <= high)
    whole: Bools = np.bincount(owner, within, len(parts)) == parts
    return whole
