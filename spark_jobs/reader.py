"""Reads batches of raw records in offset order: what is ours becomes runs, the rest is kept by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from harness.record import Identity, NotARecordError, decode
from spark_jobs import rows as row
from spark_jobs.decode import (
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
from spark_jobs.rows import Bools, Ints
from spark_jobs.runs import Runs

EXAMPLES: Final = 8


class Decoded(NamedTuple):
    """The records of one batch, as runs, and the columns that runs point into."""

    table: Bytes
    window: Ints
    offset: Ints
    same: Bools
    seq: Ints
    runs: Runs


class Reader:
    """Decodes batch after batch; remembers where it stood, and what does not belong here."""

    def __init__(self, run: str | None) -> None:
        self.run = run
        self.names: list[str] = [] if run is None else [run]
        self.clashes: list[tuple[int, ...]] = []
        self.foreign: dict[int, list[tuple[int, str]]] = {}
        self.foreign_counts: dict[int, int] = {}
        self._last: tuple[int, int, bytes] | None = None

    def decoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Decoded]:
        """Decode batch after batch, and pass over those of which nothing is ours."""
        for batch in batches:
            found = self.read(batch)
            if found is not None:
                yield found

    def read(self, batch: pa.RecordBatch) -> Decoded | None:
        """Decode one batch of `window`, `offset`, `value`; None if nothing of it is ours."""
        window = np.asarray(batch.column(0)).astype(np.int64)
        offset = np.asarray(batch.column(1))
        values = batch.column(2)
        taken = gather(values)
        if len(taken.rows) < len(offset):
            absent = np.ones(len(offset), np.bool_)
            absent[taken.rows] = False
            self._strangers(np.flatnonzero(absent), window, offset, values)
        table, same = self._ours(taken, window, offset, values)
        window, offset = window[table.rows], offset[table.rows]
        if not len(offset):
            return None
        seq = sequences(table.table, same)
        decoded = self._runs(table.table, window, offset, same, seq)
        fresh = self._fresh(decoded)
        if fresh is not None:
            keep = np.flatnonzero(fresh)
            if not len(keep):
                return None
            kept = np.ascontiguousarray(table.table[keep])
            return self._runs(kept, window[keep], offset[keep], same_as_before(kept), seq[keep])
        return decoded

    def _ours(self, taken: Values, window: Ints, offset: Ints, values: pa.Array) -> tuple[Values, Bools]:
        table, same = taken.table, same_as_before(taken.table)
        bad = bad_rows(table, same, taken.lengths)
        if self.run is not None:
            heads = np.flatnonzero(~same)
            other = runs_of(table, heads) != self.run.encode()
            bad |= np.repeat(other, np.diff(np.append(heads, len(table))))
        if not bad.any():
            return taken, same
        self._strangers(taken.rows[bad], window, offset, values)
        kept = np.ascontiguousarray(table[~bad])
        return Values(kept, taken.rows[~bad], taken.lengths[~bad]), same_as_before(kept)

    def _strangers(self, found: Ints, window: Ints, offset: Ints, values: pa.Array) -> None:
        for place in np.unique(window[found]).tolist():
            mine = found[window[found] == place]
            self.foreign_counts[place] = self.foreign_counts.get(place, 0) + len(mine)
            kept = self.foreign.setdefault(place, [])
            for i in mine[: EXAMPLES - len(kept)].tolist():
                kept.append((int(offset[i]), why_foreign(values[i].as_py())))

    def _runs(self, table: Bytes, window: Ints, offset: Ints, same: Bools, seq: Ints) -> Decoded:
        joined = same.copy()
        joined[1:] &= (seq[1:] == seq[:-1] + 1) & (window[1:] == window[:-1])
        heads = np.flatnonzero(~joined)
        index = self._run_index(runs_of(table, heads))
        head = table[heads]
        producer, lane = (number(head, field_of(name)) for name in ("producer", "lane"))
        key = row.pack(index, window[heads], producer, lane)
        count = np.diff(np.append(heads, len(seq)))
        runs = Runs(key, seq[heads], count, heads, outcome_is_abort(table, heads))
        return Decoded(table, window, offset, same, seq, runs)

    def _run_index(self, found: Ints) -> Ints:
        if self.run is not None:
            return np.zeros(len(found), np.int64)
        unique, inverse = np.unique(found, return_inverse=True)
        for name in (one.decode() for one in unique.tolist()):
            if name not in self.names:
                self.names.append(name)
        if len(self.names) > row.MAX_RUNS:
            raise ValueError(
                f"the topic holds records of more than {row.MAX_RUNS} runs: name the one to verify"
            )
        numbers = np.array([self.names.index(one.decode()) for one in unique.tolist()], np.int64)
        return numbers[inverse]

    def _fresh(self, decoded: Decoded) -> Bools | None:
        """Return which rows do not repeat the offset before them; None if no offset is repeated at all."""
        window, offset, table = decoded.window, decoded.offset, decoded.table
        last = self._last
        self._last = (int(window[-1]), int(offset[-1]), bytes(table[-1]))
        ahead = (window[1:] != window[:-1]) | (offset[1:] > offset[:-1])
        first_ahead = last is None or last[0] != window[0] or last[1] < offset[0]
        if first_ahead and ahead.all():
            return None
        backwards = (window[1:] == window[:-1]) & (offset[1:] < offset[:-1])
        if backwards.any() or (last is not None and last[0] == window[0] and last[1] > offset[0]):
            raise ValueError("offsets went back: this scan needs the records of a partition in offset order")
        fresh = np.append(first_ahead, ahead)
        for i in np.flatnonzero(~fresh).tolist():
            before = table[i - 1].tobytes() if i else last[2] if last else b""
            mine, other = decode(table[i].tobytes()), decode(before)
            if _told(mine) != _told(other):
                place = (int(window[i]), int(offset[i]), mine.producer, mine.lane, mine.seq, other.seq)
                self.clashes.append(place)
        return fresh


def _told(identity: Identity) -> tuple[object, ...]:
    origin = identity.origin
    return identity.producer, identity.lane, identity.seq, origin and origin[:4]


def why_foreign(value: bytes | None) -> str:
    """Say why a record is not one of this run."""
    try:
        identity = decode(value)
    except NotARecordError as error:
        return str(error)
    return f"it belongs to run {identity.run}"
