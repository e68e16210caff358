"""Findings of a pipeline as DataFrames: the inputs of its outputs against the inputs that its group passed.

Outputs carry the identity of the input they were made from, so both sides are words of the same lanes:
what differs is bits, and a bit is one input.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from spark_jobs import scan_rows as row
from spark_jobs.crosscheck import popcount, summed, told

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

INPUT: Final = ("case", "producer", "lane", "word")
INPUTS: Final = "inputs"


def pipeline_findings(outputs: DataFrame, inputs: DataFrame, owed: DataFrame) -> DataFrame:
    """Count outputs too many, inputs without one, and inputs on the wrong side of the group's position.

    `outputs` are the rows of a scan of the topics, `inputs` those of a scan of the input partitions up to
    the group's positions, `owed` says for every case how many outputs an input owes.
    """
    made, passed = made_from(outputs).cache(), passed_by(inputs).cache()
    return summed([twice(made, owed), never(made, passed, owed), drift(made, passed, owed)])


def made_from(outputs: DataFrame) -> DataFrame:
    """Unite the words of the inputs that outputs name, part by part."""
    from pyspark.sql import functions as f

    words = outputs.where(f.col("kind") == row.ORIGIN).groupBy(*INPUT, "part")
    return words.agg(*(f.bit_or(name).alias(name) for name in row.BITS), f.sum("n").alias("n"))


def passed_by(inputs: DataFrame) -> DataFrame:
    """Unite the words of the inputs that the group has passed; their bits are called m0 to m3."""
    from pyspark.sql import functions as f

    words = inputs.where(f.col("kind") == row.WORD).groupBy(*INPUT)
    return words.agg(*(f.bit_or(f"b{q}").alias(f"m{q}") for q in range(4)))


def twice(made: DataFrame, owed: DataFrame) -> DataFrame:
    """Count outputs whose input has had theirs; of a part that is not owed, every one."""
    from pyspark.sql import functions as f

    extra = f.when(f.col("part") < f.col("owed"), f.col("n") - popcount()).otherwise(f.col("n"))
    counts = made.join(f.broadcast(owed), "case").groupBy("case").agg(f.sum(extra).alias("twice"))
    return told(counts, ("processed_twice", "outputs", False, "twice"))


def never(made: DataFrame, passed: DataFrame, owed: DataFrame) -> DataFrame:
    """Count inputs that the group has passed and that lack an output, part by part."""
    from pyspark.sql import functions as f

    parts = owed.withColumn("part", f.explode(f.expr("sequence(0, owed - 1)")))
    both = passed.join(f.broadcast(parts), "case").join(made, [*INPUT, "part"], "left")
    counts = both.groupBy("case").agg(f.sum(_without("m", "b")).alias("never"))
    return told(counts, ("never_processed", INPUTS, False, "never"))


def drift(made: DataFrame, passed: DataFrame, owed: DataFrame) -> DataFrame:
    """Count inputs before the group's position without any output, and outputs of inputs behind it."""
    from pyspark.sql import functions as f

    united = made.groupBy(*INPUT).agg(*(f.bit_or(name).alias(name) for name in row.BITS))
    both = united.join(passed, list(INPUT), "full").join(f.broadcast(owed), "case")
    counts = both.groupBy("case").agg(f.sum(_without("m", "b") + _without("b", "m")).alias("drift"))
    return told(counts, ("offset_drift", INPUTS, False, "drift"))


def _without(these: str, those: str) -> Column:
    """Count the bits of one word that another lacks; a word that is not there has none."""
    from pyspark.sql import functions as f

    def quarter(name: str, q: int) -> Column:
        return f.coalesce(f.col(f"{name}{q}"), f.lit(0).cast("bigint"))

    counts = (
        f.bit_count(quarter(these, q).bitwiseAND(f.bitwise_not(quarter(those, q)))).cast("bigint")
        for q in range(4)
    )
    return reduce(lambda a, b: a + b, counts)
