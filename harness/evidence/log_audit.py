"""Search for damage in the logs of a cluster that late or repeated requests can cause without any error.

The search compares three kinds of logs, as tables: the raw logs of partitions (data and markers), the log of
the transaction coordinators (their decisions), and the log of the group coordinators (committed positions).
It needs neither a history nor frames, so it also works on a cluster on which no run was made.

A coordinator decides each transaction once, and writes one marker for each decision into each partition of
the transaction. A copy of a marker is harmless if no record was written since the first copy. If records were
written, the copy ends them: they belong to the next transaction. This gives the central rule:

    each marker that ends records needs a decision of its own, of the same type, for this partition

Decisions are assigned to the markers in the order of the logs. A decision is not assigned to a marker that
was written earlier than the decision, or to one that follows a marker later than the decision. These times
are from the clocks of two brokers, so they may differ by `clock_skew_ms`.

The rules only use what the logs still contain. A log whose beginning was deleted or compacted hides damage,
but does not imitate it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from harness.base.partition_id import PartitionId, partition_name

Marker = Literal["commit", "abort"]

DAMAGE: Final = {
    "records_lost": "an ABORT marker ended records of a committed transaction",
    "aborted_readable": "a COMMIT marker ended records of an aborted transaction",
    "early_commit": "a COMMIT marker ended records before their transaction was decided",
    "surplus_marker": "a marker ended records, and no decision is left for it",
    "sequence_reused": "two batches of a partition have the same producer id, epoch and sequence",
    "position_went_back": "a group's position went back within one transaction",
}
"""Findings that contradict Kafka's promise, with their meaning; the worst is first."""
SUSPICIONS: Final = {
    "empty_commit": "a committed transaction has no record in one of its partitions",
    "ghost_transaction": "a transaction without records was opened, and ended by its time-out",
    "early_abort": "an ABORT marker ended records before their transaction was aborted",
}
"""Findings that have harmless explanations too, with their meaning."""
MEANINGS: Final = {**DAMAGE, **SUSPICIONS}

_POSITIONS_TOPIC: Final = "__consumer_offsets"
_SEQUENCES: Final = 1 << 31
"""Number of sequences. The sequence after the last one is 0."""
_KINDS: Final = {
    (False, True): "records_lost",
    (True, False): "aborted_readable",
    (True, True): "early_commit",
    (False, False): "early_abort",
}
"""Kind of a finding: whether the marker without a decision commits, and whether the next decision does."""
_DECISIONS: Final[dict[str, Marker]] = {"PrepareCommit": "commit", "PrepareAbort": "abort"}


class LoggedBatch(NamedTuple):
    """A batch in the raw log of a partition: records of a producer, or a marker."""

    base_offset: int
    last_offset: int
    producer_id: int
    epoch: int
    base_sequence: int
    transactional: bool
    marker: Marker | None
    at_ms: int
    """For a marker, the time at which the leader wrote it."""

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.last_offset - self.base_offset) % _SEQUENCES


class LoggedPosition(NamedTuple):
    """A position that a group committed in a transaction. `offset` is that of the record in the log."""

    offset: int
    producer_id: int
    group: str
    topic: str
    partition: int
    position: int


@dataclass
class PartitionLog:
    """The raw log of one partition, from its first retained offset on."""

    partition_id: PartitionId
    start: int
    """The first offset that the partition retains. It is 0 unless records were deleted."""
    batches: list[LoggedBatch]
    positions: list[LoggedPosition] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset after the last batch."""
        return self.batches[-1].last_offset + 1 if self.batches else self.start

    @property
    def has_gaps(self) -> bool:
        """Whether compaction has removed whole batches."""
        expected = self.start
        for batch in self.batches:
            if batch.base_offset != expected:
                return True
            expected = batch.last_offset + 1
        return False


class LoggedState(NamedTuple):
    """A state of a transactional id in the log of its coordinator."""

    offset: int
    at_ms: int
    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: str
    partitions: tuple[PartitionId, ...]


@dataclass
class CoordinatorLog:
    """One partition of the log of the transaction coordinators."""

    states: list[LoggedState]
    complete_from: int = 0
    """From this offset on, compaction has removed no state."""
    is_whole: bool = True
    """Whether the log was read to its end. Later decisions may be missing otherwise."""


class Finding(NamedTuple):
    """One finding of the search, with the offsets that show it."""

    kind: str
    topic: str
    partition: int
    first: int
    last: int
    """The first and the last offset of the records or the marker concerned."""
    producer_id: int
    epoch: int
    transactional_id: str
    detail: str

    @property
    def text(self) -> str:
        """The finding as one line."""
        place = partition_name((self.topic, self.partition))
        return (
            f"{self.kind}: {place} offsets {self.first} to {self.last}: {MEANINGS[self.kind]}; "
            f"{self.transactional_id or 'unknown transactional id'}, producer id {self.producer_id}, "
            f"epoch {self.epoch}; {self.detail}"
        )


@dataclass
class Audit:
    """The result of a search: the findings, and the number of things that were compared."""

    findings: list[Finding] = field(default_factory=list)
    markers: int = 0
    """Markers that ended records, and were compared with decisions."""
    not_judged: int = 0
    """Markers that ended records, but whose decision may have been removed from the log."""
    copies: int = 0
    """Markers that ended no records: harmless copies, or ends of partitions without a record."""
    batches: int = 0
    positions: int = 0

    @property
    def damage(self) -> list[Finding]:
        """The findings that contradict Kafka's promise."""
        return [finding for finding in self.findings if finding.kind in DAMAGE]


class _Decision(NamedTuple):
    """A decision of a coordinator, with the time at which the transaction was opened."""

    number: int
    """The position of the decision among those of its producer id."""
    at_ms: int
    type: Marker
    transactional_id: str
    partitions: tuple[PartitionId, ...]
    opened_ms: int
    timeout_ms: int
    same_epoch: bool
    """Whether the epoch of the decision is that of the open transaction. A time-out raises the epoch."""


@dataclass
class _Producer:
    """What the coordinators' log contains about a producer id."""

    known_from_ms: int | None
    """Time of the first known state, or None if all earlier states of the producer id are known."""
    known_to_ms: int | None = None
    """Time of the last known state of its coordinator, or None if that log was read to its end."""
    decisions: list[_Decision] = field(default_factory=list)


class _Segment(NamedTuple):
    """A marker, and the records of its producer that it ended, as their first and last offset."""

    marker: LoggedBatch
    first: int
    last: int

    @property
    def ended_records(self) -> bool:
        return self.first >= 0


def audit(
    partitions: Sequence[PartitionLog], coordinators: Iterable[CoordinatorLog], clock_skew_ms: int = 0
) -> Audit:
    """Search the logs for damage.

    `partitions` also contains the partitions of the group coordinators' log. Read the coordinators' log after
    the partitions, because each marker must find its decision.
    """
    result = Audit()
    producers = _producers(coordinators)
    ghosts: dict[tuple[int, int], set[PartitionId]] = defaultdict(set)
    for log in partitions:
        result.batches += len(log.batches)
        result.positions += len(log.positions)
        result.findings += _reused_sequences(log, producers)
        by_producer: dict[int, list[LoggedBatch]] = defaultdict(list)
        for batch in log.batches:
            if batch.transactional and batch.producer_id >= 0:
                by_producer[batch.producer_id].append(batch)
        for producer_id, batches in by_producer.items():
            matching = _Matching(log, producers.get(producer_id), batches, clock_skew_ms)
            result.findings += matching.findings
            result.markers += matching.judged
            result.not_judged += matching.not_judged
            result.copies += matching.copies
            for number in matching.empty_aborts:
                ghosts[producer_id, number].add(log.partition_id)
            result.findings += _positions_back(log, matching)
    result.findings += _ghosts(producers, ghosts)
    result.findings.sort(key=lambda finding: (list(MEANINGS).index(finding.kind), *finding[1:4]))
    return result


def complete_from(offsets: Iterable[int], start: int) -> int:
    """Return the offset from which on a compacted log has no gap. `offsets` are those of its records.

    If offset 0 is retained and there is no gap, nothing was removed, and the result is 0. If the log begins
    later, it is complete from there on.
    """
    complete, expected = start, start
    for offset in offsets:
        if offset != expected:
            complete = offset
        expected = offset + 1
    return complete


def _producers(coordinators: Iterable[CoordinatorLog]) -> dict[int, _Producer]:
    """Return the decisions of each producer id, in the order of the log."""
    found: dict[int, _Producer] = {}
    for log in coordinators:
        opened: dict[str, LoggedState] = {}
        for state in sorted(log.states):
            if state.offset < log.complete_from:
                continue
            producer = found.get(state.producer_id)
            if producer is None:
                known_from = state.at_ms if log.complete_from else None
                known_to = None if log.is_whole else max(state.at_ms for state in log.states)
                producer = found[state.producer_id] = _Producer(known_from, known_to)
            if state.state == "Ongoing":
                opened.setdefault(state.transactional_id, state)
            if (decided := _DECISIONS.get(state.state)) is not None:
                begin = opened.get(state.transactional_id, state)
                producer.decisions.append(
                    _Decision(
                        len(producer.decisions),
                        state.at_ms,
                        decided,
                        state.transactional_id,
                        state.partitions,
                        begin.at_ms,
                        state.timeout_ms,
                        begin.epoch == state.epoch,
                    )
                )
            if state.state != "Ongoing":
                opened.pop(state.transactional_id, None)
    return found


def _segments(batches: Iterable[LoggedBatch]) -> Iterator[_Segment]:
    first = last = -1
    for batch in batches:
        if batch.marker is None:
            first, last = (batch.base_offset if first < 0 else first), batch.last_offset
        else:
            yield _Segment(batch, first, last)
            first = last = -1


class _Matching:
    """Comparison of the markers of one producer id in one partition with the decisions for this partition."""

    def __init__(
        self, log: PartitionLog, producer: _Producer | None, batches: list[LoggedBatch], skew_ms: int
    ) -> None:
        self._log = log
        self._producer = producer
        self._skew_ms = skew_ms
        decisions = producer.decisions if producer else []
        self._decisions = [d for d in decisions if log.partition_id in d.partitions]
        self.transactional_id = self._decisions[0].transactional_id if self._decisions else ""
        segments = list(_segments(batches))
        ending = [s for s in segments if s.ended_records]
        known = [s for s in ending if self._is_known(s.marker)]
        self.committed = [s for s in segments if s.marker.marker == "commit"]
        """The markers that commit, with the records that they ended."""
        self.copies = len(segments) - len(ending)
        self.judged = len(known)
        self.not_judged = len(ending) - len(known)
        assigned = self._assign(known)
        self.findings = [self._unassigned(s) for s in known if s.marker.base_offset not in assigned]
        self.empty_aborts: list[int] = []
        """Numbers of the abort decisions that ended no record in this partition."""
        self._find_empty(segments, known, len(assigned))

    def _is_known(self, marker: LoggedBatch) -> bool:
        """Return whether the decision for a marker must be in the coordinators' log."""
        if self._producer is None:
            return False
        known_from, known_to = self._producer.known_from_ms, self._producer.known_to_ms
        begun = known_from is None or marker.at_ms > known_from + self._skew_ms
        return begun and (known_to is None or marker.at_ms < known_to - self._skew_ms)

    def _assign(self, segments: list[_Segment]) -> dict[int, _Decision]:
        """Assign to each marker the first decision that can be its own; the keys are offsets of markers."""
        assigned: dict[int, _Decision] = {}
        next_index, previous_ms = 0, None
        for marker in (s.marker for s in segments):
            earliest = None if previous_ms is None else previous_ms - self._skew_ms
            for index in range(next_index, len(self._decisions)):
                decision = self._decisions[index]
                if decision.at_ms > marker.at_ms + self._skew_ms:
                    break
                if decision.type == marker.marker and (earliest is None or decision.at_ms >= earliest):
                    assigned[marker.base_offset], next_index = decision, index + 1
                    break
            previous_ms = marker.at_ms
        return assigned

    def _unassigned(self, segment: _Segment) -> Finding:
        """Return the finding for a marker without a decision.

        The next decision is that of the records that the marker ended.
        """
        marker = segment.marker
        decision = next((d for d in self._decisions if d.at_ms > marker.at_ms), None)
        if decision is None:
            kind, detail = "surplus_marker", "the coordinator decided no further transaction here"
        else:
            kind = _KINDS[marker.marker == "commit", decision.type == "commit"]
            detail = f"the coordinator decided {decision.type} {decision.at_ms - marker.at_ms} ms later"
        place = f"{marker.marker} marker at offset {marker.base_offset}"
        return self._finding(kind, (segment.first, segment.last), marker, f"{place}; {detail}")

    def _find_empty(self, segments: list[_Segment], known: list[_Segment], assigned: int) -> None:
        """Find decisions whose marker ended no record, and neither did another marker for it.

        `assigned` is the number of markers that have a decision if only markers that end records get one.
        """
        if self._log.has_gaps:
            return
        if self._log.start and segments and not segments[0].ended_records:
            segments = segments[1:]  # its records may have been deleted
        wanted = [s for s in segments if self._is_known(s.marker)]
        given = self._assign(wanted)
        if sum(s.marker.base_offset in given for s in known) < assigned:
            return  # with these clocks, a copy may look like the only marker of a transaction
        explained = False
        for segment in wanted:
            decision = given.get(segment.marker.base_offset)
            if segment.ended_records:
                explained = decision is None
            elif decision is not None and not explained:
                self._empty(segment.marker, decision)
            elif decision is not None:
                explained = False

    def _empty(self, marker: LoggedBatch, decision: _Decision) -> None:
        if decision.type == "abort":
            self.empty_aborts.append(decision.number)
        elif self._log.partition_id[0] != _POSITIONS_TOPIC:
            detail = f"commit marker at offset {marker.base_offset} ended no record"
            self.findings.append(
                self._finding("empty_commit", (marker.base_offset, marker.base_offset), marker, detail)
            )

    def _finding(self, kind: str, offsets: tuple[int, int], marker: LoggedBatch, detail: str) -> Finding:
        place = *self._log.partition_id, *offsets
        return Finding(kind, *place, marker.producer_id, marker.epoch, self.transactional_id, detail)


def _reused_sequences(log: PartitionLog, producers: dict[int, _Producer]) -> Iterator[Finding]:
    if log.partition_id[0] == _POSITIONS_TOPIC:
        return  # the group coordinator gives every batch the sequence 0
    last: dict[tuple[int, int], LoggedBatch] = {}
    for batch in log.batches:
        if batch.marker is not None or batch.producer_id < 0 or batch.base_sequence < 0:
            continue
        key = batch.producer_id, batch.epoch
        before = last.get(key)
        last[key] = batch
        # A sequence that is much smaller follows the largest one.
        if before is not None and (before.last_sequence - batch.base_sequence) % _SEQUENCES < _SEQUENCES // 2:
            producer = producers.get(batch.producer_id)
            ident = producer.decisions[0].transactional_id if producer and producer.decisions else ""
            detail = (
                f"sequences {batch.base_sequence} to {batch.last_sequence}, after {before.base_sequence} to "
                f"{before.last_sequence} at offset {before.base_offset}"
            )
            yield Finding(
                "sequence_reused",
                *log.partition_id,
                batch.base_offset,
                batch.last_offset,
                batch.producer_id,
                batch.epoch,
                ident,
                detail,
            )


def _positions_back(log: PartitionLog, matching: _Matching) -> Iterator[Finding]:
    """Find positions that went back within one committed transaction of one producer."""
    for segment in matching.committed:
        highest: dict[tuple[str, str, int], LoggedPosition] = {}
        for position in log.positions:
            if position.producer_id != segment.marker.producer_id:
                continue
            if not segment.first <= position.offset <= segment.last:
                continue
            key = position.group, position.topic, position.partition
            before = highest.get(key)
            if before is None or position.position >= before.position:
                highest[key] = position
                continue
            of = partition_name((position.topic, position.partition))
            yield Finding(
                "position_went_back",
                *log.partition_id,
                before.offset,
                position.offset,
                segment.marker.producer_id,
                segment.marker.epoch,
                matching.transactional_id,
                f"group {position.group}, {of}: from {before.position} to {position.position}",
            )


def _ghosts(
    producers: dict[int, _Producer], empty: dict[tuple[int, int], set[PartitionId]]
) -> Iterator[Finding]:
    """Find aborted transactions without a record in any partition that lasted until their time-out."""
    for (producer_id, number), partitions in empty.items():
        decision = producers[producer_id].decisions[number]
        lasted = decision.at_ms - decision.opened_ms
        if decision.same_epoch or lasted < decision.timeout_ms or set(decision.partitions) - partitions:
            continue
        topic, partition = min(partitions)
        detail = f"open for {lasted} ms in {', '.join(map(partition_name, sorted(partitions)))}"
        yield Finding(
            "ghost_transaction", topic, partition, -1, -1, producer_id, -1, decision.transactional_id, detail
        )
