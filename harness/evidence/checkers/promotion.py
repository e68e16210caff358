"""Promotion: a transaction of unknown fate is committed if a read_committed reader was given a record of it.

Kafka gives a record of a transaction to such a reader only after it committed the transaction as a whole. So
the other records of the transaction are committed too, and all of them must stay readable. Records without a
transaction are promoted one by one: a send of several records may be written in part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.evidence.bit_words import Bools, Ints
from harness.evidence.checkers.given_records import Reader, readers_before, readers_of
from harness.evidence.checkers.model import Evidence, HistoryRef
from harness.evidence.checkers.visibility_index import VisibilityIndex, compacted_lanes
from harness.evidence.ledger import COMMITTED, UNKNOWN, Ledger
from harness.evidence.ledger.tables import Fates


class Promoted(NamedTuple):
    """The fates of transactions and intervals after promotion. A promoted transaction is committed."""

    groups: Fates
    intervals: Fates
    promoted: Bools
    """For each group of the ledger, whether it was promoted."""


def promote(evidence: Evidence) -> Promoted:
    """Return the ledger's fates, with transactions promoted from unknown to committed.

    Only unknown fates change. A record of an aborted transaction that a reader was given is an anomaly, and
    its fate remains aborted.
    """
    promoted: Promoted | None = evidence.cache.get("promotion")
    if promoted is None:
        groups, intervals = evidence.ledger.groups, evidence.ledger.intervals
        open_ = (groups.fate == UNKNOWN) & (groups.txn >= 0)
        given = np.zeros(len(groups.fate), np.bool_)
        for reader in readers_of(evidence) if open_.any() else ():
            given[intervals.group[reader.index.visible > 0]] = True
        chosen = given & open_
        unknown = intervals.fate == UNKNOWN
        promoted = evidence.cache["promotion"] = Promoted(
            np.where(chosen, np.uint8(COMMITTED), groups.fate),
            np.where(unknown & chosen[intervals.group], np.uint8(COMMITTED), intervals.fate),
            chosen,
        )
    return promoted


class Judged(NamedTuple):
    """The promoted transactions that a witness contradicts, as masks of the ledger's groups."""

    lost: Bools
    """A record was given to a reader from a partition that the witness covers, and the witness read none."""
    torn: Bools
    """The witness read a part of the records in the partitions that it covers. Or it read none of them, but a
    reader, which may be the witness itself, was given a record from another partition.
    """


def judge_promoted(evidence: Evidence, index: VisibilityIndex) -> Judged:
    """Compare the promoted transactions with one witness, in the partitions that it covers."""
    intervals, promoted = evidence.ledger.intervals, promote(evidence).promoted
    number = len(promoted)
    if not promoted.any():
        return Judged(promoted, promoted)
    covered = (index.covered & ~compacted_lanes(evidence))[intervals.lane]

    def total(values: Ints) -> Ints:
        return np.bincount(intervals.group, values * covered, number).astype(np.int64)

    size, visible = total(intervals.last - intervals.first + 1), total(index.visible)
    here = np.zeros(number, np.bool_)
    elsewhere = np.zeros(number, np.bool_)
    for reader in readers_before(evidence, index.observation.meta):
        # The witness itself is a reader too: of a partition that it did not read to the end.
        given = (reader.index.visible > 0) & _is_comparable(reader, index)[intervals.lane]
        here[intervals.group[given & covered]] = True
        elsewhere[intervals.group[given & ~covered]] = True
    nothing = promoted & (size > 0) & (visible == 0)
    part = promoted & (visible > 0) & (visible < size)
    return Judged(nothing & here, part | (nothing & ~here & elsewhere))


def _is_comparable(reader: Reader, index: VisibilityIndex) -> Bools:
    """For each lane, return whether what the reader was given must also be in the witness.

    If two complete witnesses read a partition to different ends, one may have read later than the other.
    """
    if not reader.is_complete:
        return np.ones(len(index.homes), np.bool_)
    ends = [
        np.array([*(w.read_to for w in each.observation.meta.windows), -1], np.int64)[each.homes]
        for each in (reader.index, index)
    ]
    comparable: Bools = (ends[0] == ends[1]) | (ends[1] < 0)
    return comparable


def proof_of(evidence: Evidence, group: int) -> tuple[list[str], list[HistoryRef]]:
    """Return the readers that were given a record of a transaction, and the line of each first poll."""
    names, lines = [], []
    ledger = evidence.ledger
    mine = np.flatnonzero(ledger.intervals.group == group)
    for reader in readers_of(evidence):
        if np.any(reader.index.visible[mine] > 0):
            names.append(reader.name)
            lines += _first_poll(reader, ledger, mine)
    return names, lines


def _first_poll(reader: Reader, ledger: Ledger, intervals: Ints) -> list[HistoryRef]:
    rows = reader.rows
    overlap = rows.line < 0
    columns = (ledger.intervals.lane, ledger.intervals.first, ledger.intervals.last)
    for lane, first, last in zip(*(column[intervals].tolist() for column in columns), strict=True):
        overlap |= (rows.lane == lane) & (rows.first <= last) & (rows.last >= first)
    return [HistoryRef(reader.name, line) for line in rows.line[overlap][:1].tolist() if line]
