"""Where records come from: Kafka, read_committed, over explicit ranges or as a stream.

Every frame that leaves this file has the three columns that a scan reads: `window` (the number of the topic
and partition), `offset` and `value` (the bytes that begin with the identity).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from harness.observation import Window
from harness.record import HEADER
from spark_jobs.rows import MAX_WINDOWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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
class Source:
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


def read_ranges(
    spark: SparkSession, source: Source, windows: Sequence[Window], first_window: int = 0
) -> DataFrame:
    """Read every window from `start` to `read_to`, both explicit: never to "latest", never to a count."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for window in windows:
        if window.start < window.read_to:
            starts.setdefault(window.topic, {})[str(window.partition)] = window.start
            ends.setdefault(window.topic, {})[str(window.partition)] = window.read_to
    if not starts:
        return spark.createDataFrame([], "window int, offset bigint, value binary")
    frame = (
        spark.read.format("kafka")
        .options(**source.all_options())
        .option("assign", json.dumps({topic: [int(p) for p in found] for topic, found in starts.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .load()
    )
    return project(frame, source, windows, first_window)


def read_stream(
    spark: SparkSession, source: Source, windows: Sequence[Window], most_per_batch: int
) -> DataFrame:
    """Read the windows' partitions from their starts as a stream, in bounded batches."""
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
    return project(frame, source, windows, 0)


def project(frame: DataFrame, source: Source, windows: Sequence[Window], first_window: int) -> DataFrame:
    """Keep what a scan reads: the window's number, the offset, and the identity's bytes."""
    from pyspark.sql import functions as f

    values: dict[str, Any] = {
        "value": f.col("value"),
        "key": f.col("key"),
        "header": f.expr(f"try_element_at(filter(headers, h -> h.key = '{HEADER}'), -1).value"),
    }
    number = window_number(windows, first_window).cast("int").alias("window")
    return frame.select(number, "offset", values[source.where].alias("value"))


def window_number(windows: Sequence[Window], first_window: int = 0) -> Column:
    """Return the number of a row's window: arithmetic where partitions lie side by side, which they do."""
    from pyspark.sql import functions as f

    assert first_window + len(windows) <= MAX_WINDOWS, "too many partitions for one verification"
    numbers: dict[str, dict[int, int]] = {}
    for i, window in enumerate(windows, first_window):
        numbers.setdefault(window.topic, {})[window.partition] = i
    chosen: Any = None
    for topic, found in numbers.items():
        base = next(iter(found.values())) - next(iter(found))
        if all(number == base + partition for partition, number in found.items()):
            number = f.col("partition") + f.lit(base)
        else:
            pairs = [f.lit(one) for pair in found.items() for one in pair]
            number = f.element_at(f.create_map(*pairs), f.col("partition"))
        if len(numbers) == 1:
            return number
        # Comparing the topic's name row by row is paid only where there are several.
        condition = f.col("topic") == f.lit(topic)
        chosen = f.when(condition, number) if chosen is None else chosen.when(condition, number)
    return cast("Column", chosen)
