"""The scan: one pass over the records of a Spark task in offset order, from raw bytes to words.

The pass reads every record once, and its result has about one row per 256 records. The scan splits the log
into runs of consecutive sequences, and each run into pieces, which are the parts of the run within one word.

Each piece has a count `late`. To compute it, the scan takes the highest sequence of the lane that this task
read before the run. `late` is the number of records in the piece whose sequence is not above it.
docs/spark.md explains how the order check uses `late`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from harness.evidence.bit_words import Columns, interval_bits, merge
from spark_jobs import scan_rows as row
from spark_jobs.lane_runs import Highest, Places, Runs, cut
from spark_jobs.record_columns import (
    ORIGIN_SAME,
    field_of,
    is_output,
    number,
    origin_sequences,
    same_as_before,
)
from spark_jobs.record_reader import Decoded, Reader, portions

Batches = Iterator[pa.RecordBatch]

_COMPACT_AT: Final = 1 << 19
"""Number of pieces that a task collects before it merges the pieces of the same word."""

_AT_ONCE: Final = 1 << 22
"""Approximate number of records that are processed at a time, to limit memory."""

_EMIT: Final = 1 << 16
"""Maximum number of rows in a returned batch."""

_WORD_NAMES: Final = ("key", "word")
_ORIGIN_NAMES: Final = ("producer", "lane", "part", "word")


class Wanted(NamedTuple):
    """Options of a scan.

    `run` is the id of the test run whose records are wanted; None means the records of all test runs. If
    `with_runs` is True, the scan also returns a row for each run of consecutive records.
    """

    run: str | None
    with_runs: bool = False


class Pass:
    """The scan of one Spark task, from the first batch of records to the resulting rows."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.reader = Reader(wanted.run)
        self._highest = Highest()
        self._words: list[Columns] = []
        self._origins: list[Columns] = []
        self._runs: list[Columns] = []
        self._kept = 0

    def feed(self, batch: pa.RecordBatch) -> None:
        """Add one batch with the columns `window`, `offset`, `value` and, if the batch is folded, `n`."""
        decoded = self.reader.read(batch)
        if decoded is None:
            return
        self._add_words(decoded)
        self._add_origins(decoded)
        if self.wanted.with_runs:
            self._add_runs(decoded)
        if self._kept > _COMPACT_AT:
            self._words = [merge(self._words, _WORD_NAMES)]
            self._kept = len(self._words[0]["word"])

    def _add_words(self, decoded: Decoded) -> None:
        runs, places = decoded.runs, decoded.places
        end = places.offset_of(runs.at + runs.size - 1)
        before, _ = self._highest.before(runs.key, runs.seq + runs.size - 1, end)
        pieces = cut(runs)
        n = pieces.last - pieces.first + 1
        # Count the records of each piece whose sequence is not above the highest sequence that was read
        # before the piece's run.
        late = np.clip(before[pieces.run] - pieces.first + 1, 0, n)
        self._words.append(
            {
                "key": pieces.key,
                "word": pieces.word,
                "bits": interval_bits(pieces.first, pieces.last),
                "n": n,
                "aborted": n * pieces.aborted,
                "late": late,
                "lo": places.offset_of(pieces.at),
                "hi": places.offset_of(pieces.at + n - 1),
            }
        )
        self._kept += len(n)

    def _add_origins(self, decoded: Decoded) -> None:
        outputs = decoded.of_rows(is_output(decoded.table, decoded.heads))
        if not outputs.any():
            return
        table = np.ascontiguousarray(decoded.table[outputs])
        same = same_as_before(table, ORIGIN_SAME)
        seq = origin_sequences(table, same)
        window = decoded.window[outputs]
        places = Places(decoded.places.offset[outputs], decoded.places.n[outputs])
        joined = same.copy()
        joined[1:] &= (seq[1:] == (seq + places.n)[:-1]) & (window[1:] == window[:-1])
        heads = np.flatnonzero(~joined)
        head = table[heads]
        producer, lane, part = (
            number(head, field_of(name)) for name in ("origin_producer", "origin_lane", "part")
        )
        size = np.add.reduceat(places.n, heads)
        pieces = cut(Runs(heads, seq[heads], size, places.first[heads], np.zeros(len(heads), np.bool_)))
        n = pieces.last - pieces.first + 1
        columns = {
            "producer": producer[pieces.run],
            "lane": lane[pieces.run],
            "part": part[pieces.run],
            "word": pieces.word,
            "bits": interval_bits(pieces.first, pieces.last),
            "n": n,
            "window": window[heads][pieces.run],
            "lo": places.offset_of(pieces.at),
            "hi": places.offset_of(pieces.at + n - 1),
        }
        self._origins.append(merge([columns], ("window", *_ORIGIN_NAMES)))
        if len(self._origins) > 64:
            self._origins = [merge(self._origins, ("window", *_ORIGIN_NAMES))]

    def _add_runs(self, decoded: Decoded) -> None:
        """Add the runs of records of one batch. Within each run, offset and sequence both grow by one.

        A gap in the offsets ends a run of records. It is caused by a transaction marker or an aborted record.
        """
        offset, n = decoded.places.offset, decoded.places.n
        step = np.ones(len(offset), np.bool_)
        step[1:] = offset[1:] != (offset + n)[:-1]
        step[decoded.heads] = True
        starts = np.flatnonzero(step)
        self._runs.append(
            {
                "key": decoded.runs.key[np.searchsorted(decoded.heads, starts, "right") - 1],
                "word": decoded.seq[starts],
                "n": np.add.reduceat(n, starts),
                "lo": offset[starts],
            }
        )

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the result, in batches of limited size."""
        if self._words:
            yield from self._emit(row.WORD, merge(self._words, _WORD_NAMES))
        if self._origins:
            yield from self._emit(row.ORIGIN, merge(self._origins, ("window", *_ORIGIN_NAMES)))
        if self._runs:
            yield from self._emit(row.RUN, _joined(merge_in_order(self._runs)))
        yield from _foreign_rows(self.reader)

    def _emit(self, kind: int, columns: Columns) -> Iterator[pa.RecordBatch]:
        size = len(columns["word"])
        for at in range(0, size, _EMIT):
            part = {name: column[at : at + _EMIT] for name, column in columns.items()}
            yield to_rows(kind, part, self.reader.names)


def to_rows(kind: int, columns: Columns, names: list[str]) -> pa.RecordBatch:
    """Return columns as a batch of scan rows; `kind` is a constant such as WORD or RUN.

    The packed lane keys in a column `key` are split into the columns `window`, `producer` and `lane`. If
    `names`, a list of test run ids, is not empty, a column `run` with the id of each row's test run is added.
    A column `bits` becomes four columns, one for each 64-bit quarter of a word.
    """
    columns = dict(columns)
    size = len(columns["word"])
    if "key" in columns:
        lane = row.unpack(columns.pop("key"))
        columns |= {"window": lane.window, "producer": lane.producer, "lane": lane.lane}
        if names:
            columns["run"] = pa.array(names).take(pa.array(lane.run))
    if "bits" in columns:
        bits = columns.pop("bits").view(np.int64)
        columns |= {name: bits[:, i] for i, name in enumerate(row.BITS)}
    return row.to_batch({**columns, "kind": kind}, size)


def merge_in_order(parts: list[Columns]) -> Columns:
    """Join tables by appending their columns in the given order."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _joined(runs: Columns) -> Columns:
    """Merge each run of consecutive records with the run that continues it.

    A run may have been split at the end of a batch.
    """
    key, seq, n, lo = runs["key"], runs["word"], runs["n"], runs["lo"]
    new = np.ones(len(key), np.bool_)
    new[1:] = (key[1:] != key[:-1]) | (seq[1:] != (seq + n)[:-1]) | (lo[1:] != (lo + n)[:-1])
    starts = np.flatnonzero(new)
    return {"key": key[starts], "word": seq[starts], "n": np.add.reduceat(n, starts), "lo": lo[starts]}


def _foreign_rows(reader: Reader) -> Iterator[pa.RecordBatch]:
    for window, kept in reader.foreign.items():
        counts = np.ones(len(kept) + 1, np.int64)
        counts[-1] = reader.foreign_counts[window] - len(kept)
        columns: Columns = {
            "window": window,
            "n": counts,
            "lo": np.array([offset for offset, _ in kept] + [-1]),
            "detail": [why for _, why in kept] + [None],
        }
        yield row.to_batch({**columns, "kind": row.FOREIGN}, len(counts))
    if reader.clashes:
        window, offset, producer, lane, seq, other = np.array(reader.clashes, np.int64).T
        columns = {"window": window, "lo": offset, "producer": producer, "lane": lane, "word": seq}
        yield row.to_batch({**columns, "b0": other, "n": 1, "kind": row.CLASH}, len(window))


def scan_words(wanted: Wanted) -> Callable[[Batches], Batches]:
    """Return a function for mapInArrow that scans the records of a task and yields the resulting rows."""

    def run(batches: Batches) -> Batches:
        task = Pass(wanted)
        for batch in portions(batches, _AT_ONCE):
            task.feed(batch)
        yield from task.finish()

    return run
