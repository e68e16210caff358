"""The rows that a scan returns: at most about one row per 256 records.

All kinds of rows are in one table, so that one pass over the records is enough. The column `kind` contains
the kind of a row. Spark's workers import this module, so it may import only numpy, pyarrow and bit_words.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from harness.evidence.bit_words import PRODUCERS, Columns, Ints, Words, lane_key, split_lane_key

WORD: Final = 0
"""One word (256 sequences) of one lane in one partition: its bits, and in `n` the number of records read."""

ORIGIN: Final = 1
"""One word (256 sequences) of pipeline inputs: its bits mark the inputs that have outputs.

`n` is the number of these outputs.
"""

RUN: Final = 2
"""Records with consecutive offsets and sequences: `word` is the first sequence, `n` the number of records."""

FOREIGN: Final = 3
"""Foreign records of one window, which do not belong to the verified run: `n` is their number.

Each example has its own row, with the offset of the record in `lo` and the reason in `detail`. One more row,
with -1 in `lo`, counts all other foreign records of the window.
"""

CLASH: Final = 4
"""Two different records that were read at one offset.

`lo` is the offset, `word` is the sequence of the second record, and `b0` is the sequence of the first record.
"""

RECORD: Final = 5
"""One record of a second scan: `word` is its sequence, `lo` is its offset."""

LATE: Final = 6
"""A late record: `word` is its sequence, `lo` is its offset.

In the log, a record of the same lane with a higher sequence precedes it. `b0` and `hi` are the sequence and
the offset of that record. A row with -1 in `lo` contains only the number of a lane's late records, in `n`.
"""

OUTPUT: Final = 7
"""One output from a second scan. `producer`, `lane` and `word` (the sequence) are those of its input.

`lo` is the offset of the output itself.
"""

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
"""Maximum number of test runs in one scan.

A packed lane key holds the test run, the window, the producer and the lane in one int64. So the number of
test runs and the number of windows must be limited.
"""


class LaneKey(NamedTuple):
    """The four numbers that a packed lane key contains."""

    run: Ints
    window: Ints
    producer: Ints
    lane: Ints


def pack(run: Ints, window: Ints, producer: Ints, lane: Ints) -> Ints:
    """Pack run, window, producer and lane into one number.

    Packed keys are sorted by run first, then by window.
    """
    return lane_key((run * MAX_WINDOWS + window) * PRODUCERS + producer, lane)


def unpack(key: Ints) -> LaneKey:
    """Return the four numbers in each packed key."""
    rest, lane = split_lane_key(key)
    rest, producer = np.divmod(rest, PRODUCERS)
    run, window = np.divmod(rest, MAX_WINDOWS)
    return LaneKey(run, window, producer, lane)


def to_batch(columns: Columns, size: int) -> pa.RecordBatch:
    """Return an Arrow batch with all columns of the schema; columns not given become zero or null."""
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
    """Return the words of a table as an (n, 4) array: each row has the four unsigned quarters of a word."""
    columns = [np.asarray(table[name]).astype(np.int64, copy=False) for name in BITS]
    return np.column_stack(columns).view(np.uint64) if len(columns[0]) else np.zeros((0, 4), np.uint64)


def columns_of(table: pa.Table, names: tuple[str, ...]) -> Columns:
    """Return the named columns of a table, and also its column `bits`.

    If the table has a column `segment`, it is returned as well.
    """
    columns: Columns = {name: np.asarray(table[name]).astype(np.int64) for name in names}
    columns["bits"] = bits_of(table)
    if "segment" in table.column_names:
        columns["segment"] = np.asarray(table["segment"]).astype(np.int64)
    return columns
