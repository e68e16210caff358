"""The ledger as DataFrames for the second opinion in crosscheck.py; it does not affect the verdict of a run.

`eos verify --ledger`, benchmarks and tests use this module. It expands the ledger's intervals into the words
that should be readable. The tests check hundreds of ledgers at once, so one DataFrame may contain several
ledgers. The column `case` is the number of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from harness.evidence.bit_words import WORD_SEQS, split_lane_key
from harness.evidence.ledger import COMMITTED, Ledger
from harness.evidence.observation import Meta

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LANES: Final = ("case", "window", "producer", "lane")

_LONG: Final = 2**20
"""Length from which on an interval has no row for each word: an unknown end has 10^12 sequences."""


def covered_windows(meta: Meta) -> list[bool]:
    """Return, for each window, whether a committed record that was not read there is certainly lost.

    The record is certainly lost if the witness read the whole partition, up to the high watermark.
    """
    return [meta.complete and window.read_to >= window.hw for window in meta.windows]


def lanes_table(ledger: Ledger, meta: Meta, case: int, first_window: int) -> pa.Table:
    """Return one row for each declared lane, with the number of its window and Kafka's guarantees.

    A window is the range of offsets that a witness read in one partition. The number is -1 if no witness read
    the lane's partition. The guarantees are those for the lane's producer.
    """
    numbers = {(w.topic, w.partition): i for i, w in enumerate(meta.windows)}
    covered = covered_windows(meta)
    rows = []
    for key, place in zip(ledger.lanes.tolist(), ledger.places, strict=True):
        producer, lane = split_lane_key(key)
        window = numbers.get(place, -1)
        promise = ledger.producers[producer].contract
        home = first_window + window if window >= 0 else -1
        rows.append((case, home, producer, lane, window >= 0 and covered[window], *promise))
    names = (*_LANES, "covered", "no_duplicates", "no_loss", "ordered")
    types = [pa.int32()] * 4 + [pa.bool_()] * 4
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(dict(zip(names, arrays, strict=True)))


def intervals_table(ledger: Ledger, case: int) -> pa.Table:
    """Return every interval of the ledger with its fate and its transaction."""
    intervals, groups = ledger.intervals, ledger.groups
    producer, lane = split_lane_key(ledger.lanes[intervals.lane])
    columns = {
        "case": np.full(len(lane), case, np.int32),
        "producer": producer.astype(np.int32),
        "lane": lane.astype(np.int32),
        "first": intervals.first,
        "last": intervals.last,
        "fate": intervals.fate.astype(np.int32),
        "grp": intervals.group.astype(np.int32),
        "txn": groups.txn[intervals.group],
    }
    return pa.table(columns)


def frame_of(spark: SparkSession, tables: Sequence[pa.Table]) -> DataFrame:
    """Return one DataFrame with the rows of all given tables."""
    return spark.createDataFrame(pa.concat_tables(tables).combine_chunks())


def expected_words(intervals: DataFrame, lanes: DataFrame, observed: DataFrame) -> DataFrame:
    """Return one row for each word that an interval of the ledger touches.

    In the columns `m0` to `m3`, the bits of the interval's sequences are set. A long
    interval that was not committed, such as the open end of a killed client or a gap in a history, has only a
    row for its first word and for its other words that were observed.
    """
    from pyspark.sql import functions as f

    placed = intervals.join(f.broadcast(lanes), ["case", "producer", "lane"])
    first = f.expr(f"first div {WORD_SEQS}")
    is_long = (f.col("last") - f.col("first") >= _LONG) & (f.col("fate") != COMMITTED)
    long_lanes = placed.where(is_long).select(*_LANES).distinct()
    seen = observed.join(f.broadcast(long_lanes), list(_LANES), "left_semi")
    seen = seen.groupBy(*_LANES).agg(f.collect_set("word").alias("seen"))
    placed = placed.join(f.broadcast(seen), list(_LANES), "left")
    last = f.expr(f"last div {WORD_SEQS}")
    nothing = f.array().cast("array<bigint>")
    later = f.filter(f.coalesce("seen", nothing), lambda word: (word > first) & (word <= last))
    touched = f.concat(f.array(first), later)
    words = f.when(is_long, touched).otherwise(f.sequence(first, last))
    exploded = placed.withColumn("word", f.explode(words))
    # An interval may span several words. Store its length only in the row of its first word, so that a sum
    # counts the length once.
    length = f.when(f.expr(f"word = first div {WORD_SEQS}"), f.col("last") - f.col("first") + 1)
    masks = {f"m{quarter}": mask(quarter) for quarter in range(4)}
    return exploded.withColumns({"length": length.otherwise(f.lit(0)), **masks})


def mask(quarter: int) -> Column:
    """Return a column with one 64-bit quarter of a word, in which the bits of an interval are set.

    The columns `first` and `last` contain the first and the last sequence of the interval.
    """
    from pyspark.sql import functions as f

    base = f.col("word") * WORD_SEQS + 64 * quarter
    low = f.greatest(f.col("first") - base, f.lit(0))
    high = f.least(f.col("last") - base, f.lit(63))
    # Use bit shifts, not arithmetic: Spark treats the quarter as a signed number, but here the sign bit
    # represents a sequence like every other bit.
    ones = f.call_function("shiftrightunsigned", f.lit(-1).cast("bigint"), (63 - (high - low)).cast("int"))
    return f.when(low <= high, f.call_function("shiftleft", ones, low.cast("int"))).otherwise(
        f.lit(0).cast("bigint")
    )
