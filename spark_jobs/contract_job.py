"""The statements of a contract in Spark SQL: Spark decodes records as tables, and runs the queries on them.

The plain reader runs the same queries with another engine on records that it decoded itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from harness.base.errors import describe_error
from harness.evidence.checkers.model import AppContract
from harness.evidence.contract_statement import (
    NUMBER_PATTERN,
    PLACES,
    TEXTS,
    ContractTable,
    identifier,
    paths_of,
)
from harness.evidence.log_line import clock_id
from harness.evidence.observation import Meta, Observation, Window
from harness.evidence.row_output import RowSource
from harness.evidence.statement_rows import describe_required, run_statement
from harness.evidence.token import token_pattern
from spark_jobs.kafka_source import KafkaSource, read_raw
from spark_jobs.row_frames import failed, observe_frame, read_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NUMBERS = "BIGINT|DOUBLE|FLOAT|DECIMAL.*|BOOLEAN|VOID|TINYINT|SMALLINT|INT"


def main(
    spark: SparkSession,
    source: KafkaSource,
    windows: Sequence[Window],
    contract: AppContract,
    rows: Sequence[RowSource] = (),
) -> list[Observation]:
    """Read the windows of the contract's topics, and rows, and run its queries.

    Return the results of the statements, for each output topic how many outputs each input must have, and for
    each output with rows the tokens in them.
    """
    read = read_all(spark, rows)
    outputs = [row for row in rows if row.is_output]
    found = [
        failed(row, read.problems[row.name])
        if row.name in read.problems
        else observe_frame(row, read.frames[row.name], source.run)
        for row in outputs
    ]
    if not contract.tables:
        return found
    topics = {table.topic for table in contract.tables}
    mine = [window for window in windows if window.topic in topics]
    mine += [window for name, window in read.windows.items() if name in topics]
    read_table = partial(_read_table, spark, source, mine, read.frames)
    return [*_run_queries(spark, contract, mine, read_table, read.problems), *found]


def _read_table(
    spark: SparkSession,
    source: KafkaSource,
    windows: Sequence[Window],
    read: Mapping[str, DataFrame],
    table: ContractTable,
) -> tuple[DataFrame, list[str]]:
    """Return the records of a table with its columns, and the fields that no record has."""
    raw = read.get(table.topic)
    if raw is None:
        raw = read_raw(spark, source, [window for window in windows if window.topic == table.topic])
    return typed(raw, table, source.run)


def _run_queries(
    spark: SparkSession,
    contract: AppContract,
    mine: Sequence[Window],
    read_table: Callable[[ContractTable], tuple[DataFrame, list[str]]],
    problems: Mapping[str, str],
) -> list[Observation]:
    meta = Meta(
        witness="spark-batch",
        kind="spark",
        purpose="statements",
        clock=clock_id(),
        windows=list(mine),
        complete=True,
    )
    meta.frozen = time.monotonic_ns()
    frames, absent = [], {}
    for table in contract.tables:
        if table.topic in problems:
            absent[table.topic] = problems[table.topic]
            continue
        frame, missing = read_table(table)
        frame.createOrReplaceTempView(identifier(table.name))
        frames.append(frame)
        if missing:
            absent[table.topic] = f"no record of {table.name} has a field {' or '.join(missing)}"

    def query(text: str) -> list[Any]:
        return [tuple(row) for row in spark.sql(text).collect()]

    meta.statements = [
        run_statement(statement, query, absent.get(statement.output, "")) for statement in contract.statements
    ]
    meta.finished = time.monotonic_ns()
    found = [Observation(meta)]
    for required in contract.required:
        mine_meta = msgspec.convert(msgspec.to_builtins(meta), Meta)
        mine_meta.witness, mine_meta.purpose = f"spark-batch-required-{required.topic}", "required"
        mine_meta.statements = []
        view = Observation(mine_meta)
        try:
            describe_required(view, query(required.query))
        except Exception as error:  # noqa: BLE001 - Spark raises many classes; the checker reports the text
            reason = (describe_error(error).splitlines() or [""])[0][:300]
            mine_meta.complete, mine_meta.detail = False, f"each = {required.text!r}: {reason}"
        found.append(view)
    for frame in frames:
        frame.unpersist()
    return found


def typed(raw: DataFrame, table: ContractTable, run: str) -> tuple[DataFrame, list[str]]:
    """Return the records with the columns of a table, and the fields that no record has.

    `raw` has the columns of Spark's Kafka source.
    """
    from pyspark.sql import functions as f

    parts = [f"decode({column}, 'ISO-8859-1')" for column in ("key", "value")]
    headers = "array_join(transform(headers, h -> decode(h.value, 'ISO-8859-1')), '\n')"
    text = f"concat_ws('\n', {', '.join([*parts, headers])})"
    token = f"regexp_extract_all({text}, '{token_pattern(run)}', 0)"
    columns = [
        f.expr(f"lower(get({token}, 0))").alias("eos_id"),
        f.expr("cast(partition AS DOUBLE)").alias("kafka_partition"),
        f.expr("cast(offset AS DOUBLE)").alias("kafka_offset"),
        f.expr("cast(key AS STRING)").alias("kafka_key"),
        f.expr("cast(value AS STRING)").alias("kafka_value"),
    ]
    records = raw.select(*columns)
    texts = list(TEXTS)
    if table.columns:
        schema = ", ".join(f"{identifier(name)} STRING" for name in table.columns)
        row = f"from_csv(kafka_value, '{schema}')"
        fields = {name: f"row.{identifier(name)}" for name in table.fields}
        records = records.withColumn("row", f.expr(row))
        texts += table.fields
    else:
        records = records.withColumn("object", f.expr("try_parse_json(kafka_value)"))
        fields = {name: _of_object(name) for name in table.fields}
    records = records.select(*PLACES, *TEXTS, *(f.expr(fields[n]).alias(n) for n in table.fields)).cache()
    return _with_types(records, table, texts)


def _of_object(name: str) -> str:
    """Return SQL for a field of an object: the first of its possible paths that the object has."""
    texts = []
    for path in paths_of(name):
        place = "$" + "".join(f"['{step}']" for step in path)
        texts.append(f"try_variant_get(object, \"{place}\", 'variant')")
    return f"coalesce({', '.join(texts)})"


def _with_types(records: DataFrame, table: ContractTable, texts: list[str]) -> tuple[DataFrame, list[str]]:
    """Make every column a number or a text."""
    from pyspark.sql import functions as f

    checks = []
    for name in [*TEXTS, *table.fields]:
        column = identifier(name)
        if name in texts:
            number = f"{column} RLIKE '^(?:{NUMBER_PATTERN})$'"
        else:
            number = f"schema_of_variant({column}) RLIKE '^(?:{_NUMBERS})$'"
        checks.append(f.expr(f"coalesce(bool_and({number}), true)").alias(f"number_{name}"))
        present = column if name in texts else f"try_variant_get({column}, '$', 'string')"
        checks.append(f.expr(f"count({present})").alias(f"present_{name}"))
    checks.append(f.expr("count(*)").alias("all_records"))
    seen = records.agg(*checks).collect()[0].asDict()
    columns = [f.col(name) for name in PLACES]
    for name in [*TEXTS, *table.fields]:
        column, kind = identifier(name), "DOUBLE" if seen[f"number_{name}"] else "STRING"
        value = f"cast({column} AS {kind})" if name in texts else f"try_variant_get({column}, '$', '{kind}')"
        columns.append(f.expr(value).alias(name))
    absent = [name for name in table.fields if seen["all_records"] and not seen[f"present_{name}"]]
    return records.select(*columns), absent
