"""Findings as DataFrames: what was expected, joined with what was observed, word by word.

A second opinion: it starts from the same words as the checkers, and shares no line of code with them.
Every function takes and gives frames; a finding is a row of `FINDING`.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.ledger import ABORTED, COMMITTED, NEVER, OPEN_END
from spark_jobs import rows as row
from spark_jobs.expected import expected_words

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FINDING: Final = ("case", "name", "unit", "permitted", "count")
LANE: Final = ("case", "window", "producer", "lane")
WORD: Final = (*LANE, "word")


class Frames(NamedTuple):
    """Everything that findings are drawn from; `rows` are those of the scans, with their case."""

    rows: DataFrame
    lanes: DataFrame
    intervals: DataFrame


def observed_words(rows: DataFrame) -> DataFrame:
    """Unite the rows of one word, whichever tasks or batches they came from."""
    from pyspark.sql import functions as f

    return (
        rows.where(f.col("kind") == row.WORD)
        .groupBy(*WORD)
        .agg(
            *(f.bit_or(name).alias(name) for name in row.BITS),
            f.sum("n").alias("n"),
            f.sum("aborted").alias("aborted"),
            f.min("lo").alias("lo"),
            f.max("hi").alias("hi"),
        )
    )


def popcount(prefix: str = "b") -> Column:
    """Count the bits of a word."""
    from pyspark.sql import functions as f

    return reduce(lambda a, b: a + b, (f.bit_count(f.col(f"{prefix}{q}")).cast("bigint") for q in range(4)))


def findings(frames: Frames) -> DataFrame:
    """Draw every finding that words and the ledger tell of; none of them is a row with zero."""
    from pyspark.sql import functions as f

    observed = observed_words(frames.rows).cache()
    seen = seen_words(frames, observed).cache()
    parts = [
        lost(seen, frames),
        duplicate(observed, frames.lanes),
        phantom(observed, seen, frames),
        reordered(frames),
        aborted_read(seen),
        torn(seen, frames),
        clashes(frames.rows),
    ]
    united = reduce(lambda a, b: a.unionByName(b), parts)
    return (
        united.groupBy("case", "name", "unit", "permitted")
        .agg(f.sum("count").cast("bigint").alias("count"))
        .where("count > 0")
    )


def _named(
    frame: DataFrame, name: str, unit: str, count: Column, permitted: Column | None = None
) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.select(
        "case",
        f.lit(name).alias("name"),
        f.lit(unit).alias("unit"),
        (f.lit(False) if permitted is None else permitted).alias("permitted"),
        count.cast("bigint").alias("count"),
    )


def seen_words(frames: Frames, observed: DataFrame) -> DataFrame:
    """Join what every interval owes a word with what was seen of it."""
    from pyspark.sql import functions as f

    owed = expected_words(frames.intervals, frames.lanes, observed)
    seen = owed.join(observed.select(*WORD, *row.BITS), list(WORD), "left")
    both = (
        f.bit_count(f.coalesce(f.col(f"b{q}"), f.lit(0)).bitwiseAND(f.col(f"m{q}"))).cast("bigint")
        for q in range(4)
    )
    return seen.withColumn("visible", reduce(lambda a, b: a + b, both))


def lost(seen: DataFrame, frames: Frames) -> DataFrame:
    """Count committed records that cannot be read, where the partition was read to its end."""
    from pyspark.sql import functions as f

    owed = popcount("m")
    frame = seen.where((f.col("fate") == COMMITTED) & f.col("covered"))
    assert frames
    return _named(frame, "lost", "records", owed - f.col("visible"), ~f.col("no_loss"))


def duplicate(observed: DataFrame, lanes: DataFrame) -> DataFrame:
    """Count what was read more often than once, in the partition where it belongs."""
    from pyspark.sql import functions as f

    frame = observed.join(lanes, list(LANE))
    return _named(frame, "duplicate", "records", f.col("n") - popcount(), ~f.col("no_duplicates"))


def phantom(observed: DataFrame, seen: DataFrame, frames: Frames) -> DataFrame:
    """Count what was read and never sent: by strangers, by unknown lanes, beside every interval."""
    from pyspark.sql import functions as f

    rows = frames.rows.where(f.col("kind") == row.FOREIGN)
    foreign = _named(rows, "phantom", "records", f.col("n"))
    strays = _named(observed.join(frames.lanes, list(LANE), "left_anti"), "phantom", "records", f.col("n"))
    total = observed.join(frames.lanes, list(LANE)).groupBy("case").agg(f.sum(popcount()).alias("total"))
    known = seen.where(f.col("fate") != NEVER).groupBy("case").agg(f.sum("visible").alias("known"))
    beside = total.join(known, "case", "left")
    count = f.col("total") - f.coalesce(f.col("known"), f.lit(0))
    return foreign.unionByName(strays).unionByName(_named(beside, "phantom", "records", count))


def reordered(frames: Frames) -> DataFrame:
    """Count records that stand behind a later one of their lane."""
    from pyspark.sql import functions as f

    producers = frames.lanes.select("case", "producer", "ordered").distinct()
    late = frames.rows.where(f.col("kind") == row.LATE).join(producers, ["case", "producer"], "left")
    promised = f.coalesce(f.col("ordered"), f.lit(True))
    return _named(late, "reordered", "records", f.col("n"), ~promised)


def aborted_read(seen: DataFrame) -> DataFrame:
    """Count records of aborted transactions that can be read."""
    from pyspark.sql import functions as f

    frame = seen.where((f.col("fate") == ABORTED) & (f.col("txn") >= 0))
    return _named(frame, "aborted_read", "records", f.col("visible"))


def torn(seen: DataFrame, frames: Frames) -> DataFrame:
    """Count transactions that can be read in part; also where their end is unknown: all or nothing."""
    from pyspark.sql import functions as f

    size = f.sum(f.col("last") - f.col("first") + 1).alias("size")
    sizes = (
        frames.intervals.where("txn >= 0")
        .join(frames.lanes, ["case", "producer", "lane"])
        .groupBy("case", "grp")
        .agg(size, f.min("covered").alias("judged"))
    )
    visible = seen.groupBy("case", "grp").agg(f.sum("visible").alias("visible"))
    frame = sizes.join(visible, ["case", "grp"]).where(
        f.col("judged")
        & (f.col("visible") > 0)
        & (f.col("visible") < f.col("size"))
        & (f.col("size") < OPEN_END // 2)
    )
    return _named(frame, "torn_transaction", "transactions", f.lit(1))


def clashes(rows: DataFrame) -> DataFrame:
    """Count offsets that hold two records."""
    from pyspark.sql import functions as f

    frame = rows.where(f.col("kind") == row.CLASH)
    return _named(frame, "inconsistent_offset", "offsets", f.col("n"))
