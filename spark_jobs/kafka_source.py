"""Reader of Kafka records with read_committed, from given offset ranges or as a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from harness.evidence.bit_words import WORD_SEQS
from harness.evidence.observation import ORIGIN, Rows, Window
from harness.evidence.record import FIELDS, HEADER, KIND_RECORD, MAGIC, NONE
from harness.evidence.token import DIGITS, NO_TOKEN
from spark_jobs.jvm_class import java_class, mapped_rows
from spark_jobs.scan_rows import MAX_WINDOWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ISOLATION: Final = "kafka.isolation.level"

_OPTIONS: Final[dict[str, str]] = {
    ISOLATION: "read_committed",
    # Spark's Kafka source sends two offset requests to the broker after every poll. Large polls reduce the
    # number of these requests.
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "failOnDataLoss": "true",
}

_CONSUMER: Final[dict[str, str]] = {"receive.buffer.bytes": str(1 << 20)}
"""Additional settings of a Kafka consumer that reads offset ranges."""

_PATIENCE: Final[dict[str, str]] = {
    # These time-outs limit how long Spark waits for brokers that are down. A task fails after a minute, and
    # Spark retries it.
    "kafka.default.api.timeout.ms": "60000",
    "kafka.request.timeout.ms": "15000",
    "kafkaConsumer.pollTimeoutMs": "60000",
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "1000",
    "kafka.reconnect.backoff.max.ms": "1000",
}


RAW: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "headers array<struct<key: string, value: binary>>"
)
"""Columns of records with headers, as Spark's Kafka source returns them."""


_PLACE: Final = "topic string, partition int, offset bigint"


class NotReadCommittedError(AssertionError):
    """Error: the isolation level is not read_committed. Spark would then also read aborted records."""


@dataclass(frozen=True)
class KafkaSource:
    """A Kafka cluster, and the place of the identity in its records: value, key, header or token.

    A token may be anywhere in the key, the value or the headers. `run` is the id in the tokens. `slots`
    contains the slot of each output topic; a topic that is not in it is an input. `reader`
    is the first reader of offset ranges that is tried (range_scan.py). `auto` chooses one, and has a sample
    read by Spark's source.
    """

    bootstrap: str
    where: Literal["value", "key", "header", "token"] = "value"
    options: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    slots: Mapping[str, int] = field(default_factory=dict)
    reader: Literal["auto", "fetches", "consumer", "spark"] = "auto"

    def all_options(self) -> dict[str, str]:
        """Return the options that every read passes to Spark's Kafka source.

        Raise NotReadCommittedError if the isolation level is not read_committed.
        """
        options = {"kafka.bootstrap.servers": self.bootstrap, **_OPTIONS, **_PATIENCE, **self.options}
        if self.where in ("header", "token"):
            options["includeHeaders"] = "true"
        if options.get(ISOLATION) != "read_committed":
            raise NotReadCommittedError(f"{ISOLATION} is {options.get(ISOLATION)!r}, expected read_committed")
        return options

    def consumer_options(self) -> dict[str, str]:
        """Return the settings of a Kafka consumer that reads the same records as Spark's Kafka source."""
        options = {
            name.removeprefix("kafka."): value
            for name, value in self.all_options().items()
            if name.startswith("kafka.")
        }
        # The consumer must fail, not continue elsewhere, if the log no longer contains an offset of a range.
        own = {
            "auto.offset.reset": "none",
            "enable.auto.commit": "false",
            "allow.auto.create.topics": "false",
        }
        return {**_CONSUMER, **options, **own}


class FrozenLog(NamedTuple):
    """A DataFrame of Kafka records that a scan can read.

    It has the columns `topic`, `partition` and `offset`, and a column of bytes that start with the identity.
    """

    frame: DataFrame
    numbers: dict[str, dict[int, int]]
    """Index of the window of each partition, by topic and partition number."""
    identity: str = "value"
    """Name of the column that contains the identity."""


def read_ranges(spark: SparkSession, source: KafkaSource, windows: Sequence[Window]) -> FrozenLog:
    """Read every window from `start` to `read_to`.

    Each range ends at a given offset. It never ends at "latest" or after a number of records.
    """
    if all(window.start >= window.read_to for window in windows):
        return FrozenLog(spark.createDataFrame([], f"{_PLACE}, value binary"), {})
    frame = read_raw(spark, source, windows)
    if source.where in ("header", "token"):
        return FrozenLog(_narrow(frame, source), window_numbers(windows))
    # Keep all columns: if Spark selected some of them, it would copy every record before the fold.
    return FrozenLog(frame, window_numbers(windows), source.where)


def read_raw(spark: SparkSession, source: KafkaSource, windows: Sequence[Window]) -> DataFrame:
    """Read every window from `start` to `read_to`, with all columns of Spark's Kafka source."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for window in windows:
        if window.start < window.read_to:
            starts.setdefault(window.topic, {})[str(window.partition)] = window.start
            ends.setdefault(window.topic, {})[str(window.partition)] = window.read_to
    if not starts:
        return spark.createDataFrame([], RAW)
    return (
        spark.read.format("kafka")
        .options(**source.all_options())
        .option("assign", json.dumps({topic: [int(p) for p in offsets] for topic, offsets in starts.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .load()
    )


def read_stream(
    spark: SparkSession, source: KafkaSource, windows: Sequence[Window], most_per_batch: int
) -> DataFrame:
    """Read the partitions of the windows as a stream, in batches of limited size.

    In each partition, the stream begins at the `start` of the window. `batch_log` returns the log of a batch.
    """
    starts: dict[str, dict[str, int]] = {}
    for window in windows:
        starts.setdefault(window.topic, {})[str(window.partition)] = window.start
    frame = (
        spark.readStream.format("kafka")
        .options(**source.all_options())
        .option("assign", json.dumps({topic: [int(p) for p in offsets] for topic, offsets in starts.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("maxOffsetsPerTrigger", most_per_batch)
        .load()
    )
    return frame if source.where == "token" else _narrow(frame, source)


def batch_log(frame: DataFrame, source: KafkaSource, numbers: dict[str, dict[int, int]]) -> FrozenLog:
    """Return the log of one batch of a stream that `read_stream` returned."""
    return FrozenLog(_with_tokens(frame, source) if source.where == "token" else frame, numbers)


def _narrow(frame: DataFrame, source: KafkaSource) -> DataFrame:
    """Select only the columns that the fold or the stream needs, with the identity in the column `value`."""
    from pyspark.sql import functions as f

    if source.where == "token":
        return _with_tokens(frame, source)
    header = f"try_element_at(filter(headers, h -> h.key = '{HEADER}'), -1).value"
    identity = f.expr(header) if source.where == "header" else f.col(source.where)
    return frame.select("topic", "partition", "offset", identity.alias("value"))


def _with_tokens(frame: DataFrame, source: KafkaSource) -> DataFrame:
    """Replace each record by one row for each different token in it; `value` is the token as an identity.

    A record of an output topic without a token becomes an identity with its offset as the sequence. The value
    of an input without a token is null.
    """
    # java/FindTokens.java searches the bytes of the rows. A regular expression takes several times as long.
    make = java_class(frame.sparkSession, "FindTokens")
    slots = frame.sparkSession.sparkContext._jvm.java.util.HashMap()  # type: ignore[union-attr]
    for topic, slot in source.slots.items():
        slots[topic] = str(slot)
    columns = [
        frame.columns.index(name) for name in ("topic", "partition", "offset", "key", "value", "headers")
    ]
    start = f"{MAGIC.decode()}{source.run}"
    identity = f"{start}0{'0' * DIGITS}{'0':0>11}{NONE}{KIND_RECORD}"
    nothing = f"{NO_TOKEN:05d}00000"
    arguments = [*columns, f"{start.lower()}0", DIGITS, identity, len(start), nothing, slots]
    return mapped_rows(frame, make(arguments), f"{_PLACE}, value binary")


def count_outputs(spark: SparkSession, source: KafkaSource, windows: Sequence[Window]) -> Rows:
    """Count the outputs of each input: return the inputs with more than 0, more than 1, ... outputs.

    The part number of a row is the number of outputs that its inputs exceed. Each token is shuffled once.
    """
    from pyspark.sql import functions as f

    places = {field.name: (field.start + 1, field.width) for field in FIELDS}
    columns = [
        f.expr(f"cast(cast(substring(value, {at}, {width}) AS STRING) AS BIGINT)").alias(name)
        for name, (at, width) in places.items()
        if name in ("producer", "lane", "seq")
    ]
    counts = read_ranges(spark, source, windows).frame.where("value IS NOT NULL").select(*columns)
    counts = counts.groupBy("producer", "lane", "seq").count()
    ranked = counts.withColumn("part", f.expr("explode(sequence(0L, count - 1))"))
    bit = "shiftleft(1L, cast(seq % 64 AS INT))"
    quarters = [f"bit_or(if((seq % {WORD_SEQS}) DIV 64 = {i}, {bit}, 0L))" for i in range(4)]
    words = (
        ranked.withColumn("word", f.expr(f"seq DIV {WORD_SEQS}"))
        .groupBy("producer", "lane", "part", "word")
        .agg(f.count("*").alias("n"), *(f.expr(text).alias(f"b{i}") for i, text in enumerate(quarters)))
        .orderBy("producer", "lane", "part", "word")
        .toArrow()
    )
    rows = np.zeros(words.num_rows, ORIGIN)
    for name in ("producer", "lane", "part", "word", "n"):
        rows[name] = np.asarray(words[name])
    for i in range(4):
        rows["bits"][:, i] = np.asarray(words[f"b{i}"]).view(np.uint64)
    return rows


def window_numbers(windows: Sequence[Window]) -> dict[str, dict[int, int]]:
    """Return the index of each window by topic and partition."""
    assert len(windows) <= MAX_WINDOWS, "too many partitions for one verification"
    numbers: dict[str, dict[int, int]] = {}
    for i, window in enumerate(windows):
        numbers.setdefault(window.topic, {})[window.partition] = i
    return numbers
