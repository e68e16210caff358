"""The ledger as columns: the fate of every record, stored for intervals of sequences.

Memory grows with the number of intervals, not with the number of records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    _rows: list[tuple[Ints, Fates]] = field(default_factory=list)
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
        self.operations += scanned.lines
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
        self._rows.append((np.column_stack([key, rows[:, 2:]]), fate))

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
        rows = np.concatenate([np.zeros((0, 4), np.int64), *(rows for rows, _ in self._rows)])
        fate = np.concatenate([np.zeros(0, np.uint8), *(fate for _, fate in self._rows)])
        self._rows = []
        index, known = self.lane_index(rows[:, 0])
        if not known.all():
            for key in np.unique(rows[~known, 0])[:3].tolist():
                producer, lane = split_lane_key(key)
                self.problem(f"producer {producer}", f"it sent on lane {lane}, which was never declared")
            rows, fate, index = rows[known], fate[known], index[known]
        keys = index * (MAX_SEQ + 1) + rows[:, 1]
        if np.any(keys[1:] < keys[:-1]):
            # The rows that come from the same history file are almost sorted by lane, so a stable sort is
            # fast.
            order = np.argsort(keys, kind="stable")
            rows, fate, index, keys = rows[order], fate[order], index[order], keys[order]
        # If a client repeats a commit request, it lists the intervals of the transaction again. Keep each
        # interval once.
        repeat = np.append(False, keys[1:] == keys[:-1]) if len(keys) else np.zeros(0, np.bool_)
        if repeat.any():
            repeat[1:] &= np.all(rows[1:, 1:] == rows[:-1, 1:], axis=1)
            rows, fate, index, keys = rows[~repeat], fate[~repeat], index[~repeat], keys[~repeat]
        self._loosen_overlaps(index, rows, fate)
        gaps = self._gaps(index, rows)
        if len(gaps):
            index = np.concatenate([index, gaps[:, 0]])
            rows = np.concatenate(
                [rows, np.column_stack([self.lanes[gaps[:, 0]], gaps[:, 1:], gaps[:, 0] * 0 + LOOSE])]
            )
            fate = np.concatenate([fate, np.full(len(gaps), UNKNOWN, np.uint8)])
            order = np.lexsort((rows[:, 1], index))
            rows, fate, index = rows[order], fate[order], index[order]
        self._own_loose(index, rows)
        self.intervals = Intervals(
            index.astype(np.int32), rows[:, 1].copy(), rows[:, 2].copy(), fate, rows[:, 3].astype(np.int32)
        )

    def _loosen_overlaps(self, index: Ints, rows: Ints, fate: Fates) -> None:
        """Report sequences that two operations sent, and make their intervals loose.

        If all the operations committed, the records are committed, whichever operation sent them. If all of
        them were aborted, the intervals stay as they are: none of the records may be read. In all other cases
        the fate is unknown.
        """
        if not len(rows):
            return
        keys = index * (MAX_SEQ + 1)
        reached = np.maximum.accumulate(keys + rows[:, 2])
        overlaps = np.append(False, keys[1:] + rows[1:, 1] <= reached[:-1])
        for i in np.flatnonzero(overlaps)[:NAMED].tolist():
            producer, lane = split_lane_key(int(self.lanes[index[i]]))
            self.problem(
                f"producer {producer}", f"lane {lane}: sequence {rows[i, 1]} was sent by two operations"
            )
        cluster = np.cumsum(~overlaps) - 1
        several = (np.bincount(cluster) > 1)[cluster]
        committed, aborted = (
            (np.bincount(cluster, fate != outcome) == 0)[cluster] for outcome in (COMMITTED, ABORTED)
        )
        rows[several & ~aborted, 3] = LOOSE
        fate[several & ~aborted & ~committed] = UNKNOWN

    def _gaps(self, index: Ints, rows: Ints) -> Ints:
        """Report missing sequences. Return those of histories with gaps; columns: lane, first, last.

        The sequences of a lane are dense from 0. In a history that has all its requests, the client sent none
        of the missing ones. Otherwise a missing request may list them.
        """
        if not len(rows):
            return np.zeros((0, 3), np.int64)
        keys = index * (MAX_SEQ + 1)
        reached = np.maximum.accumulate(keys + rows[:, 2])
        new = np.append(True, index[1:] != index[:-1])
        first = np.where(new, 0, np.append(0, reached[:-1] + 1) - keys)
        missing = np.flatnonzero(rows[:, 1] > first)
        for i in missing[:NAMED].tolist():
            producer, lane = split_lane_key(int(self.lanes[index[i]]))
            client, start, end = self.client_of(producer), int(first[i]), int(rows[i, 1]) - 1
            sequences = f"sequence {start}" if start == end else f"sequences {start}-{end}"
            what = (
                f"lane {lane} of producer {producer} continues at sequence {end + 1}, but no line lists "
                f"{sequences}"
            )
            self.problem(client, f"{self._line_of(int(rows[i, 3]))}{what}")
        if len(missing) > NAMED:
            self.problem("histories", f"{len(missing) - NAMED} more lanes or places lack sequences")
        incomplete = [
            self.client_of(int(producer)) in self.with_gaps
            for producer in split_lane_key(self.lanes[index[missing]])[0].tolist()
        ]
        missing = missing[np.array(incomplete, np.bool_)]
        return np.column_stack([index[missing], first[missing], rows[missing, 1] - 1])

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

    def _own_loose(self, index: Ints, rows: Ints) -> None:
        """Give the loose intervals of each producer a group of their own, with an unknown fate."""
        loose = rows[:, 3] == LOOSE
        if not loose.any():
            return
        owners = split_lane_key(self.lanes[index[loose]])[0]
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
        rows[loose, 3] = first[np.searchsorted(producers, owners)]

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
