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
from harness.evidence.bit_words import (
    LANES,
    Bools,
    Ints,
    lane_key,
    same_as_previous,
    split_lane_key,
    stable_order,
)
from harness.evidence.history import Producer
from harness.evidence.ledger.history_scan import Scan
from harness.evidence.ledger.own_pages import copied
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


class _SortedRows(NamedTuple):
    """The intervals of one history, sorted by lane and first sequence. `lane` is an index of `keys`."""

    keys: Ints
    lane: Small
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
    rows: list[_SortedRows]
    acks: list[Ints]


_LANES_AT_ONCE: Final = 1 << 20
"""Approximate number of intervals that are checked at a time, to limit memory."""


def _join(parts: list[list[Any]], empty: list[Any]) -> list[Any]:
    """Join the parts of each column. Empty the lists, so that no more than one column exists twice."""
    columns = [[column, *(part[i] for part in parts)] for i, column in enumerate(empty)]
    parts.clear()
    joined: list[Any] = []
    for column in columns:
        joined.append(np.concatenate(column))
        column.clear()
    return joined


def _are_sorted(lane: Any, first: Ints) -> bool:
    """Return whether intervals are sorted by lane, or by its key, and by sequence."""
    ascends = lane[1:] > lane[:-1]
    ascends |= (lane[1:] == lane[:-1]) & (first[1:] >= first[:-1])
    return bool(ascends.all())


def _sorted_rows(parts: list[_Rows]) -> _SortedRows:
    """Join the intervals of one history, sorted by lane and sequence."""
    columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if not _are_sorted(*columns[:2]):
        # A client lists the intervals of each lane in order, and most clients have few lanes.
        columns = _each(columns, stable_order(columns[0] - columns[0].min()))
    if not _are_sorted(*columns[:2]):
        columns = _each(columns, np.lexsort((columns[1], columns[0])))
    key = columns[0]
    new = ~same_as_previous(key)
    columns[0] = (np.cumsum(new) - 1).astype(np.int32)
    return _SortedRows(key[new], *(copied(column) for column in columns))


def _in_order(parts: list[_SortedRows]) -> list[_SortedRows]:
    """Return the intervals of several histories in the order of their lanes, if they share none."""
    filled = [rows for rows in parts if len(rows.keys)]
    ordered = sorted(filled, key=lambda rows: int(rows.keys[0]))
    apart = all(before.keys[-1] < after.keys[0] for before, after in pairwise(ordered))
    return ordered if apart else filled


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


_ROWS_AT_ONCE: Final = 1 << 16


def _are_dense(intervals: Intervals) -> bool:
    """Return whether the intervals of each lane follow each other from 0, without an overlap or a gap."""
    lane, first, last = intervals.lane, intervals.first, intervals.last
    for start in range(1, len(lane), _ROWS_AT_ONCE):
        row, before = slice(start, start + _ROWS_AT_ONCE), slice(start - 1, start + _ROWS_AT_ONCE - 1)
        same = lane[row] == lane[before][: len(lane[row])]
        if (first[row] != (last[before][: len(same)] + 1) * same).any():
            return False
    return not len(first) or int(first[0]) == 0


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
    _sorted: list[_SortedRows] = field(default_factory=list)
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
            # Copy each column: a view would keep the whole table from which it comes.
            Ownership(*(copied(c, _NARROW[n]) for n, c in zip(Ownership._fields, groups, strict=True)))
        )
        return np.arange(first, self._count)

    def part(self, scanned: Scan) -> LedgerPart:
        """Return what the only client of this ledger adds to the ledger of a run."""
        rows = [_sorted_rows(self._rows)] if self._rows else []
        parts = (self.problems, self._groups, rows, self._acks)
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
        self._sorted += part.rows
        for columns in (part.groups, part.rows, part.acks):
            columns.clear()  # so that no column is kept longer than needed

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
        groups = [list(columns) for columns in self._groups]
        self._groups.clear()
        self.groups = Ownership(*_join(groups, [np.zeros(0, _NARROW[name]) for name in Ownership._fields]))
        acks = np.concatenate([np.zeros((0, 5), np.int64), *self._acks])
        index, known = self.lane_index(acks[:, 0])
        acks[:, 0] = index
        self.acks = acks[known]
        self._acks = []

    def _finish_intervals(self) -> None:
        columns = self._joined_rows()
        if not _are_sorted(*columns[:2]):
            columns = _each(columns, np.argsort(_sort_keys(*columns[:2]), kind="stable"))
        # If a client repeats a commit request, it lists the intervals of the transaction again. Keep each
        # interval once.
        repeat = same_as_previous(*columns[:2])
        if repeat.any():
            last, group = columns[2:4]
            repeat[1:] &= (last[1:] == last[:-1]) & (group[1:] == group[:-1])
            del last, group
            columns = _each(columns, ~repeat)
        lane, first, last, group, fate = columns
        intervals = Intervals(lane, first, last, fate, group)
        del columns, repeat
        if not _are_dense(intervals):
            intervals = self._without_gaps(intervals)
        self._own_loose(intervals)
        self.intervals = intervals

    def _joined_rows(self) -> list[Any]:
        """Return the columns of all intervals: lane, first, last, group, fate. Drop undeclared lanes."""
        rows, self._sorted = _in_order(self._sorted), []
        parts: list[list[Any]] = []
        undeclared = [np.zeros(0, np.int64)]
        rows.reverse()
        while rows:
            part = rows.pop()
            index, declared = self.lane_index(part.keys)
            columns: list[Any] = [index.astype(np.int32)[part.lane], *part[2:]]
            if not declared.all():
                undeclared.append(part.keys[~declared])
                columns = [column[declared[part.lane]] for column in columns]
            parts.append(columns)
        for unknown in np.unique(np.concatenate(undeclared))[:NAMED].tolist():
            producer, number = split_lane_key(int(unknown))
            self.problem(f"producer {producer}", f"it sent on lane {number}, which was never declared")
        types = (np.int32, np.int64, np.int64, np.int32, np.uint8)
        return _join(parts, [np.zeros(0, kind) for kind in types])

    def _without_gaps(self, intervals: Intervals) -> Intervals:
        """Report overlaps and gaps between the intervals, and fill the gaps in histories that have gaps."""
        self._loosen_overlaps(intervals)
        gaps = self._gaps(intervals)
        return _with_gaps(intervals, gaps) if len(gaps) else intervals

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
