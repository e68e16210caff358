"""Positions of consumers: the offsets that each poll returned, compared with those of the polls before.

A consumer reads a partition in the order of offsets. Three acts move its position: a rebalance, a seek of the
client, and a new assignment. The history lists these acts. Without such an act, the next poll continues where
the last one ended. After a rebalance, a member of a group continues at the group's committed position. So it
may read records again, but it may not pass over any record that no member of the group has read.

Older histories do not list rebalances. In such a history, a member of a group is checked only within a poll.
A reader without a group is checked always, because only its own client can move it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from harness.base.partition_id import PartitionId
from harness.evidence.bit_words import Ints
from harness.evidence.history import COMMITTED_POSITION, Completion, Invoke, Ok
from harness.evidence.ledger import ABORTED, Ledger
from harness.evidence.ledger.history_scan import Scan

CONSUMER_OPERATIONS: Final = ("poll", "assign", "revoke", "seek")


class Jump(NamedTuple):
    """A place at which a poll did not continue where its consumer had stopped.

    `expected` is the offset at which the consumer had to continue, and `offset` the one that it was given.
    """

    client: str
    line: int
    place: PartitionId
    expected: int
    offset: int
    inside: bool
    """Whether the offset before it is from the same poll."""
    returned: list[tuple[int, int]]
    """All ranges of offsets (first, end) that the poll returned of this partition."""
    rebalanced: bool
    """Whether `expected` is the highest position that the group can have committed."""
    since: int
    """Offset from which on the consumer has read without a rebalance, a seek or an unclear poll."""


class _Position(NamedTuple):
    next: int
    high: int
    """First offset above all those that the consumer was given since its position was last moved."""
    exact: bool = True
    """False if the consumer may also continue at a lower offset."""
    since: int | None = None
    """Offset at which the consumer began to read after its position was last moved; None if it is unknown."""


class CommittedPositions:
    """The highest positions that each group can have committed at a given time.

    Members that commit positions in their own operations list them in their histories. Any other member can
    have committed, at most, the position behind the last record that its history lists.
    """

    def __init__(self, ledger: Ledger) -> None:
        pairs = zip(ledger.groups.producer.tolist(), ledger.groups.txn.tolist(), strict=True)
        fates = dict(zip(pairs, ledger.groups.fate.tolist(), strict=True))
        rows: dict[tuple[str, PartitionId], dict[str, list[tuple[int, int]]]] = {}
        for client in ledger.clients:
            clock = client.opening.clock if client.opening else ""
            for group, place, mono, offset in _commits(client, fates):
                rows.setdefault((group, place), {}).setdefault(clock, []).append((mono, offset))
        self._columns: dict[tuple[str, PartitionId], dict[str, tuple[Ints, Ints]]] = {}
        for key, by_clock in rows.items():
            self._columns[key] = {clock: _running_maximum(pairs) for clock, pairs in by_clock.items()}

    def most(self, group: str, place: PartitionId, before: int, clock: str) -> int:
        """Return the highest position that the group can have committed before a time on a clock."""
        most = 0
        for other, (times, highest) in self._columns.get((group, place), {}).items():
            # Times of different clocks cannot be compared, so consider all positions of another clock.
            rows = int(np.searchsorted(times, before)) if other == clock else len(times)
            most = max(most, int(highest[rows - 1]) if rows else 0)
        return most


def _running_maximum(pairs: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    table = np.array(sorted(pairs), np.int64)
    return np.ascontiguousarray(table[:, 0]), np.maximum.accumulate(table[:, 1])


def _commits(client: Scan, fates: dict[tuple[int, int], int]) -> Iterator[tuple[str, PartitionId, int, int]]:
    """Yield the positions that a client can have committed: group, partition, time, position."""
    groups = {line.op: line.group for _, line in client.invokes("poll")}
    requests = list(client.invokes("send_offsets", "commit_offsets"))
    for _, line in requests:
        fate = None if line.producer is None or line.txn is None else fates.get((line.producer, line.txn))
        if line.group is None or (line.f == "send_offsets" and fate == ABORTED):
            continue
        for topic, partition, offset in line.offsets:
            yield line.group, (topic, partition), line.mono, offset
    if requests or client.producers:
        return
    for _, done in client.completions("poll"):
        group = groups.get(done.op)
        if group is None:
            continue
        for topic, partition, offset, _, _, _, count in done.read:
            yield group, (topic, partition), done.mono, offset + count


@dataclass
class _Walk:
    """One pass over a client's history, with the positions of its consumer in one group or without any."""

    client: str
    group: str | None
    commits: CommittedPositions
    clock: str
    lists_moves: bool
    positions: dict[PartitionId, _Position] = field(default_factory=dict)
    moved: set[PartitionId] = field(default_factory=set)
    """Partitions whose position was moved since the current poll was requested."""

    def move(self, line: Invoke, *, known: bool = True) -> None:
        """Apply an assignment, a revocation or a seek.

        If `known` is False, the partitions may or may not have been moved.
        """
        for topic, partition, offset in line.offsets:
            place = (topic, partition)
            first = line.f == "assign" and place not in self.positions and place not in self.moved
            if not first:
                self.moved.add(place)
            if line.f == "revoke" or not known:
                self.positions.pop(place, None)
            elif offset == COMMITTED_POSITION:
                self.positions[place] = _Position(COMMITTED_POSITION, COMMITTED_POSITION, exact=False)
            else:
                self.positions[place] = _Position(offset, offset, since=offset)

    def request(self) -> None:
        """Begin a poll."""
        self.moved.clear()
        if self.group is not None and not self.lists_moves:
            self.positions.clear()

    def poll(self, number: int, done: Completion) -> Iterator[Jump]:
        """Yield the jumps of one poll."""
        returned: dict[PartitionId, list[tuple[int, int]]] = {}
        for topic, partition, offset, _, _, _, count in done.read:
            returned.setdefault((topic, partition), []).append((offset, offset + count))
        for place, ranges in returned.items():
            if place in self.moved:
                self._mixed(place, ranges, done.mono)
                continue
            inside = False
            for offset, end in ranges:
                position, rebalanced = self._expected(place, done.mono)
                if position is not None and (
                    offset > position.high or (offset < position.next and position.exact)
                ):
                    expected = position.high if offset > position.high else position.next
                    since = expected if rebalanced or position.since is None else position.since
                    yield Jump(
                        self.client, number, place, expected, offset, inside, ranges, rebalanced, since
                    )
                continued = position is not None and position.exact
                high = max(end, position.high) if position is not None and continued else end
                start = position.since if position is not None and continued else offset
                self.positions[place] = _Position(end, high, since=start)
                inside = True
        if not isinstance(done, Ok):
            # The library may have dropped records, or it may return them again.
            self.positions.clear()

    def _expected(self, place: PartitionId, now: int) -> tuple[_Position | None, bool]:
        position = self.positions.get(place)
        if position is None or position.next != COMMITTED_POSITION:
            return position, False
        if self.group is None:
            return None, False
        most = self.commits.most(self.group, place, now, self.clock)
        return _Position(most, most, exact=False), True

    def _mixed(self, place: PartitionId, ranges: list[tuple[int, int]], now: int) -> None:
        """Follow a poll in which the position was moved: its records are from before and after the move."""
        position = self._expected(place, now)[0]
        if position is not None:
            end = max(position.high, *(end for _, end in ranges))
            self.positions[place] = _Position(end, end, exact=False)


def skipped_polls(ledger: Ledger) -> dict[str, str]:
    """Return the clients with a poll that has no answer although the same consumer polled again, and why.

    A consumer polls again only after the previous poll has returned. So the line with the records is missing.
    """
    skipped: dict[str, str] = {}
    for client in ledger.clients:
        answered = {done.op for _, done in client.completions("poll")}
        waiting: dict[str | None, int] = {}
        for number, line in client.invokes("poll"):
            if line.group in waiting:
                before = waiting[line.group]
                skipped.setdefault(
                    client.name,
                    f"{client.name}: the poll in line {before} has no answer, but the client polled again in "
                    f"line {number}",
                )
            waiting.pop(line.group, None)
            if line.op not in answered:
                waiting[line.group] = number
    return skipped


def jumps(ledger: Ledger) -> Iterator[Jump]:
    """Yield all places at which a poll did not continue where its consumer had stopped.

    A jump forward is permitted if no readable record is at the offsets between. If requests are missing from
    the history of a consumer, it may have been moved between two polls, so only jumps inside a poll count. If
    they are missing from any history, another member of a group may have committed a higher position.
    """
    incomplete = ledger.with_gaps | skipped_polls(ledger).keys()
    for jump in _all_jumps(ledger):
        is_certain = jump.client not in incomplete and not (jump.rebalanced and incomplete)
        if jump.inside or is_certain:
            yield jump


def _all_jumps(ledger: Ledger) -> Iterator[Jump]:
    commits = CommittedPositions(ledger)
    for client in ledger.clients:
        lists_moves = {line.group for _, line in client.invokes("assign")}
        clock = client.opening.clock if client.opening else ""
        walks: dict[str | None, _Walk] = {}
        requests: dict[int, Invoke] = {}
        for number, line in client.rare:
            if isinstance(line, Invoke) and line.f in CONSUMER_OPERATIONS:
                requests[line.op] = line
                walk = walks.setdefault(
                    line.group, _Walk(client.name, line.group, commits, clock, line.group in lists_moves)
                )
                if line.f == "poll":
                    walk.request()
                else:
                    # A seek can fail, so its positions are valid only when it has succeeded.
                    walk.move(line, known=line.f != "seek")
            elif isinstance(line, Completion) and line.op in requests:
                request = requests.pop(line.op)
                if request.f == "poll":
                    yield from walks[request.group].poll(number, line)
                elif request.f == "seek" and isinstance(line, Ok):
                    walks[request.group].move(request)
