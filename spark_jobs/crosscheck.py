"""Findings as DataFrames: what was expected, joined with what was observed, word by word.

A second opinion: it starts from the same words as the checkers, and shares no line of code with them.
Every function takes and gives frames; a finding has a case, a name, a unit, whether Kafka's contract
permits it to this producer, and a count.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.evidence.ledger import ABORTED, COMMITTED, NEVER, OPEN_END
from spark_jobs import scan_rows as row
from spark_jobs.expected_words import expected_words

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LANE: Final = ("case", "window", "producer", "lane")
WORD: Final = (*LANE, "word")
RECORDS: Final = "records"


class Frames(NamedTuple):
    """Everything that findings are drawn from; `rows` are those of the scans, with their case."""

    rows: DataFrame
    lanes: DataFrame
    intervals: DataFrame


def findings(frames: Frames) -> DataFrame:
    """Draw every finding that words and the ledger tell of."""
    observed = observed_words(frames).cache()
    seen = seen_words(frames, observed).cache()
    return summed([of_words(observed, seen), of_intervals(seen), torn(seen), of_rows(frames)])


def counts(frames: Frames) -> DataFrame:
    """Count what each producer owes each partition and what of it can be read, by the fate of its records."""
    from pyspark.sql import functions as f

    seen = seen_words(frames, observed_words(frames))
    return seen.groupBy("case", "producer", "window", "fate").agg(
        f.sum("owed").alias("owed"), f.sum("visible").alias("visible")
    )


def summed(parts: list[DataFrame]) -> DataFrame:
    """Add up the findings of one name in a case; a count of zero is no finding."""
    from pyspark.sql import functions as f

    united = reduce(lambda a, b: a.unionByName(b), parts)
    return (
        united.groupBy("case", "name", "unit", "permitted")
        .agg(f.sum("count").cast("bigint").alias("count"))
        .where("count > 0")
    )


def observed_words(frames: Frames) -> DataFrame:
    """Unite the rows of one word, whichever tasks or batches they came from; `covered` is null for strays."""
    from pyspark.sql import functions as f

    words = (
        frames.rows.where(f.col("kind") == row.WORD)
        .groupBy(*WORD)
        .agg(*(f.bit_or(name).alias(name) for name in row.BITS), f.sum("n").alias("n"))
    )
    promises = frames.lanes.select(*LANE, "covered", "no_duplicates")
    return words.join(f.broadcast(promises), list(LANE), "left")


def seen_words(frames: Frames, observed: DataFrame) -> DataFrame:
    """Join what every interval owes a word with what was seen of it."""
    from pyspark.sql import functions as f

    owed = expected_words(frames.intervals, frames.lanes, observed)
    seen = owed.join(observed.select(*WORD, *row.BITS), list(WORD), "left")
    both = (f.coalesce(f.col(f"b{q}"), f.lit(0)).bitwiseAND(f.col(f"m{q}")) for q in range(4))
    visible = reduce(lambda a, b: a + b, (f.bit_count(one).cast("bigint") for one in both))
    return seen.select(
        "case",
        "window",
        "producer",
        "grp",
        "txn",
        "fate",
        "covered",
        "no_loss",
        "length",
        popcount("m").alias("owed"),
        visible.alias("visible"),
    )


def popcount(prefix: str = "b") -> Column:
    """Count the bits of a word."""
    from pyspark.sql import functions as f

    return reduce(lambda a, b: a + b, (f.bit_count(f.col(f"{prefix}{q}")).cast("bigint") for q in range(4)))


def _where(condition: Column, value: Column) -> Column:
    from pyspark.sql import functions as f

    return f.sum(f.when(condition, value).otherwise(f.lit(0)))


def told(frame: DataFrame, *found: tuple[str, str, bool, str]) -> DataFrame:
    """Turn columns of counts into findings: name, unit, whether it is permitted, and the column."""
    from pyspark.sql import functions as f

    structs = [
        f.struct(
            f.lit(name).alias("name"),
            f.lit(unit).alias("unit"),
            f.lit(permitted).alias("permitted"),
            f.col(column).cast("bigint").alias("count"),
        )
        for name, unit, permitted, column in found
    ]
    return frame.select("case", f.inline(f.array(*structs)))


def of_words(observed: DataFrame, seen: DataFrame) -> DataFrame:
    """Count duplicates (read more often than once) and phantoms (read beside every interval)."""
    from pyspark.sql import functions as f

    home, promised = f.col("covered").isNotNull(), f.col("no_duplicates")
    extra, no_one = f.col("n") - popcount(), f.lit(0)
    sums = observed.groupBy("case").agg(
        _where(home & promised, extra).alias("duplicate"),
        _where(home & ~promised, extra).alias("permitted_duplicate"),
        _where(~home, f.col("n")).alias("stray"),
        _where(home, popcount()).alias("total"),
    )
    known = seen.where(f.col("fate") != NEVER).groupBy("case").agg(f.sum("visible").alias("known"))
    counts = sums.join(f.broadcast(known), "case", "left").withColumn(
        "phantom", f.col("stray") + f.col("total") - f.coalesce(f.col("known"), no_one)
    )
    return told(
        counts,
        ("duplicate", RECORDS, False, "duplicate"),
        ("duplicate", RECORDS, True, "permitted_duplicate"),
        ("phantom", RECORDS, False, "phantom"),
    )


def of_intervals(seen: DataFrame) -> DataFrame:
    """Count committed records that cannot be read to the end, and aborted ones that can."""
    from pyspark.sql import functions as f

    missing, owed = f.col("owed") - f.col("visible"), (f.col("fate") == COMMITTED) & f.col("covered")
    aborted = (f.col("fate") == ABORTED) & (f.col("txn") >= 0)
    counts = seen.groupBy("case").agg(
        _where(owed & f.col("no_loss"), missing).alias("lost"),
        _where(owed & ~f.col("no_loss"), missing).alias("permitted_lost"),
        _where(aborted, f.col("visible")).alias("aborted_read"),
    )
    return told(
        counts,
        ("lost", RECORDS, False, "lost"),
        ("lost", RECORDS, True, "permitted_lost"),
        ("aborted_read", RECORDS, False, "aborted_read"),
    )


def torn(seen: DataFrame) -> DataFrame:
    """Count transactions that can be read in part; also where their end is unknown: all or nothing."""
    from pyspark.sql import functions as f

    whole = (
        seen.where("txn >= 0")
        .groupBy("case", "grp")
        .agg(
            f.sum("length").alias("size"), f.sum("visible").alias("visible"), f.min("covered").alias("judged")
        )
    )
    in_part = (f.col("visible") > 0) & (f.col("visible") < f.col("size")) & (f.col("size") < OPEN_END // 2)
    counts = whole.groupBy("case").agg(_where(f.col("judged") & in_part, f.lit(1)).alias("torn"))
    return told(counts, ("torn_transaction", "transactions", False, "torn"))


def of_rows(frames: Frames) -> DataFrame:
    """Count what scans have named already: late records, strangers, offsets with two records."""
    from pyspark.sql import functions as f

    producers = frames.lanes.select("case", "producer", "ordered").distinct()
    rows = frames.rows.where(f.col("kind").isin(row.LATE, row.FOREIGN, row.CLASH))
    named = rows.join(f.broadcast(producers), ["case", "producer"], "left")
    promised = f.coalesce(f.col("ordered"), f.lit(True))
    late, n = f.col("kind") == row.LATE, f.col("n")
    counts = named.groupBy("case").agg(
        _where(late & promised, n).alias("late"),
        _where(late & ~promised, n).alias("permitted_late"),
        _where(f.col("kind") == row.FOREIGN, n).alias("foreign"),
        _where(f.col("kind") == row.CLASH, n).alias("clash"),
    )
    return told(
        counts,
        ("reordered", RECORDS, False, "late"),
        ("reordered", RECORDS, True, "permitted_late"),
        ("phantom", RECORDS, False, "foreign"),
        ("inconsistent_offset", "offsets", False, "clash"),
    )
