"""The ledger as columns: the fate of every record, stored for intervals of sequences.

Memory grows with the number of intervals, not with the number of records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from harness.base.partition_id import PartitionId
from harness.evidence.bit_words import LANES, Bools, Ints, lane_key, split_lane_key
from harness.evidence.history import Producer
from harness.evidence.ledger.history_scan import Scan
from harness.evidence.record import MAX_PRODUCER, MAX_SEQ

COMMITTED: Final = 1
ABORTED: Final = 2
UNKNOWN: Final = 3
NEVER: Final = 4
FATE_NAMES: Final = {COMMITTED: "committed", ABORTED: "aborted", UNKNOWN: "unknown", NEVER: "never sent"}
OPEN_END: Final = MAX_SEQ
"""Last sequence of an interval whose end is unknown, because the client died before it recorded the end."""

LOOSE: Final = -1
"""Group of an interval of which the history does not show the transaction or send. Its fate is unknown.

`Ledger.finish` replaces it by the index of a group that each producer has for such intervals.
"""

OUTSIDE: Final = MAX_PRODUCER + 1
"""Number that replaces a producer number for which the identity of a record has no room."""

NAMED: Final = 3
"""Number of problems of one kind that are named one by one."""

Small = npt.NDArray[np.int32]
Fates = npt.NDArray[np.uint8]


class Contract(NamedTuple):
    """Kafka's guarantees for a producer with certain settings.

    A field is False if Kafka does not give this guarantee.
    """

    no_duplicates: bool
    no_loss: bool
    ordered: bool


class Declared(NamedTuple):
    """A producer, with the client that declared it and the line number of the declaration."""

    client: str
    line: int
    producer: Producer
    is_contradictory: bool = False
    """Whether its declarations contradict each other, so that none of the settings is certain."""

    @property
    def contract(self) -> Contract:
        """Kafka's guarantees for this producer."""
        p = self.producer
        if self.is_contradictory:
            return Contract(no_duplicates=False, no_loss=False, ordered=False)
        exact = p.idempotent or p.transactional_id is not None
        return Contract(exact, exact or p.acks in ("all", "-1"), exact or p.in_flight == 1)


class Ownership(NamedTuple):
    """Columns with one value per group.

    A group is a transaction, or one send of a producer without transactions.
    """

    producer: Ints
    txn: Ints
    """Number of the transaction; -1 if the group is a send."""
    fate: Fates
    asked: Ints
    """Monotonic time in nanoseconds of the first commit intent.

    If there is none, it is the time of the first abort intent, or 0 without any intent. For a send, it is the
    time of the send's intent.
    """
    answered: Ints
    """Monotonic time in ns of the last answer to a commit, an abort or the send; 0 if there is no answer."""
    ask_line: Ints
    answer_line: Ints
    committing: Bools
    """Whether a commit was requested; always True if the group is a send."""
    begun: Ints
    """Monotonic time in ns before which none of the records was sent; 0 if the history does not list it.

    It is the beginning of the transaction, or the intent of the send.
    """

    @property
    def is_loose(self) -> Bools:
        """Whether the group holds records of which the history shows neither transaction nor send."""
        loose: Bools = (self.txn < 0) & (self.ask_line == 0)
        return loose


_NARROW: Final[dict[str, Any]] = {
    "producer": np.int32,
    "txn": np.int64,
    "fate": np.uint8,
    "asked": np.int64,
    "answered": np.int64,
    "ask_line": np.int32,
    "answer_line": np.int32,
    "committing": np.bool_,
    "begun": np.int64,
}


@dataclass
class Intervals:
    """Intervals of sequences as columns, sorted by lane and first sequence. They do not overlap."""

    lane: Small
    """Index of the lane in Ledger.lanes."""
    first: Ints
    last: Ints
    fate: Fates
    group: Small


class _Rows(NamedTuple):
    """Intervals before they are sorted, as columns. `key` is the key of a lane (see lane_key)."""

    key: Ints
    first: Ints
    last: Ints
    group: Small
    fate: Fates


class LedgerPart(NamedTuple):
    """What one history adds to a ledger. Groups are numbered from 0."""

    scanned: Scan
    has_gaps: bool
    problems: list[str]
    groups: list[Ownership]
    rows: list[_Rows]
    acks: list[Ints]


_LANES_AT_ONCE: Final = 1 << 20
"""Approximate number of intervals that are checked at a time, to limit memory."""


def _join_rows(parts: list[_Rows]) -> list[Any]:
    """Return the columns of all parts. Empty the list, so that no more than one column exists twice."""
    types = (np.int64, np.int64, np.int64, np.int32, np.uint8)
    columns: list[list[Any]] = [[np.zeros(0, kind)] for kind in types]
    for part in parts:
        for column, values in zip(columns, part, strict=True):
            column.append(values)
    parts.clear()
    joined: list[Any] = []
    for column in columns:
        joined.append(np.concatenate(column))
        column.clear()
    return joined


def _each(columns: list[Any], rows: Any) -> list[Any]:
    """Return these rows of each column. Empty the list, so that no more than one column exists twice."""
    chosen = []
    columns.reverse()
    while columns:
        chosen.append(columns.pop()[rows])
    return chosen


def _sort_keys(lane: Any, seq: Ints) -> Ints:
    return np.asarray(lane.astype(np.int64) * (MAX_SEQ + 1) + seq)


def _whole_lanes(lane: Small) -> list[slice]:
    """Cut sorted intervals into parts of about _LANES_AT_ONCE intervals, or of one lane if it has more."""
    starts = np.flatnonzero(np.append(True, lane[1:] != lane[:-1])) if len(lane) else np.zeros(0, np.int64)
    new = np.append(True, np.diff(starts // _LANES_AT_ONCE) > 0) if len(starts) else np.zeros(0, np.bool_)
    cuts = [*starts[new].tolist(), len(lane)]
    return [slice(start, end) for start, end in pairwise(cuts)]


def _missing_sequences(intervals: Intervals, part: slice) -> Ints:
    """Return the sequences that no interval contains; columns: lane, first, last, next interval's group."""
    lane, first, last = intervals.lane[part], intervals.first[part], intervals.last[part]
    if not len(lane):
        return np.zeros((0, 4), np.int64)
    reached = np.maximum.accumulate(_sort_keys(lane, last))
    new = np.append(True, lane[1:] != lane[:-1])
    keys = lane.astype(np.int64) * (MAX_SEQ + 1)
    expected = np.where(new, 0, np.append(0, reached[:-1] + 1) - keys)
    at = np.flatnonzero(first > expected)
    return np.column_stack([lane[at], expected[at], first[at] - 1, intervals.group[part][at]]).astype(
        np.int64
    )


def _with_gaps(intervals: Intervals, gaps: Ints) -> Intervals:
    """Add the gaps as loose intervals with an unknown fate."""
    lane = np.concatenate([intervals.lane, gaps[:, 0].astype(np.int32)])
    first = np.concatenate([intervals.first, gaps[:, 1]])
    last = np.concatenate([intervals.last, gaps[:, 2]])
    fate = np.concatenate([intervals.fate, np.full(len(gaps), UNKNOWN, np.uint8)])
    group = np.concatenate([intervals.group, np.full(len(gaps), LOOSE, np.int32)])
    order = np.lexsort((first, lane))
    return Intervals(*_each([lane, first, last, fate, group], order))


@dataclass
class Ledger:
    """Ledger of a run: the fates of all its records, computed from the histories."""

    clients: list[Scan] = field(default_factory=list)
    producers: dict[int, Declared] = field(default_factory=dict)
    lanes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Sorted keys of all declared lanes. Intervals and acknowledgements contain indices of this array."""
    places: list[PartitionId] = field(default_factory=list)
    """Topic and partition of each lane, in the order of `lanes`."""
    groups: Ownership = field(init=False)
    intervals: Intervals = field(init=False)
    acks: Ints = field(default_factory=lambda: np.zeros((0, 5), np.int64))
    """Intervals of acknowledged records; columns: lane (index into `lanes`), first, last, offset, line."""
    problems: list[str] = field(default_factory=list)
    with_gaps: set[str] = field(default_factory=set)
    """Clients whose histories lack requests, so that nothing follows from the absence of a line in them."""
    operations: int = 0
    _groups: list[Ownership] = field(default_factory=list)
    _rows: list[_Rows] = field(default_factory=list)
    _acks: list[Ints] = field(default_factory=list)
    _count: int = 0
    _file_base: int = 0
    _file_groups: int = 0

    def problem(self, client: str, text: str) -> None:
        """Record a contradiction within a history. It makes a valid verdict on the run impossible."""
        self.problems.append(f"{client}: {text}")

    def add_client(self, scanned: Scan, *, has_gaps: bool = False) -> None:
        """Add a client, with the producers that its history declares.

        The groups and intervals that are added afterwards belong to this client. `has_gaps` means that its
        history lacks requests.
        """
        self.clients.append(scanned)
        self.operations += scanned.lines - len(scanned.lateness)
        self._file_base, self._file_groups = self._count, len(self._groups)
        if has_gaps:
            self.with_gaps.add(scanned.name)
        for reasons in scanned.contradictory.values():
            for reason in reasons[:NAMED]:
                self.problem(scanned.name, reason)
        for declared_number, (line, declared) in scanned.producers.items():
            number = declared_number
            if not 0 <= number <= MAX_PRODUCER:
                self.problem(scanned.name, f"line {line}: producer {number} is not in 0-{MAX_PRODUCER}")
                number = OUTSIDE
            elif len(cast(Producer, declared).lanes) > LANES:
                self.problem(
                    scanned.name, f"line {line}: producer {number} has more lanes than the {LANES} allowed"
                )
            if number in self.producers:
                self.problem(
                    scanned.name, f"line {line}: producer {number} was already declared by another client"
                )
            else:
                is_contradictory = declared_number in scanned.contradictory
                self.producers[number] = Declared(
                    scanned.name, line, cast(Producer, declared), is_contradictory
                )

    def add_groups(self, groups: Ownership) -> Ints:
        """Add groups to the ledger and return their indices."""
        first, self._count = self._count, self._count + len(groups.producer)
        self._groups.append(
            Ownership(*(np.asarray(c, _NARROW[n]) for n, c in zip(Ownership._fields, groups, strict=True)))
        )
        return np.arange(first, self._count)

    def part(self, scanned: Scan) -> LedgerPart:
        """Return what the only client of this ledger adds to the ledger of a run."""
        parts = (self.problems, self._groups, self._rows, self._acks)
        return LedgerPart(scanned, scanned.name in self.with_gaps, *parts)

    def add_part(self, part: LedgerPart) -> None:
        """Add a client with the groups and intervals of its history."""
        self.add_client(part.scanned, has_gaps=part.has_gaps)
        self.problems += part.problems
        base = self._count
        self._count += sum(len(groups.fate) for groups in part.groups)
        self._groups += part.groups
        self._acks += part.acks
        for rows in part.rows:
            rows.group[rows.group != LOOSE] += base
        self._rows += part.rows

    def fates_of(self, owner: Ints) -> Fates:
        """Return the fate of each group; `owner` contains the indices of the groups, or LOOSE.

        All these groups must belong to the client that was added last.
        """
        fates = [groups.fate for groups in self._groups[self._file_groups :]]
        if not len(owner):
            return np.zeros(0, np.uint8)
        loose = owner == LOOSE
        rows = np.where(loose, 0, owner - self._file_base)
        return np.where(loose, np.uint8(UNKNOWN), np.concatenate(fates)[rows])

    def add_intervals(self, rows: Ints, fate: Fates) -> None:
        """Add intervals to the ledger; `fate` is the fate of each.

        The columns of `rows` are: producer, lane, first, last, group.
        """
        key = lane_key(rows[:, 0], rows[:, 1])
        group = rows[:, 4].astype(np.int32)
        self._rows.append(_Rows(key, rows[:, 2].copy(), rows[:, 3].copy(), group, fate))

    def add_acks(self, producer: Ints, acked: Ints) -> None:
        """Add the offsets of acknowledged records.

        `producer` is the producer of each row. The columns of `acked` are: op, lane, first, last, offset,
        line.
        """
        key = lane_key(producer, acked[:, 1])
        self._acks.append(np.column_stack([key, acked[:, 2:]]))

    def finish(self) -> None:
        """Sort all intervals, and record contradictions between them. Nothing can be added afterwards."""
        lanes = sorted(
            (lane_key(number, lane), place)
            for number, declared in self.producers.items()
            for lane, place in enumerate(declared.producer.lanes[:LANES])
            if number != OUTSIDE
        )
        self.lanes = np.array([key for key, _ in lanes], np.int64)
        self.places = [place for _, place in lanes]
        self._finish_intervals()
        empty = [np.zeros(0, _NARROW[name]) for name in Ownership._fields]
        self.groups = Ownership(
            *(np.concatenate([e, *c]) for e, c in zip(empty, zip(*self._groups, strict=True), strict=False))
            if self._groups
            else empty
        )
        acks = np.concatenate([np.zeros((0, 5), np.int64), *self._acks])
        index, known = self.lane_index(acks[:, 0])
        acks[:, 0] = index
        self.acks = acks[known]
        self._groups, self._rows, self._acks = [], [], []

    def _finish_intervals(self) -> None:
        columns = _join_rows(self._rows)
        index, known = self.lane_index(columns[0])
        if not known.all():
            for unknown in np.unique(columns[0][~known])[:NAMED].tolist():
                producer, lane = split_lane_key(unknown)
                self.problem(f"producer {producer}", f"it sent on lane {lane}, which was never declared")
            columns, index = _each(columns, known), index[known]
        columns[0] = index.astype(np.int32)
        del index, known
        keys = _sort_keys(*columns[:2])
        if np.any(keys[1:] < keys[:-1]):
            # The rows that come from the same history file are almost sorted by lane, so a stable sort is
            # fast.
            columns = _each(columns, np.argsort(keys, kind="stable"))
            keys = _sort_keys(*columns[:2])
        # If a client repeats a commit request, it lists the intervals of the transaction again. Keep each
        # interval once.
        repeat = np.append(False, keys[1:] == keys[:-1]) if len(keys) else np.zeros(0, np.bool_)
        del keys
        if repeat.any():
            last, group = columns[2:4]
            repeat[1:] &= (last[1:] == last[:-1]) & (group[1:] == group[:-1])
            columns = _each(columns, ~repeat)
        lane, first, last, group, fate = columns
        intervals = Intervals(lane, first, last, fate, group)
        del columns, repeat
        self._loosen_overlaps(intervals)
        gaps = self._gaps(intervals)
        if len(gaps):
            intervals = _with_gaps(intervals, gaps)
        self._own_loose(intervals)
        self.intervals = intervals

    def _loosen_overlaps(self, intervals: Intervals) -> None:
        """Report sequences that two operations sent, and make their intervals loose.

        If all the operations committed, the records are committed, whichever operation sent them. If all of
        them were aborted, the intervals stay as they are: none of the records may be read. In all other cases
        the fate is unknown.
        """
        named = 0
        for part in _whole_lanes(intervals.lane):
            lane, first = intervals.lane[part], intervals.first[part]
            reached = np.maximum.accumulate(_sort_keys(lane, intervals.last[part]))
            overlaps = np.append(False, _sort_keys(lane, first)[1:] <= reached[:-1])
            if not overlaps.any():
                continue
            for i in np.flatnonzero(overlaps)[: NAMED - named].tolist():
                producer, number = split_lane_key(int(self.lanes[lane[i]]))
                self.problem(
                    f"producer {producer}", f"lane {number}: sequence {first[i]} was sent by two operations"
                )
                named += 1
            fate, group = intervals.fate[part], intervals.group[part]  # views: changes remain
            cluster = np.cumsum(~overlaps) - 1
            several = (np.bincount(cluster) > 1)[cluster]
            committed, aborted = (
                (np.bincount(cluster, fate != outcome) == 0)[cluster] for outcome in (COMMITTED, ABORTED)
            )
            group[several & ~aborted] = LOOSE
            fate[several & ~aborted & ~committed] = UNKNOWN

    def _gaps(self, intervals: Intervals) -> Ints:
        """Report missing sequences. Return those of histories with gaps; columns: lane, first, last.

        The sequences of a lane are dense from 0. In a history that has all its requests, the client sent none
        of the missing ones. Otherwise a missing request may list them.
        """
        gaps = [_missing_sequences(intervals, part) for part in _whole_lanes(intervals.lane)]
        missing = np.concatenate([np.zeros((0, 4), np.int64), *gaps])
        for lane, start, end, group in missing[:NAMED].tolist():
            producer, number = split_lane_key(int(self.lanes[lane]))
            sequences = f"sequence {start}" if start == end else f"sequences {start}-{end}"
            what = (
                f"lane {number} of producer {producer} continues at sequence {end + 1}, but no line lists "
                f"{sequences}"
            )
            self.problem(self.client_of(producer), f"{self._line_of(group)}{what}")
        if len(missing) > NAMED:
            self.problem("histories", f"{len(missing) - NAMED} more lanes or places lack sequences")
        producers = split_lane_key(self.lanes[missing[:, 0]])[0].tolist() if len(missing) else []
        incomplete = [self.client_of(int(producer)) in self.with_gaps for producer in producers]
        return missing[np.array(incomplete, np.bool_), :3]

    def _line_of(self, group: int) -> str:
        """Return the line of the request of a group as text, or nothing if the group is LOOSE."""
        if group == LOOSE:
            return ""
        base = 0
        for groups in self._groups:
            if group < base + len(groups.ask_line):
                return f"line {groups.ask_line[group - base]}: "
            base += len(groups.ask_line)
        return ""

    def _own_loose(self, intervals: Intervals) -> None:
        """Give the loose intervals of each producer a group of their own, with an unknown fate."""
        loose = intervals.group == LOOSE
        if not loose.any():
            return
        owners = split_lane_key(self.lanes[intervals.lane[loose]])[0]
        producers = np.unique(owners)
        zeros = np.zeros(len(producers), np.int64)
        first = self.add_groups(
            Ownership(
                producer=producers,
                txn=zeros - 1,
                fate=np.full(len(producers), UNKNOWN, np.uint8),
                asked=zeros,
                answered=zeros,
                ask_line=zeros,
                answer_line=zeros,
                committing=np.zeros(len(producers), np.bool_),
                begun=zeros,
            )
        )
        intervals.group[loose] = first[np.searchsorted(producers, owners)]

    def lane_index(self, keys: Ints) -> tuple[Ints, Bools]:
        """Return the index of each lane key in `lanes`, and a mask of the keys that a history declared."""
        if not len(self.lanes):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
        index = np.minimum(np.searchsorted(self.lanes, keys), len(self.lanes) - 1)
        return index, self.lanes[index] == keys

    def interval_at(self, lane: Ints, seq: Ints) -> tuple[Ints, Bools]:
        """Return the index of the interval that contains each record, and a mask of records with an interval.

        `lane` contains indices of `lanes`. There must be at least one interval.
        """
        intervals = self.intervals
        keys = intervals.lane.astype(np.int64) * (MAX_SEQ + 1) + intervals.first
        at = np.searchsorted(keys, lane * (MAX_SEQ + 1) + seq, side="right") - 1
        known = (at >= 0) & (intervals.lane[at] == lane) & (intervals.last[at] >= seq)
        return at, known

    def client_of(self, producer: int) -> str:
        """Return the name of the client that declared a producer. Its history file has the same name."""
        return self.producers[producer].client

    @property
    def nbytes(self) -> int:
        """Memory size in bytes of groups, intervals and acknowledgements."""
        columns = [*self.groups, *vars(self.intervals).values(), self.acks]
        return sum(column.nbytes for column in columns)
