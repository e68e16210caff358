"""Fold of consecutive records into one row inside the JVM, before Python receives them.

Passing a row to a Python worker costs as much as reading it from Kafka. Most records differ from the previous
record only in their sequence, so `java/FoldRuns.java` folds such records into one row. A folded row has four
columns: `window` (a number for topic and partition), `offset`, `value` (the bytes of the identity) and `n`.
The row represents `n` records. Its `offset` and `value` are those of the first record.

Only Python code interprets records. It also accepts rows that are not folded, so the fold changes the speed
but not the result.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.evidence.record import FIELDS, KIND_PIPELINE, ORIGIN_FIELDS, ORIGIN_WIDTH, WIDTH
from spark_jobs.jvm_class import SOURCES, Make, compiled_class, filled, java_class, mapped_rows
from spark_jobs.kafka_source import FrozenLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE: Final = SOURCES / "FoldRuns.java"
SCHEMA: Final = "window INT, offset BIGINT, value BINARY, n INT"
MOST: Final = 1 << 16
"""Maximum number of records in a folded row. It limits the memory for expanding the row into records."""

Fold = Callable[[FrozenLog], Any]
"""Function that takes a log and returns a Java function. Spark passes the rows of each task to that Java
function.
"""


def folded(log: FrozenLog, fold: Fold | None = None) -> DataFrame:
    """Fold consecutive records of a log, and return the folded rows as a DataFrame.

    Each Spark task must have all records of its windows in offset order.
    """
    spark = log.frame.sparkSession
    fold_rows = (fold or _fold(spark, java_class(spark, SOURCE.stem)))(log)
    return mapped_rows(log.frame, fold_rows, SCHEMA)


def compiled(spark: SparkSession, source: str, jar: Path, name: str = SOURCE.stem) -> Fold:
    """Compile a variant of the fold, with its own names of the jar and of the class."""
    return _fold(spark, compiled_class(spark, source, jar, name))


def _fold(spark: SparkSession, make: Make) -> Fold:
    context: Any = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway

    def fold(log: FrozenLog) -> Any:
        numbers = jvm.java.util.HashMap()
        for topic, windows in log.numbers.items():
            numbers[topic] = filled(gateway.new_array(jvm.int, max(windows) + 1), windows)
        columns = [log.frame.columns.index(name) for name in ("topic", "partition", "offset", log.identity)]
        return make([numbers, *columns, *_layout()])

    return fold


def _layout() -> tuple[int, ...]:
    """Return the numeric constants that the constructor of the Java class needs.

    They are byte positions in the identity, the letter that marks pipeline outputs, and the maximum number of
    records in a folded row.
    """
    fields = {field.name: field for field in (*FIELDS, *ORIGIN_FIELDS)}
    seq, origin = fields["seq"], fields["origin_seq"]
    kind = (fields["kind"].start, ord(KIND_PIPELINE))
    spans = (origin.start, origin.start + origin.width)
    return (WIDTH, seq.start, seq.start + seq.width, *kind, WIDTH + ORIGIN_WIDTH, *spans, MOST)
