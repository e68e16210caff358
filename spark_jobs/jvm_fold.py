"""Fold of consecutive records into one row inside the JVM, before Python receives them.

Passing a row to a Python worker costs as much as reading it from Kafka. Most records differ from the previous
record only in their sequence, so `java/FoldRuns.java` folds such records into one row. A folded row has four
columns: `window` (a number for topic and partition), `offset`, `value` (the bytes of the identity) and `n`.
The row represents `n` records. Its `offset` and `value` are those of the first record.

Many folded rows are packed into one row of Spark, a block, because records that do not fold would otherwise
cost a row of Spark each. `record_reader.unpacked` turns blocks into folded rows without a copy.

The records come from Spark's Kafka source, from a Kafka consumer in the task (`java/ReadRanges.java`), or
from fetch requests of the task itself (`java/FetchRanges.java`).

Only Python code interprets records. It also accepts rows that are not folded, so the fold changes the speed
but not the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.evidence.observation import Window
from harness.evidence.record import FIELDS, HEADER, KIND_PIPELINE, ORIGIN_FIELDS, ORIGIN_WIDTH, WIDTH
from spark_jobs.jvm_class import SOURCES, Make, compiled_class, filled, frame_of_rows, java_class, mapped_rows
from spark_jobs.kafka_source import FrozenLog, KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE: Final = SOURCES / "FoldRuns.java"
READER: Final = SOURCES / "ReadRanges.java"
FETCHER: Final = SOURCES / "FetchRanges.java"
SCHEMA: Final = "window BINARY, offset BINARY, n BINARY, size BINARY, value BINARY"
"""Columns of a block. Each contains one number for every folded row, except `value`: it contains the bytes of
all identities. `size` is the number of bytes of each, or -1 if a record has none.
"""
MOST: Final = 1 << 16
"""Maximum number of records in a folded row. It limits the memory for expanding the row into records."""
BLOCK: Final = 1 << 16
"""Maximum number of folded rows in a block. It limits the memory of a task."""
PATIENCE_MS: Final = 60_000
"""Time limit for a reader in a task whose position does not move, in milliseconds."""

_TASKS_PER_CORE: Final = 4
_NO_COLUMNS: Final = (-1, -1, -1, -1)


Fold = Callable[[FrozenLog], Any]
"""Function that takes a log and returns a Java function. Spark passes the rows of each task to that Java
function.
"""


def folded(log: FrozenLog, fold: Fold | None = None) -> DataFrame:
    """Fold consecutive records of a log, and return blocks of folded rows as a DataFrame.

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


def read_folded(spark: SparkSession, source: KafkaSource, windows: Sequence[Window]) -> DataFrame:
    """Read every window from `start` to `read_to` with a Kafka consumer in each task; return folded rows.

    The result has the same folded rows as `folded` has for the same windows.
    """
    return _read_by(_reader(spark, READER), spark, source, windows)


def read_fetched(
    spark: SparkSession, source: KafkaSource, windows: Sequence[Window], make: Make | None = None
) -> DataFrame:
    """Read the same windows with fetch requests and without a consumer; return the same folded rows.

    `make` is a variant of the class.
    """
    return _read_by(make or _reader(spark, FETCHER), spark, source, windows)


def _reader(spark: SparkSession, source: Path) -> Make:
    return java_class(spark, source.stem, java_class(spark, SOURCE.stem))


def _read_by(make: Make, spark: SparkSession, source: KafkaSource, windows: Sequence[Window]) -> DataFrame:
    context: Any = spark.sparkContext
    jvm = context._jvm
    layout = java_class(spark, SOURCE.stem)([jvm.java.util.HashMap(), *_NO_COLUMNS, *_layout()])
    options = jvm.java.util.HashMap()
    for name, value in source.consumer_options().items():
        options[name] = value
    tasks = _tasks_of(windows, context.defaultParallelism * _TASKS_PER_CORE)
    ranges = jvm.java.util.ArrayList()
    for task in tasks:
        ranges.append("\n".join(task))
    texts = context._jsc.parallelize(ranges, max(len(tasks), 1))
    read_tasks = make([layout, options, source.where, HEADER, PATIENCE_MS])
    return frame_of_rows(spark, texts.mapPartitions(read_tasks), SCHEMA)


def _tasks_of(windows: Sequence[Window], most: int) -> list[list[str]]:
    """Distribute the windows to at most `most` tasks of similar size; return the ranges of each task."""
    sizes = [window.read_to - window.start for window in windows]
    tasks: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(most, len(windows)))]
    for i in sorted(range(len(windows)), key=lambda i: -sizes[i]):
        if sizes[i] > 0:
            window = windows[i]
            at = min(range(len(tasks)), key=lambda task: tasks[task][0])
            text = f"{i} {window.partition} {window.start} {window.read_to} {window.topic}"
            tasks[at] = (tasks[at][0] + sizes[i], [*tasks[at][1], text])
    return [ranges for _, ranges in tasks if ranges]


def _layout() -> tuple[int, ...]:
    """Return the numeric constants that the constructor of the Java class needs.

    They are byte positions in the identity, the letter that marks pipeline outputs, and the maximum numbers
    of records in a folded row and of folded rows in a block.
    """
    fields = {field.name: field for field in (*FIELDS, *ORIGIN_FIELDS)}
    seq, origin = fields["seq"], fields["origin_seq"]
    kind = (fields["kind"].start, ord(KIND_PIPELINE))
    spans = (origin.start, origin.start + origin.width)
    return (WIDTH, seq.start, seq.start + seq.width, *kind, WIDTH + ORIGIN_WIDTH, *spans, MOST, BLOCK)
