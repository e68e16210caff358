"""Reader of raw records in offset order.

It groups the records of the verified run into runs of consecutive sequences. It counts all other records as
foreign, and keeps examples of them with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.evidence.bit_words import EXAMPLES, Bools, Ints, group_starts
from harness.evidence.record import Identity, NotARecordError, decode
from spark_jobs import scan_rows as row
from spark_jobs.lane_runs import Places, Runs
from spark_jobs.record_columns import (
    Bytes,
    Values,
    bad_rows,
    field_of,
    gather,
    number,
    outcome_is_abort,
    runs_of,
    same_as_before,
    sequences,
)

UNFOLDED: Final = 1 << 18
"""Approximate number of records that a second scan processes at a time, to limit memory.

A second scan expands folded rows into single records.
"""


class Decoded(NamedTuple):
    """The rows of one batch that belong to the verified test run.

    `runs` are the runs of consecutive sequences in these rows.
    """

    table: Bytes
    window: Ints
    seq: Ints
    places: Places
    heads: Ints
    """Index of the first row of each run of sequences."""
    runs: Runs

    def of_rows(self, of_runs: Bools) -> Bools:
        """Expand one value per run of sequences to one value per row."""
        return np.repeat(of_runs, np.diff(np.append(self.heads, len(self.seq))))

    def records(self) -> tuple[Ints, Ints, Ints]:
        """Return the packed lane key, the sequence and the offset of every record."""
        seq, offset = self.places.unfolded(self.seq, self.places.offset)
        return np.repeat(self.runs.key, self.runs.size), seq, offset


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Unpack blocks of folded rows (jvm_fold.py) into batches of folded rows; yield other batches unchanged.

    The bytes of the identities are not copied.
    """
    for batch in batches:
        if batch.schema.names != _BLOCK:
            yield batch
            continue
        for i in range(batch.num_rows):
            window, offset, n, size, value = (column[i].as_buffer() for column in batch.columns)
            sizes = np.frombuffer(size, np.int32)
            ends = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0), dtype=np.int32)], dtype=np.int32)
            valid = pa.array(sizes >= 0).buffers()[1] if (sizes < 0).any() else None
            buffers = [valid, pa.py_buffer(ends), value]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(np.frombuffer(window, np.int32)),
                    pa.array(np.frombuffer(offset, np.int64)),
                    pa.Array.from_buffers(pa.binary(), len(sizes), buffers),
                    pa.array(np.frombuffer(n, np.int32)),
                ],
                names=["window", "offset", "value", "n"],
            )


_BLOCK: Final = ["window", "offset", "n", "size", "value"]


def portions(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Unpack blocks, and split batches into smaller batches of about `most` records, to limit memory."""
    for batch in unpacked(batches):
        starts = group_starts(np.cumsum(_records_per_row(batch)) // most).tolist()
        for start, end in pairwise([*starts, batch.num_rows]):
            yield batch.slice(start, end - start)


def _records_per_row(batch: pa.RecordBatch) -> Ints:
    """Return the number of records that each row represents. It is one if the batch has no column `n`."""
    if batch.num_columns == 3:
        return np.ones(batch.num_rows, np.int64)
    return np.asarray(batch.column(3)).astype(np.int64)


class Reader:
    """Decoder of the raw records of one Spark task, which arrive in successive batches.

    It remembers the last record of the previous batch, and collects the foreign records.
    """

    def __init__(self, run: str | None) -> None:
        self.run = run
        self.names: list[str] = [] if run is None else [run]
        self.clashes: list[tuple[int, ...]] = []
        self.foreign: dict[int, list[tuple[int, str]]] = {}
        self.foreign_counts: dict[int, int] = {}
        self._last: tuple[int, int, bytes, int] | None = None

    def decoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Decoded]:
        """Yield the decoded records in small portions; skip portions without records of the verified run."""
        for batch in portions(batches, UNFOLDED):
            decoded = self.read(batch)
            if decoded is not None:
                yield decoded

    def read(self, batch: pa.RecordBatch) -> Decoded | None:
        """Decode one batch; return None if it contains no record of the verified run.

        The columns of the batch are `window`, `offset`, `value` and, if its rows are folded, `n`.
        """
        window = np.asarray(batch.column(0)).astype(np.int64)
        offset = np.asarray(batch.column(1))
        values, n = batch.column(2), _records_per_row(batch)
        table, same = self._own_rows(gather(values))
        if len(table.rows) < len(offset):
            foreign = np.ones(len(offset), np.bool_)
            foreign[table.rows] = False
            self._keep_foreign(np.flatnonzero(foreign), window, Places(offset, n), values)
        window, offset, n = window[table.rows], offset[table.rows], n[table.rows]
        if not len(offset):
            return None
        seq = sequences(table.table, same)
        decoded = self._runs(table.table, window, Places(offset, n), same, seq)
        fresh = self._fresh(decoded)
        if fresh is not None:
            keep = np.flatnonzero(fresh)
            if not len(keep):
                return None
            kept = np.ascontiguousarray(table.table[keep])
            places = Places(offset[keep], n[keep])
            return self._runs(kept, window[keep], places, same_as_before(kept), seq[keep])
        return decoded

    def _own_rows(self, taken: Values) -> tuple[Values, Bools]:
        table, same = taken.table, same_as_before(taken.table)
        bad = bad_rows(table, same, taken.lengths)
        if self.run is not None:
            heads = np.flatnonzero(~same)
            other = runs_of(table, heads) != self.run.encode()
            bad |= np.repeat(other, np.diff(np.append(heads, len(table))))
        if not bad.any():
            return taken, same
        kept = np.ascontiguousarray(table[~bad])
        return Values(kept, taken.rows[~bad], taken.lengths[~bad]), same_as_before(kept)

    def _keep_foreign(self, rows: Ints, window: Ints, places: Places, values: pa.Array) -> None:
        for place in np.unique(window[rows]).tolist():
            here = rows[window[rows] == place]
            self.foreign_counts[place] = self.foreign_counts.get(place, 0) + int(places.n[here].sum())
            kept = self.foreign.setdefault(place, [])
            for i in here[: EXAMPLES - len(kept)].tolist():
                first, why = int(places.offset[i]), why_foreign(values[i].as_py())
                more = min(int(places.n[i]), EXAMPLES - len(kept))
                kept.extend((offset, why) for offset in range(first, first + more))

    def _runs(self, table: Bytes, window: Ints, places: Places, same: Bools, seq: Ints) -> Decoded:
        joined = same.copy()
        joined[1:] &= (seq[1:] == (seq + places.n)[:-1]) & (window[1:] == window[:-1])
        heads = np.flatnonzero(~joined)
        index = self._run_index(runs_of(table, heads))
        head = table[heads]
        producer, lane = (number(head, field_of(name)) for name in ("producer", "lane"))
        key = row.pack(index, window[heads], producer, lane)
        size = np.add.reduceat(places.n, heads)
        runs = Runs(key, seq[heads], size, places.first[heads], outcome_is_abort(table, heads))
        return Decoded(table, window, seq, places, heads, runs)

    def _run_index(self, runs: npt.NDArray[Any]) -> Ints:
        if self.run is not None:
            return np.zeros(len(runs), np.int64)
        unique, inverse = np.unique(runs, return_inverse=True)
        for name in (run.decode() for run in unique.tolist()):
            if name not in self.names:
                self.names.append(name)
        if len(self.names) > row.MAX_RUNS:
            raise ValueError(f"the topic holds records of more than {row.MAX_RUNS} runs: pass its ledger")
        numbers = np.array([self.names.index(run.decode()) for run in unique.tolist()], np.int64)
        return numbers[inverse]

    def _fresh(self, decoded: Decoded) -> Bools | None:
        """Return a mask that is False for every row that repeats the last offset of the previous row.

        Return None if no row does so. A row that repeats an offset represents a single record, because the
        fold never joins it with others. If the records at the repeated offset have different identities, both
        are added to `clashes`.
        """
        window, table, (offset, n) = decoded.window, decoded.table, (decoded.places.offset, decoded.places.n)
        end = offset + n - 1
        last = self._last
        self._last = (int(window[-1]), int(end[-1]), bytes(table[-1]), int(n[-1]))
        ahead = (window[1:] != window[:-1]) | (offset[1:] > end[:-1])
        first_ahead = last is None or last[0] != window[0] or last[1] < offset[0]
        if first_ahead and ahead.all():
            return None
        backwards = (window[1:] == window[:-1]) & (offset[1:] < end[:-1])
        if backwards.any() or (last is not None and last[0] == window[0] and last[1] > offset[0]):
            raise ValueError("offsets decreased: this scan needs the records of a partition in offset order")
        fresh = np.append(first_ahead, ahead)
        for i in np.flatnonzero(~fresh).tolist():
            before, many = (table[i - 1].tobytes(), int(n[i - 1])) if i else last[2:] if last else (b"", 1)
            this, other = (
                _identity_fields(decode(table[i].tobytes())),
                _identity_fields(decode(before), many - 1),
            )
            if this != other:
                self.clashes.append((int(window[i]), int(offset[i]), *this[:3], other[2]))
        return fresh


def _identity_fields(identity: Identity, later: int = 0) -> tuple[int, ...]:
    """Return the numeric fields of a record's identity and, for an output, those of its input's identity.

    `identity` is the identity of the first record of a folded row. The result belongs to the record that is
    `later` records after the first one.
    """
    producer, lane, seq, part, _ = identity.origin or (-1, -1, -1 - later, -1, -1)
    return identity.producer, identity.lane, identity.seq + later, producer, lane, seq + later, part


def why_foreign(value: bytes | None) -> str:
    """Return the reason why a record does not belong to the verified run."""
    try:
        identity = decode(value)
    except NotARecordError as error:
        return str(error)
    return f"it belongs to run {identity.run}"
