"""Lag of live readers: the longest time from the acknowledgement of a record to the poll that returned it.

The verdict reports the lag but does not check it.
"""

from __future__ import annotations

import numpy as np

from harness.evidence.checkers.consumer_reads import Reads, reads_of
from harness.evidence.checkers.model import Evidence
from harness.evidence.checkers.record_pieces import clocks_of_groups, pieces_of
from harness.evidence.ledger import COMMITTED, Ledger


def reading_lags(evidence: Evidence) -> list[str]:
    """Return a note for each reader with its worst lag."""
    ledger = evidence.ledger
    readers = reads_of(ledger)
    if not readers:
        return []
    clocks, clock_of = clocks_of_groups(ledger)
    notes = []
    for reads in readers:
        lag = _worst_lag(ledger, reads, clock_of == clocks.index(reads.clock))
        if lag is not None:
            notes.append(f"{reads.client}: it got each record at most {lag:.1f} s after the acknowledgement")
    return notes


def _worst_lag(ledger: Ledger, reads: Reads, same_clock: np.ndarray) -> float | None:
    """Return the worst lag in seconds, or None if the reader got no acknowledged record of its clock.

    A record that was acknowledged before the reader began to poll counts from its first poll. A record that
    the reader got several times counts once.
    """
    pieces, groups = pieces_of(ledger, reads.rows), ledger.groups
    place, mono = reads.rows["place"][pieces.run], reads.rows["mono"][pieces.run]
    end = pieces.offset + pieces.records
    # Consider only polls that reached a new highest offset of the partition.
    new = np.zeros(len(end), np.bool_)
    for number in range(len(reads.places)):
        here = np.flatnonzero(place == number)
        highest = np.maximum.accumulate(end[here])
        new[here] = end[here] > np.append(-1, highest[:-1])
    answered = groups.answered[pieces.group]
    acknowledged = (ledger.intervals.fate[pieces.interval] == COMMITTED) & (answered > 0)
    counted = new & acknowledged & same_clock[pieces.group]
    if not counted.any():
        return None
    since = np.maximum(answered[counted], int(reads.rows["mono"][0]))
    return float(np.maximum(mono[counted] - since, 0).max()) / 1e9
