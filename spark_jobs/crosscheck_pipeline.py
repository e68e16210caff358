"""Anomalies of pipelines, found by joins in Spark: a second opinion that does not affect the verdict.

`eos verify --ledger`, benchmarks and tests use this module. Each output of a pipeline contains the identity
of its input. So two sets of inputs can be compared as bit words: the inputs that have outputs, and the inputs
before the consumer group's committed position. Each bit that is set in only one of the two sets is an input
with an anomaly. If the pipeline makes several outputs of an input, each output has a part number.
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
    """Count extra outputs, missing outputs, and inputs that contradict the consumer group's position.

    The functions `twice`, `never` and `drift` define these three. `outputs` are the rows from a scan of the
    output topics. `inputs` are the rows from a scan of the input partitions up to the group's committed
    positions. `expected` contains, for every ledger, the number of outputs that the pipeline makes of each
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
    """Return the inputs that have outputs, as bit words.

    Each row covers the inputs of one word and one part number of their outputs. A set bit marks an input that
    has an output with this part number. The column `n` is the number of all outputs of these inputs with this
    part number.
    """
    from pyspark.sql import functions as f

    words = outputs.where(f.col("kind") == row.ORIGIN).groupBy(*INPUT, "part")
    return words.agg(*(f.bit_or(name).alias(name) for name in row.BITS), f.sum("n").alias("n"))


def consumed_inputs(inputs: DataFrame) -> DataFrame:
    """Return the inputs before the consumer group's position, as bit words.

    The columns `m0` to `m3` contain the four 64-bit quarters of each word.
    """
    from pyspark.sql import functions as f

    words = inputs.where(f.col("kind") == row.WORD).groupBy(*INPUT)
    return words.agg(*(f.bit_or(f"b{q}").alias(f"m{q}") for q in range(4)))


def twice(processed: DataFrame, expected: DataFrame) -> DataFrame:
    """Count the extra outputs.

    The outputs of an input should have the part numbers 0 to `expected` - 1, each once. An output is extra if
    its input already has an output with this part number, or if the part number is too high.
    """
    from pyspark.sql import functions as f

    extra = f.when(f.col("part") < f.col("expected"), f.col("n") - popcount()).otherwise(f.col("n"))
    counts = processed.join(f.broadcast(expected), "case").groupBy("case").agg(f.sum(extra).alias("twice"))
    return findings_from(counts, ("processed_twice", "outputs", False, "twice"))


def never(processed: DataFrame, consumed: DataFrame, expected: DataFrame) -> DataFrame:
    """Count the missing outputs of inputs before the consumer group's position.

    An input counts once for every part number for which it has no output.
    """
    from pyspark.sql import functions as f

    parts = expected.withColumn("part", f.explode(f.expr("sequence(0, expected - 1)")))
    both = consumed.join(f.broadcast(parts), "case").join(processed, [*INPUT, "part"], "left")
    counts = both.groupBy("case").agg(f.sum(_without("m", "b")).alias("never"))
    return findings_from(counts, ("never_processed", INPUTS, False, "never"))


def drift(processed: DataFrame, consumed: DataFrame, expected: DataFrame) -> DataFrame:
    """Count the inputs whose processing contradicts the committed offset of the group.

    An input before the position contradicts it if the input has no output at all. An input at or after the
    position contradicts it if the input has an output.
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
