"""The rows that a scan returns: at most about one per 256 records.

All kinds of rows share one table, so that one pass is enough. The column `kind` contains the kind of a row.
Spark's workers import this module, so it may import only numpy, pyarrow and bit_words.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from harness.evidence.bit_words import PRODUCERS, Columns, Ints, Words, lane_key, split_lane_key

WORD: Final = 0  # sequences of one lane in one partition: bits, and number of records
ORIGIN: Final = 1  # inputs that outputs name as their origin: bits, and number of outputs
RUN: Final = 2  # consecutive offsets with consecutive sequences: word = first sequence, n = count
FOREIGN: Final = 3  # foreign records: n, and the reason in detail (examples have lo >= 0)
CLASH: Final = 4  # a second record at one offset: word = its sequence, b0 = sequence of the other
RECORD: Final = 5  # one record: word = sequence, lo = offset
LATE: Final = 6  # a record after a later one: word = sequence, lo = offset; b0, hi = those of the later one
OUTPUT: Final = 7  # one output, listed by its input: producer, lane, word = sequence, part

BITS: Final = ("b0", "b1", "b2", "b3")
_INTS: Final = ("part", "word", *BITS, "n", "aborted", "late", "lo", "hi")
SCHEMA: Final = pa.schema(
    [pa.field("run", pa.string())]
    + [pa.field(name, pa.int32()) for name in ("kind", "window", "producer", "lane")]
    + [pa.field(name, pa.int64()) for name in _INTS]
    + [pa.field("detail", pa.string())]
)
DDL: Final = ", ".join(
    f"{f.name} {({pa.string(): 'string', pa.int32(): 'int'}).get(f.type, 'bigint')}" for f in SCHEMA
)

MAX_WINDOWS: Final = 10**5
MAX_RUNS: Final = 90
"""A packed key holds run, window, producer and lane in one int64, so runs and windows are limited."""


class LaneKey(NamedTuple):
    """The parts of a packed key."""

    run: Ints
    window: Ints
    producer: Ints
    lane: Ints


def pack(run: Ints, window: Ints, producer: Ints, lane: Ints) -> Ints:
    """Return one number for run, window, producer and lane. Such keys sort by run first, then by window."""
    return lane_key((run * MAX_WINDOWS + window) * PRODUCERS + producer, lane)


def unpack(key: Ints) -> LaneKey:
    """Return the parts of a packed key."""
    rest, lane = split_lane_key(key)
    rest, producer = np.divmod(rest, PRODUCERS)
    run, window = np.divmod(rest, MAX_WINDOWS)
    return LaneKey(run, window, producer, lane)


def to_batch(columns: Columns, size: int) -> pa.RecordBatch:
    """Return the columns as an Arrow batch. Missing columns are zero or null."""
    arrays = []
    for field in SCHEMA:
        given = columns.get(field.name)
        if isinstance(given, pa.Array):
            arrays.append(given)
        elif field.type == pa.string():
            arrays.append(pa.array(given if given is not None else [None] * size, pa.string()))
        else:
            values = np.zeros(size, np.int64) if given is None else np.broadcast_to(given, (size,))
            arrays.append(pa.array(values.astype(field.type.to_pandas_dtype(), copy=False)))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def bits_of(table: Columns | pa.Table) -> Words:
    """Return the four quarters of every word as an (n, 4) array of unsigned numbers."""
    columns = [np.asarray(table[name]).astype(np.int64, copy=False) for name in BITS]
    return np.column_stack(columns).view(np.uint64) if len(columns[0]) else np.zeros((0, 4), np.uint64)


def columns_of(table: pa.Table, names: tuple[str, ...]) -> Columns:
    """Return these columns of a table, its bits, and its segment column if it has one."""
    columns: Columns = {name: np.asarray(table[name]).astype(np.int64) for name in names}
    columns["bits"] = bits_of(table)
    if "segment" in table.column_names:
        columns["segment"] = np.asarray(table["segment"]).astype(np.int64)
    return columns
