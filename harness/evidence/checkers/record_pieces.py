"""Runs of consecutive records, cut at the borders of transactions and sends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.evidence.bit_words import Ints, lane_key
from harness.evidence.checkers.interval_sums import pieces
from harness.evidence.ledger import OPEN_END, Ledger
from harness.evidence.ledger.tables import Small
from harness.evidence.observation import Rows


class Pieces(NamedTuple):
    """Pieces of runs as columns. All records of a piece belong to one interval of the ledger."""

    run: Ints
    """Index of the run."""
    interval: Ints
    """Index of the interval in the ledger."""
    group: Ints
    """Index of the transaction or send in the ledger's groups."""
    first: Ints
    offset: Ints
    records: Ints


def pieces_of(ledger: Ledger, runs: Rows) -> Pieces:
    """Cut runs into pieces. Records that no client sent are left out.

    `runs` must have the columns producer, lane, seq, count and offset.
    """
    intervals, width = ledger.intervals, OPEN_END + 1
    producer, lanes = runs["producer"].astype(np.int64), runs["lane"].astype(np.int64)
    lane, declared = ledger.lane_index(lane_key(producer, lanes))
    seq, count = runs["seq"].astype(np.int64), runs["count"].astype(np.int64)
    base = intervals.lane.astype(np.int64) * width
    low = np.searchsorted(base + intervals.last, lane * width + seq)
    high = np.searchsorted(base + intervals.first, lane * width + seq + count - 1, side="right")
    number = np.where(declared, np.maximum(high - low, 0), 0)
    run = np.repeat(np.arange(len(runs)), number)
    interval = low[run] + np.arange(len(run)) - np.repeat(np.cumsum(number) - number, number)
    first = np.maximum(seq[run], intervals.first[interval])
    last = np.minimum(seq[run] + count[run] - 1, intervals.last[interval])
    return Pieces(
        run,
        interval,
        intervals.group[interval].astype(np.int64),
        first,
        runs["offset"][run].astype(np.int64) + first - seq[run],
        last - first + 1,
    )


def clocks_of_groups(ledger: Ledger) -> tuple[list[str], Small]:
    """Return the names of all clocks, and for each transaction or send the index of its producer's clock.

    The index is -1 if the clock is unknown.
    """
    clocks = {client.name: client.opening.clock for client in ledger.clients if client.opening}
    names = sorted(set(clocks.values()))
    numbers = sorted(ledger.producers)
    of_producer = [names.index(clocks[c]) if (c := ledger.client_of(n)) in clocks else -1 for n in numbers]
    clock = np.array([*of_producer, -1], np.int32)
    known = np.array(numbers, np.int32)
    result = np.empty(len(ledger.groups.producer), np.int32)
    for part in pieces(len(result)):
        result[part] = clock[np.searchsorted(known, ledger.groups.producer[part])]
    return names, result
