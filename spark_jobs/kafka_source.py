"""Reader of Kafka records with read_committed, from given offset ranges or as a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from harness.evidence.observation import Window
from harness.evidence.record import HEADER
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


class NotReadCommittedError(AssertionError):
    """Error: the isolation level is not read_committed. Spark would then also read aborted records."""


@dataclass(frozen=True)
class KafkaSource:
    """A Kafka cluster, and the place of the identity in its records: value, key or header."""

    bootstrap: str
    where: Literal["value", "key", "header"] = "value"
    options: Mapping[str, str] = field(default_factory=dict)

    def all_options(self) -> dict[str, str]:
        """Return the options that every read passes to Spark's Kafka source.

        Raise NotReadCommittedError if the isolation level is not read_committed.
        """
        options = {"kafka.bootstrap.servers": self.bootstrap, **_OPTIONS, **_PATIENCE, **self.options}
        if self.where == "header":
            options["includeHeaders"] = "true"
        if options.get(ISOLATION) != "read_committed":
            raise NotReadCommittedError(f"{ISOLATION} is {options.get(ISOLATION)!r}, expected read_committed")
        return options


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
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for window in windows:
        if window.start < window.read_to:
            starts.setdefault(window.topic, {})[str(window.partition)] = window.start
            ends.setdefault(window.topic, {})[str(window.partition)] = window.read_to
    if not starts:
        return FrozenLog(
            spark.createDataFrame([], "topic string, partition int, offset bigint, value binary"), {}
        )
    frame = (
        spark.read.format("kafka")
        .options(**source.all_options())
        .option("assign", json.dumps({topic: [int(p) for p in offsets] for topic, offsets in starts.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .load()
    )
    if source.where == "header":
        return FrozenLog(_narrow(frame, source), window_numbers(windows))
    # Keep all columns: if Spark selected some of them, it would copy every record before the fold.
    return FrozenLog(frame, window_numbers(windows), source.where)


def read_stream(
    spark: SparkSession, source: KafkaSource, windows: Sequence[Window], most_per_batch: int
) -> DataFrame:
    """Read the partitions of the windows as a stream, in batches of limited size.

    In each partition, the stream begins at the `start` of the window.
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
    return _narrow(frame, source)


def _narrow(frame: DataFrame, source: KafkaSource) -> DataFrame:
    """Select only the columns that the fold or the stream needs, with the identity in the column `value`."""
    from pyspark.sql import functions as f

    header = f"try_element_at(filter(headers, h -> h.key = '{HEADER}'), -1).value"
    identity = f.expr(header) if source.where == "header" else f.col(source.where)
    return frame.select("topic", "partition", "offset", identity.alias("value"))


def window_numbers(windows: Sequence[Window]) -> dict[str, dict[int, int]]:
    """Return the index of each window by topic and partition."""
    assert len(windows) <= MAX_WINDOWS, "too many partitions for one verification"
    numbers: dict[str, dict[int, int]] = {}
    for i, window in enumerate(windows):
        numbers.setdefault(window.topic, {})[window.partition] = i
    return numbers
