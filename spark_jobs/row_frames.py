"""Outputs of an application that are no topic, as Spark reads them: rows of a file, or of a database.

Spark reads a database itself, with its JDBC source. The plain reader reads it with a program of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from harness.base.errors import describe_error
from harness.base.secrets import look_up
from harness.evidence.log_line import clock_id
from harness.evidence.observation import Meta, Observation, Window
from harness.evidence.row_output import RowSource, observe_rows, row_window, rows_of
from harness.evidence.token import token_pattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class Rows:
    """Rows as frames with the columns of Spark's Kafka source, their windows, and why others are unknown."""

    frames: dict[str, DataFrame] = field(default_factory=dict)
    windows: dict[str, Window] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def read_all(spark: SparkSession, rows: Sequence[RowSource]) -> Rows:
    """Read all rows."""
    read = Rows()
    for row in rows:
        try:
            frame = (_of_database(spark, row) if row.jdbc else _of_file(spark, row)).cache()
            read.windows[row.name] = row_window(row.name, frame.count())
            read.frames[row.name] = frame
        except Exception as error:  # noqa: BLE001 - drivers raise many classes; the checker reports the text
            text = (describe_error(error).strip().splitlines() or [""])[0]
            read.problems[row.name] = f"Spark could not read output {row.name}: {text[:300]}"
    return read


def _of_file(spark: SparkSession, row: RowSource) -> DataFrame:
    """Return the lines of a file. If they have no order, all of them have offset 0."""
    lines = list(rows_of(Path(row.file)))
    offsets = range(len(lines)) if row.is_ordered else [0] * len(lines)
    columns = {"value": pa.array(lines, pa.binary()), "offset": pa.array(offsets, pa.int64())}
    return _with_all_columns(spark.createDataFrame(pa.table(columns)), row)


def _with_all_columns(frame: DataFrame, row: RowSource) -> DataFrame:
    """Return a frame with value and offset as one with all columns of Spark's Kafka source."""
    from pyspark.sql import functions as f

    nothing = f.lit(None)
    return frame.select(
        nothing.cast("binary").alias("key"),
        "value",
        f.lit(row.name).alias("topic"),
        f.lit(0).alias("partition"),
        "offset",
        nothing.cast("array<struct<key: string, value: binary>>").alias("headers"),
    )


def _of_database(spark: SparkSession, row: RowSource) -> DataFrame:
    """Return the rows of a query as JSON. Numbers and booleans keep their types; all others are texts."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    reader = spark.read.format("jdbc").option("url", row.jdbc).option("query", row.query)
    if row.user:
        reader = reader.option("user", row.user)
    if row.password:
        reader = reader.option("password", look_up(row.password))
    frame = reader.load()
    columns = [
        f.col(f"`{field.name}`").alias(field.name.lower())
        if isinstance(field.dataType, t.NumericType | t.BooleanType)
        else f.col(f"`{field.name}`").cast("string").alias(field.name.lower())
        for field in frame.schema.fields
    ]
    value = f.to_json(f.struct(*columns)).cast("binary")
    return _with_all_columns(frame.select(value.alias("value"), f.lit(0).cast("bigint").alias("offset")), row)


def observe_frame(row: RowSource, frame: DataFrame, run: str) -> Observation:
    """Return which tokens the rows of an output contain."""
    from pyspark.sql import functions as f

    token = f"regexp_extract_all(decode(value, 'ISO-8859-1'), '{token_pattern(run)}', 0)"
    found = frame.orderBy("offset").select(f.expr(f"array_join({token}, ' ')")).toArrow().column(0)
    meta = _meta(complete=True)
    view = observe_rows(meta, row, run, (text.encode() for text in found.to_pylist()))
    view.meta.finished = time.monotonic_ns()
    return view


def failed(row: RowSource, problem: str) -> Observation:
    """Return the observation of an output that Spark could not read."""
    meta = _meta(complete=False)
    meta.detail = problem
    return observe_rows(meta, row, "", ())


def _meta(*, complete: bool) -> Meta:
    meta = Meta(witness="spark-batch", kind="spark", complete=complete, clock=clock_id())
    meta.frozen = time.monotonic_ns()
    return meta
