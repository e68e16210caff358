"""Anomalies found by joins in Spark: a second opinion, which does not affect the verdict of a run.

The verdict is computed by harness.evidence.checkers. `eos verify --ledger`, benchmarks and tests use this
module. It starts from the same observed words as the checkers but shares no code with them: it joins the
observed words with the words that the ledger lists.

Data is passed in DataFrames. One DataFrame may contain the data of several ledgers; the column `case` is the
number of the ledger. A finding is the count of one anomaly. Its columns are `case`, `name`, `unit`, `count`
and `permitted` (whether Kafka allows the anomaly with the producer's settings).
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
    """Input from which the findings are computed: rows of the scans, and lanes and intervals of the ledgers.

    The data of several ledgers may be in one DataFrame. The column `case` is the number of the ledger.
    """

    rows: DataFrame
    lanes: DataFrame
    intervals: DataFrame


def findings(frames: Frames) -> DataFrame:
    """Return all findings, computed from the rows of the scans and from the ledger."""
    observed = observed_words(frames).cache()
    compared = compared_words(frames, observed).cache()
    return summed([of_words(observed, compared), of_intervals(compared), torn(compared), of_rows(frames)])


def counts(frames: Frames) -> DataFrame:
    """Count the records that the ledger lists, and how many of them can be read.

    The result has one row for each ledger, producer, partition and fate of the records.
    """
    from pyspark.sql import functions as f

    compared = compared_words(frames, observed_words(frames))
    return compared.groupBy("case", "producer", "window", "fate").agg(
        f.sum("expected").alias("expected"), f.sum("visible").alias("visible")
    )


def summed(parts: list[DataFrame]) -> DataFrame:
    """Merge findings that have the same ledger, name and unit, and add up their counts.

    Permitted and forbidden anomalies are counted separately. Findings with a count of zero are dropped.
    """
    from pyspark.sql import functions as f

    united = reduce(lambda a, b: a.unionByName(b), parts)
    return (
        united.groupBy("case", "name", "unit", "permitted")
        .agg(f.sum("count").cast("bigint").alias("count"))
        .where("count > 0")
    )


def observed_words(frames: Frames) -> DataFrame:
    """Merge the scan rows that different tasks and batches returned for the same word.

    Two columns from the ledger are added. `covered` is whether the lane's partition was read to the high
    watermark. `no_duplicates` is whether Kafka guarantees the producer that no record is duplicated. Both are
    null if the ledger declares no such lane in this partition.
    """
    from pyspark.sql import functions as f

    words = (
        frames.rows.where(f.col("kind") == row.WORD)
        .groupBy(*WORD)
        .agg(*(f.bit_or(name).alias(name) for name in row.BITS), f.sum("n").alias("n"))
    )
    promises = frames.lanes.select(*LANE, "covered", "no_duplicates")
    return words.join(f.broadcast(promises), list(LANE), "left")


def compared_words(frames: Frames, observed: DataFrame) -> DataFrame:
    """Compare the words of every interval in the ledger with the observed words.

    For each word, count the sequences of the interval, and how many of these sequences were observed.
    """
    from pyspark.sql import functions as f

    expected = expected_words(frames.intervals, frames.lanes, observed)
    joined = expected.join(observed.select(*WORD, *row.BITS), list(WORD), "left")
    both = (f.coalesce(f.col(f"b{q}"), f.lit(0)).bitwiseAND(f.col(f"m{q}")) for q in range(4))
    visible = reduce(lambda a, b: a + b, (f.bit_count(bits).cast("bigint") for bits in both))
    return joined.select(
        "case",
        "window",
        "producer",
        "grp",
        "txn",
        "fate",
        "covered",
        "no_loss",
        "length",
        popcount("m").alias("expected"),
        visible.alias("visible"),
    )


def popcount(prefix: str = "b") -> Column:
    """Return a column with the number of set bits in a word.

    The word is stored in four columns. Their names consist of `prefix` and a digit from 0 to 3.
    """
    from pyspark.sql import functions as f

    return reduce(lambda a, b: a + b, (f.bit_count(f.col(f"{prefix}{q}")).cast("bigint") for q in range(4)))


def _where(condition: Column, value: Column) -> Column:
    from pyspark.sql import functions as f

    return f.sum(f.when(condition, value).otherwise(f.lit(0)))


def findings_from(frame: DataFrame, *columns: tuple[str, str, bool, str]) -> DataFrame:
    """Return one finding for each row of `frame` and each item of the argument `columns`.

    An item of `columns` has four fields: the finding's name, its unit, whether Kafka permits it, and the name
    of the column of `frame` that contains the count.
    """
    from pyspark.sql import functions as f

    structs = [
        f.struct(
            f.lit(name).alias("name"),
            f.lit(unit).alias("unit"),
            f.lit(permitted).alias("permitted"),
            f.col(column).cast("bigint").alias("count"),
        )
        for name, unit, permitted, column in columns
    ]
    return frame.select("case", f.inline(f.array(*structs)))


def of_words(observed: DataFrame, compared: DataFrame) -> DataFrame:
    """Count duplicates and phantoms.

    Each copy of a record except the first one counts as a duplicate. A phantom is a readable record that no
    producer sent.
    """
    from pyspark.sql import functions as f

    home, promised = f.col("covered").isNotNull(), f.col("no_duplicates")
    extra = f.col("n") - popcount()
    sums = observed.groupBy("case").agg(
        _where(home & promised, extra).alias("duplicate"),
        _where(home & ~promised, extra).alias("permitted_duplicate"),
        _where(~home, f.col("n")).alias("stray"),
        _where(home, popcount()).alias("total"),
    )
    known = compared.where(f.col("fate") != NEVER).groupBy("case").agg(f.sum("visible").alias("known"))
    counts = sums.join(f.broadcast(known), "case", "left").withColumn(
        "phantom", f.col("stray") + f.col("total") - f.coalesce(f.col("known"), f.lit(0))
    )
    return findings_from(
        counts,
        ("duplicate", RECORDS, False, "duplicate"),
        ("duplicate", RECORDS, True, "permitted_duplicate"),
        ("phantom", RECORDS, False, "phantom"),
    )


def of_intervals(compared: DataFrame) -> DataFrame:
    """Count committed records that are not readable, and aborted records that are readable."""
    from pyspark.sql import functions as f

    missing = f.col("expected") - f.col("visible")
    committed = (f.col("fate") == COMMITTED) & f.col("covered")
    aborted = (f.col("fate") == ABORTED) & (f.col("txn") >= 0)
    counts = compared.groupBy("case").agg(
        _where(committed & f.col("no_loss"), missing).alias("lost"),
        _where(committed & ~f.col("no_loss"), missing).alias("permitted_lost"),
        _where(aborted, f.col("visible")).alias("aborted_read"),
    )
    return findings_from(
        counts,
        ("lost", RECORDS, False, "lost"),
        ("lost", RECORDS, True, "permitted_lost"),
        ("aborted_read", RECORDS, False, "aborted_read"),
    )


def torn(compared: DataFrame) -> DataFrame:
    """Count transactions that can be read only in part, whatever their outcome."""
    from pyspark.sql import functions as f

    whole = (
        compared.where("txn >= 0")
        .groupBy("case", "grp")
        .agg(
            f.sum("length").alias("size"), f.sum("visible").alias("visible"), f.min("covered").alias("judged")
        )
    )
    in_part = (f.col("visible") > 0) & (f.col("visible") < f.col("size")) & (f.col("size") < OPEN_END // 2)
    counts = whole.groupBy("case").agg(_where(f.col("judged") & in_part, f.lit(1)).alias("torn"))
    return findings_from(counts, ("torn_transaction", "transactions", False, "torn"))


def of_rows(frames: Frames) -> DataFrame:
    """Count the findings that the scans return directly.

    These are late records, foreign records, and offsets at which two different records were read.
    """
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
    return findings_from(
        counts,
        ("reordered", RECORDS, False, "late"),
        ("reordered", RECORDS, True, "permitted_late"),
        ("phantom", RECORDS, False, "foreign"),
        ("inconsistent_offset", "offsets", False, "clash"),
    )
