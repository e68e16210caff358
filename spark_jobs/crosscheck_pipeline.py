"""Second opinion only: findings on pipelines by joins in Spark. They do not affect the verdict of a run.

`eos verify --ledger`, benchmarks and tests use this module. Each output contains the identity of its input.
So the inputs of all outputs, and the inputs before the group's position, are words of the same lanes. Each
bit that differs is one input. If an input has several outputs, they are numbered as parts.
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
    """Count excess outputs, inputs without output, and inputs on the wrong side of the group's position.

    `outputs` are the rows from a scan of the topics. `inputs` are the rows from a scan of the input
    partitions up to the group's positions. `expected` contains the number of outputs per input for every
    case.
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
    """Merge the words of the inputs that the outputs name, separately for each part."""
    from pyspark.sql import functions as f

    words = outputs.where(f.col("kind") == row.ORIGIN).groupBy(*INPUT, "part")
    return words.agg(*(f.bit_or(name).alias(name) for name in row.BITS), f.sum("n").alias("n"))


def consumed_inputs(inputs: DataFrame) -> DataFrame:
    """Merge the words of the inputs before the group's position; their bits are named m0 to m3."""
    from pyspark.sql import functions as f

    words = inputs.where(f.col("kind") == row.WORD).groupBy(*INPUT)
    return words.agg(*(f.bit_or(f"b{q}").alias(f"m{q}") for q in range(4)))


def twice(processed: DataFrame, expected: DataFrame) -> DataFrame:
    """Count outputs whose input already has the same part, and all outputs with an unexpected part."""
    from pyspark.sql import functions as f

    extra = f.when(f.col("part") < f.col("expected"), f.col("n") - popcount()).otherwise(f.col("n"))
    counts = processed.join(f.broadcast(expected), "case").groupBy("case").agg(f.sum(extra).alias("twice"))
    return findings_from(counts, ("processed_twice", "outputs", False, "twice"))


def never(processed: DataFrame, consumed: DataFrame, expected: DataFrame) -> DataFrame:
    """Count inputs before the group's position that have no output, separately for each part."""
    from pyspark.sql import functions as f

    parts = expected.withColumn("part", f.explode(f.expr("sequence(0, expected - 1)")))
    both = consumed.join(f.broadcast(parts), "case").join(processed, [*INPUT, "part"], "left")
    counts = both.groupBy("case").agg(f.sum(_without("m", "b")).alias("never"))
    return findings_from(counts, ("never_processed", INPUTS, False, "never"))


def drift(processed: DataFrame, consumed: DataFrame, expected: DataFrame) -> DataFrame:
    """Count inputs before the group's position without any output, and later inputs with an output."""
    from pyspark.sql import functions as f

    united = processed.groupBy(*INPUT).agg(*(f.bit_or(name).alias(name) for name in row.BITS))
    both = united.join(consumed, list(INPUT), "full").join(f.broadcast(expected), "case")
    counts = both.groupBy("case").agg(f.sum(_without("m", "b") + _without("b", "m")).alias("drift"))
    return findings_from(counts, ("offset_drift", INPUTS, False, "drift"))


def _without(these: str, those: str) -> Column:
    """Count the bits that are set in one word but not in the other. A missing word has no bits set."""
    from pyspark.sql import functions as f

    def quarter(name: str, q: int) -> Column:
        return f.coalesce(f.col(f"{name}{q}"), f.lit(0).cast("bigint"))

    counts = (
        f.bit_count(quarter(these, q).bitwiseAND(f.bitwise_not(quarter(those, q)))).cast("bigint")
        for q in range(4)
    )
    return reduce(lambda a, b: a + b, counts)
