"""Where records come from: Kafka, read_committed, over explicit ranges or as a stream."""

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
    # After every poll the source asks the broker twice for offsets: polls must be large.
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "failOnDataLoss": "true",
}

_PATIENCE: Final[dict[str, str]] = {
    # Bounds of every wait while brokers are away: a task gives up after a minute and is tried again.
    "kafka.default.api.timeout.ms": "60000",
    "kafka.request.timeout.ms": "15000",
    "kafkaConsumer.pollTimeoutMs": "60000",
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "1000",
    "kafka.reconnect.backoff.max.ms": "1000",
}


class NotReadCommittedError(AssertionError):
    """The source would have read aborted records as well."""


@dataclass(frozen=True)
class KafkaSource:
    """A cluster, and where its records carry their identity."""

    bootstrap: str
    where: Literal["value", "key", "header"] = "value"
    options: Mapping[str, str] = field(default_factory=dict)

    def all_options(self) -> dict[str, str]:
        """Return the options of every read; refuse any isolation but read_committed."""
        options = {"kafka.bootstrap.servers": self.bootstrap, **_OPTIONS, **_PATIENCE, **self.options}
        if self.where == "header":
            options["includeHeaders"] = "true"
        if options.get(ISOLATION) != "read_committed":
            raise NotReadCommittedError(f"{ISOLATION} is {options.get(ISOLATION)!r}")
        return options


class Log(NamedTuple):
    """Records with `topic`, `partition`, `offset`, and the bytes that begin with the identity."""

    frame: DataFrame
    numbers: dict[str, dict[int, int]]  # of windows, by topic and partition
    identity: str = "value"  # the column of those bytes


def read_ranges(spark: SparkSession, source: KafkaSource, windows: Sequence[Window]) -> Log:
    """Read every window from `start` to `read_to`, both explicit: never to "latest", never to a count."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for window in windows:
        if window.start < window.read_to:
            starts.setdefault(window.topic, {})[str(window.partition)] = window.start
            ends.setdefault(window.topic, {})[str(window.partition)] = window.read_to
    if not starts:
        return Log(spark.createDataFrame([], "topic string, partition int, offset bigint, value binary"), {})
    frame = (
        spark.read.format("kafka")
        .options(**source.all_options())
        .option("assign", json.dumps({topic: [int(p) for p in found] for topic, found in starts.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .load()
    )
    if source.where == "header":
        return Log(_narrow(frame, source), window_numbers(windows))
    # All columns: choosing some would copy every record once more before it is folded.
    return Log(frame, window_numbers(windows), source.where)


def read_stream(
    spark: SparkSession, source: KafkaSource, windows: Sequence[Window], most_per_batch: int
) -> DataFrame:
    """Read the windows' partitions from their starts as a stream, in bounded batches: each is a log."""
    starts: dict[str, dict[str, int]] = {}
    for window in windows:
        starts.setdefault(window.topic, {})[str(window.partition)] = window.start
    frame = (
        spark.readStream.format("kafka")
        .options(**source.all_options())
        .option("assign", json.dumps({topic: [int(p) for p in found] for topic, found in starts.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("maxOffsetsPerTrigger", most_per_batch)
        .load()
    )
    return _narrow(frame, source)


def _narrow(frame: DataFrame, source: KafkaSource) -> DataFrame:
    """Keep the columns of a log, whatever the identity stands in."""
    from pyspark.sql import functions as f

    header = f"try_element_at(filter(headers, h -> h.key = '{HEADER}'), -1).value"
    identity = f.expr(header) if source.where == "header" else f.col(source.where)
    return frame.select("topic", "partition", "offset", identity.alias("value"))


def window_numbers(windows: Sequence[Window]) -> dict[str, dict[int, int]]:
    """Number windows by topic and partition, in their order."""
    assert len(windows) <= MAX_WINDOWS, "too many partitions for one verification"
    numbers: dict[str, dict[int, int]] = {}
    for i, window in enumerate(windows):
        numbers.setdefault(window.topic, {})[window.partition] = i
    return numbers
