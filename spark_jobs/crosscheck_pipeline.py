"""Findings on pipelines by joins in Spark: a second opinion, which does not affect the verdict of a run.

`eos verify --ledger`, benchmarks and tests use this module. Each output contains the identity of its input.
So the set of inputs that have outputs, and the set of inputs before the group's position, consist of words of
the same lanes. Each bit in which the two sets differ is one input. If the pipeline makes several outputs of
an input, each output has a part number.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from spark_jobs import scan_rows as row
from spark_jobs.crosscheck import findings_from, popcount, summed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

INPUT: Final = ("case", "producer", "lane", "word")
INPUTS: Final = "inputs"


def pipeline_findings(outputs: DataFrame, inputs: DataFrame, expected: DataFrame) -> DataFrame:
    """Count extra outputs, inputs without an output, and inputs on the wrong side of the group's position.

    `outputs` are the rows from a scan of the output topics. `inputs` are the rows from a scan of the input
    partitions up to the group's positions. `expected` contains, for every case, the number of outputs per
    input.
    """
    processed, consumed = processed_inputs(outputs).cache(), consumed_inputs(inputs).cache()
    return summed(
        [
            twice(processed, expected),
            never(processed, consumed, expected),
            drift(processed, consumed, expected),
        ]
    )


def processed_inputs(outputs: DataFrame) -> DataFrame:
    """Return the words of all inputs that have outputs, separately for each part number of the outputs."""
    from pyspark.sql import functions as f

    words = outputs.where(f.col("kind") == row.ORIGIN).groupBy(*INPUT, "part")
    return words.agg(*(f.bit_or(name).alias(name) for name in row.BITS), f.sum("n").alias("n"))


def consumed_inputs(inputs: DataFrame) -> DataFrame:
    """Return the words of the inputs before the group's position; their four quarters are named m0 to m3."""
    from pyspark.sql import functions as f

    words = inputs.where(f.col("kind") == row.WORD).groupBy(*INPUT)
    return words.agg(*(f.bit_or(f"b{q}").alias(f"m{q}") for q in range(4)))


def twice(processed: DataFrame, expected: DataFrame) -> DataFrame:
    """Count the extra outputs of inputs.

    An output is extra if another output has the same input and part number. It is also extra if the pipeline
    makes no output with this part number.
    """
    from pyspark.sql import functions as f

    extra = f.when(f.col("part") < f.col("expected"), f.col("n") - popcount()).otherwise(f.col("n"))
    counts = processed.join(f.broadcast(expected), "case").groupBy("case").agg(f.sum(extra).alias("twice"))
    return findings_from(counts, ("processed_twice", "outputs", False, "twice"))


def never(processed: DataFrame, consumed: DataFrame, expected: DataFrame) -> DataFrame:
    """Count inputs before the group's position that have no output, separately for each part number."""
    from pyspark.sql import functions as f

    parts = expected.withColumn("part", f.explode(f.expr("sequence(0, expected - 1)")))
    both = consumed.join(f.broadcast(parts), "case").join(processed, [*INPUT, "part"], "left")
    counts = both.groupBy("case").agg(f.sum(_without("m", "b")).alias("never"))
    return findings_from(counts, ("never_processed", INPUTS, False, "never"))


def drift(processed: DataFrame, consumed: DataFrame, expected: DataFrame) -> DataFrame:
    """Count the inputs that disagree with the group's position.

    These are inputs before the position that have no output at all, and later inputs that have an output.
    """
    from pyspark.sql import functions as f

    united = processed.groupBy(*INPUT).agg(*(f.bit_or(name).alias(name) for name in row.BITS))
    both = united.join(consumed, list(INPUT), "full").join(f.broadcast(expected), "case")
    counts = both.groupBy("case").agg(f.sum(_without("m", "b") + _without("b", "m")).alias("drift"))
    return findings_from(counts, ("offset_drift", INPUTS, False, "drift"))


def _without(these: str, those: str) -> Column:
    """Count the bits that are set in `these` words but not in `those`; a missing word has no bits set."""
    from pyspark.sql import functions as f

    def quarter(name: str, q: int) -> Column:
        return f.coalesce(f.col(f"{name}{q}"), f.lit(0).cast("bigint"))

    counts = (
        f.bit_count(quarter(these, q).bitwiseAND(f.bitwise_not(quarter(those, q)))).cast("bigint")
        for q in range(4)
    )
    return reduce(lambda a, b: a + b, counts)
