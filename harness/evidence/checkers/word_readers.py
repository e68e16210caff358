"""Records that readers passed over, found with the words of a witness that recorded no runs.

Words show which sequences a witness read, but not the offset of each. Two facts place a sequence all the
same: words without gaps have a record at every offset, and in an orderly lane, a sequence between two given
records is at an offset between theirs. The checker of the property `consumers` uses this module.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from harness.base.partition_id import PartitionId
from harness.evidence.bit_words import Ints, lane_key
from harness.evidence.checkers.consumer_reads import Reads, reads_of
from harness.evidence.checkers.distinct import RecordSet, key_of_words
from harness.evidence.checkers.model import Evidence
from harness.evidence.checkers.poll_order import Jump
from harness.evidence.checkers.visibility_index import VisibilityIndex, visibility_of
from harness.evidence.observation import Observation

_NONE: Final = RecordSet()
_LOOK_BACK: Final = 4096
"""Number of earlier runs of a reader among which an earlier record of the same lane is looked for."""


def is_without_runs(view: Observation) -> bool:
    """Return whether a witness read its partitions to their ends, but recorded no runs."""
    return view.meta.complete and view.runs is None and view.meta.kind != "client"


def certain_offsets(view: Observation, window: int) -> Ints:
    """Return ranges of offsets of one partition at which the witness certainly read a record.

    The columns are: first offset, end. Words that overlap are taken together. If they have as many records as
    offsets, each of these has a record; otherwise, only the lowest and the highest offset of each word does.
    """
    words = view.words[view.words["partition"] == window]
    words = words[np.argsort(words["lo"], kind="stable")]
    if not len(words):
        return np.zeros((0, 2), np.int64)
    reach = np.maximum.accumulate(words["hi"])
    starts = np.flatnonzero(np.append(True, words["lo"][1:] > reach[:-1]))
    ends = np.append(starts[1:], len(words)) - 1
    low, high = words["lo"][starts], reach[ends]
    dense = np.add.reduceat(words["n"], starts) == high - low + 1
    whole = np.column_stack([low[dense], high[dense] + 1])
    points = np.concatenate([words["lo"], words["hi"]])
    return np.concatenate([whole, np.column_stack([points, points + 1])])


class WordReaders:
    """The records that each client was given, and the partitions of which a witness has words but no runs."""

    def __init__(self, evidence: Evidence, with_runs: set[PartitionId]) -> None:
        self._ledger = evidence.ledger
        self._indexes: dict[PartitionId, VisibilityIndex] = {}
        for view in evidence.committed_views() if len(evidence.ledger.lanes) else ():
            for window in view.meta.windows if is_without_runs(view) else ():
                if (window.topic, window.partition) not in with_runs:
                    self._indexes[window.topic, window.partition] = visibility_of(evidence, view)
        self._given: dict[tuple[str, PartitionId], Ints] = {}
        for reads in reads_of(evidence.ledger) if self._indexes else ():
            self._add(reads)

    def _add(self, reads: Reads) -> None:
        rows = reads.rows
        lane, declared = self._ledger.lane_index(lane_key(rows["producer"], rows["lane"]))
        columns = (rows["offset"], np.where(declared, lane, -1), rows["seq"], rows["count"])
        table = np.column_stack(columns)
        for number, name in enumerate(reads.places):
            here = table[rows["place"] == number]
            self._given[reads.client, name] = here[np.argsort(here[:, 0], kind="stable")]

    def skipped(self, jump: Jump) -> RecordSet:
        """Return records that the client was never given, at offsets between the ends of a jump."""
        given = self._given.get((jump.client, jump.place))
        index = self._indexes.get(jump.place)
        if given is None or index is None:
            return _NONE
        after = given[np.searchsorted(given[:, 0], jump.offset)]
        lane, seq = int(after[1]), int(after[2])
        low, high = np.searchsorted(given[:, 0], [jump.since, jump.expected])
        before = given[max(low, high - _LOOK_BACK) : high]
        before = before[before[:, 1] == lane]
        if lane < 0 or not len(before) or not index.orderly(np.array([lane]))[0]:
            return _NONE
        first = int(before[-1, 2] + before[-1, 3])
        return self._missing(index, given, lane, first, seq - 1) if first < seq else _NONE

    def unseen(self, clients: list[str], place: PartitionId, start: int, end: int) -> RecordSet:
        """Return records that none of the clients was given, in words that are inside a range of offsets."""
        index = self._indexes.get(place)
        if index is None:
            return _NONE
        words, lane = index.words, index.word_lane
        home = np.array([name == place for name in self._ledger.places], np.bool_)
        inside = home[lane] & (words["lo"] >= start) & (words["hi"] < end)
        records = RecordSet(key_of_words(lane, words["word"])[inside], words["bits"][inside])
        for client in clients:
            given = self._given.get((client, place))
            if given is not None:
                given = given[given[:, 1] >= 0]
                records -= RecordSet.of_intervals(given[:, 1], given[:, 2], given[:, 2] + given[:, 3] - 1)
        return records

    def _missing(self, index: VisibilityIndex, given: Ints, lane: int, first: int, last: int) -> RecordSet:
        columns = (np.array([value], np.int64) for value in (lane, first, last))
        records = index.read_in(*columns)
        if not len(records):
            return _NONE
        same = given[given[:, 1] == lane]
        return records - RecordSet.of_intervals(same[:, 1], same[:, 2], same[:, 2] + same[:, 3] - 1)
