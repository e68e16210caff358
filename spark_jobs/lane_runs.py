"""Steps from decoded records to words: runs of consecutive sequences, and their pieces within one word.

A run is a part of the log in which the sequences of one lane are consecutive. A piece is the part of a run
that lies within one word. A log has far fewer runs than records, so expensive steps are done once per run.

A row may represent several folded records (jvm_fold.py). So indices and sizes of runs count records, not
rows. `Places` maps the index of a record to its offset.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.evidence.bit_words import WORD_SEQS, Bools, Ints, group_sizes, group_starts


class Runs(NamedTuple):
    """Runs of consecutive sequences of one lane, as columns, in the order of the log."""

    key: Ints
    seq: Ints
    size: Ints
    at: Ints
    """Index of the first record of each run."""
    aborted: Bools


class LanePieces(NamedTuple):
    """Pieces of runs, as columns. Each run was split at word boundaries, so a piece lies within one word."""

    key: Ints
    word: Ints
    first: Ints
    """First sequence of each piece; the column `last` contains the last sequence of each piece."""
    last: Ints
    at: Ints
    """Index of the first record of each piece."""
    aborted: Bools
    run: Ints
    """Index of the run to which each piece belongs."""


class Places:
    """Offsets of all records of a batch of folded rows.

    A folded row stores the offset of its first record and the number `n` of its records.
    """

    def __init__(self, offset: Ints, n: Ints) -> None:
        self.offset = offset
        self.n = n
        self.first: Ints = np.cumsum(n) - n
        self.count = int(n.sum())

    def offset_of(self, record: Ints) -> Ints:
        """Return the offsets of the records with the given indices."""
        if self.count == len(self.offset):
            return self.offset[record]
        row = np.searchsorted(self.first, record, "right") - 1
        return self.offset[row] + record - self.first[row]

    def unfolded(self, *columns: Ints) -> list[Ints]:
        """Expand columns with one value per row to columns with one value per record.

        Within a row, the value grows by one from record to record.
        """
        step = np.arange(self.count) - np.repeat(self.first, self.n)
        return [np.repeat(column, self.n) + step for column in columns]


def cut(runs: Runs) -> LanePieces:
    """Split runs at word boundaries, and return the resulting pieces as columns."""
    last = runs.seq + runs.size - 1
    low = runs.seq // WORD_SEQS
    touched = last // WORD_SEQS - low + 1
    run = np.repeat(np.arange(len(runs.seq)), touched)
    step = np.arange(len(run)) - np.repeat(np.cumsum(touched) - touched, touched)
    word = low[run] + step
    first = np.maximum(runs.seq[run], word * WORD_SEQS)
    end = np.minimum(last[run], word * WORD_SEQS + WORD_SEQS - 1)
    at = runs.at[run] + first - runs.seq[run]
    return LanePieces(runs.key[run], word, first, end, at, runs.aborted[run], run)


class Highest:
    """The highest sequence of each lane that was read so far, and the offset of its record.

    This state is kept from one batch to the next.
    """

    def __init__(self) -> None:
        self.keys: Ints = np.zeros(0, np.int64)
        self.seqs: Ints = np.zeros(0, np.int64)
        self.offsets: Ints = np.zeros(0, np.int64)

    def before(self, key: Ints, last: Ints, offset: Ints) -> tuple[Ints, Ints]:
        """Return, for each run, the highest sequence of its lane before the run, and that record's offset.

        Both are -1 if no record of the lane was read before. The method also adds the given runs to the
        stored state: `key` is the lane of each run, `last` is the run's last sequence, and `offset` is the
        offset of this sequence.
        """
        if not len(key):
            return key, key
        order = np.argsort(key, kind="stable")
        key, last, offset = key[order], last[order], offset[order]
        starts = group_starts(key)
        sizes = group_sizes(starts, len(key))
        index = self._index(key[starts])
        lane = np.repeat(np.arange(len(starts)), sizes)
        # Adding lane * width gives each lane its own range of numbers, above the ranges of all previous
        # lanes. So one running maximum over all rows is enough.
        width = max(int(last.max()), int(self.seqs.max())) + 2
        carried = lane * width + self.seqs[index][lane] + 1
        line = lane * width + last + 1
        running = np.maximum(np.maximum.accumulate(line), carried)
        before = np.concatenate([running[:1], running[:-1]])
        before[starts] = carried[starts]
        rises = line > before
        # For each run, find the run of this batch that last raised the highest sequence of the lane, up to
        # and including the run itself. If there is none, the highest sequence is from an earlier batch.
        mark = np.where(rises, np.arange(len(line)), 0)
        mark[starts] = starts
        holder = np.maximum.accumulate(mark)
        held = np.where(rises[holder], offset[holder], self.offsets[index][lane])
        held_before = np.concatenate([held[:1], held[:-1]])
        held_before[starts] = self.offsets[index]
        ends = starts + sizes - 1
        self.seqs[index] = running[ends] - lane[ends] * width - 1
        self.offsets[index] = held[ends]
        highest, leader = np.empty_like(before), np.empty_like(before)
        highest[order] = before - lane * width - 1
        leader[order] = held_before
        return highest, leader

    def _index(self, keys: Ints) -> Ints:
        missing = keys[~np.isin(keys, self.keys)]
        if len(missing):
            merged = np.append(self.keys, missing)
            order = np.argsort(merged)
            fill = np.full(len(missing), -1, np.int64)
            self.keys = merged[order]
            self.seqs = np.append(self.seqs, fill)[order]
            self.offsets = np.append(self.offsets, fill)[order]
        return np.searchsorted(self.keys, keys)
