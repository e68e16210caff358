"""Training session for the class-data archive (CDS) of Spark's JVM.

The session uses every Spark feature that a verification uses, once each. The archive then contains the
classes that these features need.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from harness.provision.jars import ensure_jars
from harness.witness.spark.spark_session import (
    DEFAULT_MASTER,
    build_session,
    settings_for,
    temporary_files_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(archive: str) -> None:
    """Run the training session. Its JVM writes the archive when it exits."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    from spark_jobs.jvm_fold import folded
    from spark_jobs.kafka_source import FrozenLog

    jars = ensure_jars(lambda _: None, "spark")
    scratch = Path(archive).parent
    options = ["-XX:+UseParallelGC", f"-XX:ArchiveClassesAtExit={archive}", "-Djava.net.preferIPv4Stack=true"]
    options.append(temporary_files_in(scratch))
    spark = build_session("training", settings_for(DEFAULT_MASTER, jars, options), scratch)

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def count(batch: DataFrame, _: int) -> None:
        batch.count()

    frame = spark.range(2000).select("id", (f.col("id") / 256).cast("long").alias("word"))
    words = frame.mapInArrow(same, frame.schema).cache()
    columns = ("'t' AS topic", "0 AS partition", "id AS offset", "binary(string(id)) AS value")
    folded(FrozenLog(words.selectExpr(*columns), {"t": {0: 0}})).toArrow()
    words.groupBy("word").agg(f.bit_or("id"), f.count("*")).join(words, "word", "left").toArrow()
    unreachable = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.isolation.level": "read_committed",
        "kafka.default.api.timeout.ms": "500",
        "kafka.request.timeout.ms": "400",
        "fetchOffset.numRetries": "1",
        "assign": '{"t":[0]}',
        "startingOffsets": '{"t":{"0":0}}',
        "endingOffsets": '{"t":{"0":1}}',
    }
    try:
        spark.read.format("kafka").options(**unreachable).load().count()
    except (PySparkException, Py4JError) as error:
        # The error is expected, because no broker listens at this address. The attempt to read loads the
        # classes of the Kafka source.
        assert "imeout" in str(error) or "imed out" in str(error), error  # noqa: PT017
    with tempfile.TemporaryDirectory() as folder:
        query = (
            spark.readStream.format("rate")
            .load()
            .writeStream.option("checkpointLocation", str(Path(folder) / "checkpoint"))
            .foreachBatch(count)
            .trigger(once=True)
            .start()
        )
        query.awaitTermination(60)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
