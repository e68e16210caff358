"""Scan of offset ranges with the fastest reader that may read them, and the guards of that reader.

There are three readers. Spark's Kafka source makes a row of each record. A Kafka consumer in the task folds
each record at once (java/ReadRanges.java), and reads several times faster. Fetch requests of the task itself
(java/FetchRanges.java) fold the records in the bytes of a response, which is faster again. All of them return
the same folded rows.

The readers in the tasks read only where they were tested: plaintext connections, and identities in the
value, the key or a header. If one of them fails, the next slower one reads instead. Spark's source also reads
a sample of the ranges. If the two readers differ in a single folded row, the observation comes from Spark's
source and names the difference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from harness.evidence.observation import Reading, Window
from spark_jobs import scan_rows as row
from spark_jobs.jvm_fold import folded, read_fetched, read_folded
from spark_jobs.kafka_source import FrozenLog, KafkaSource, read_ranges
from spark_jobs.record_reader import unpacked
from spark_jobs.scan_pass import Batches
from spark_jobs.spark_errors import describe_cause, spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Scan = Callable[[Batches], Batches]

FETCHES: Final = "fetch requests in Spark's tasks"
CONSUMER: Final = "a Kafka consumer in Spark's tasks"
SPARK_SOURCE: Final = "Spark's Kafka source"

FEW_OFFSETS: Final = 1_000_000
"""Number of offsets below which Spark's source alone reads: the sample would cost more than it saves."""

SAMPLED_RANGES: Final = 8
SAMPLED_OFFSETS: Final = 50_000
"""Maximum number of ranges in a sample, and of offsets in each of these ranges."""


Read = Callable[["SparkSession", KafkaSource, Sequence[Window]], "DataFrame"]

OWN_READERS: Final[dict[str, tuple[str, Read]]] = {
    "fetches": (FETCHES, read_fetched),
    "consumer": (CONSUMER, read_folded),
}
"""The readers in the tasks, the fastest one first, with their names in an observation."""


def collect(log: FrozenLog, scan: Scan) -> pa.Table:
    """Run a scan over the records of a log, and return the resulting rows.

    Before the scan, consecutive records are folded into single rows (jvm_fold.py).
    """
    return _scanned(folded(log), scan)


def scan_ranges(
    spark: SparkSession, source: KafkaSource, windows: Sequence[Window], scan: Scan
) -> tuple[pa.Table, Reading]:
    """Scan every window from `start` to `read_to`; return the resulting rows and which reader read."""
    offsets = sum(max(window.read_to - window.start, 0) for window in windows)
    reasons = [reason] if (reason := reason_for_spark(source, offsets)) else []
    sample = draw_sample(windows) if source.reader == "auto" else []
    sampled = sum(window.read_to - window.start for window in sample)
    for name, read in [] if reasons else own_readers(source.reader):
        try:
            if difference := difference_between_readers(spark, source, sample, name, read):
                rows = collect(read_ranges(spark, source, windows), scan)
                return rows, Reading(reader=SPARK_SOURCE, reason="; ".join(reasons), difference=difference)
            rows = _scanned(read(spark, source, windows), scan)
            return rows, Reading(reader=name, reason="; ".join(reasons), sampled=sampled)
        except spark_failures() as error:
            reasons.append(f"{name} failed: {describe_cause(error)}")
    rows = collect(read_ranges(spark, source, windows), scan)
    return rows, Reading(reader=SPARK_SOURCE, reason="; ".join(reasons))


def own_readers(chosen: str) -> list[tuple[str, Read]]:
    """Return the readers in the tasks, in the order in which they are tried.

    `chosen` is the first of them; with `auto`, it is the fastest one.
    """
    names = list(OWN_READERS)
    first = 0 if chosen == "auto" else names.index(chosen)
    return [OWN_READERS[name] for name in names[first:]]


def reason_for_spark(source: KafkaSource, offsets: int) -> str:
    """Return the reason why Spark's source must read, or "" if a reader in the tasks may read."""
    if source.reader == "spark":
        return "it was chosen"
    if source.where not in ("value", "key", "header"):
        return f"the other readers do not look for identities in a {source.where}"
    protocol = source.options.get("kafka.security.protocol", "PLAINTEXT")
    if protocol != "PLAINTEXT":
        return f"the other readers were not tested with {protocol}"
    if not offsets:
        return "there are no offsets"
    if source.reader == "auto" and offsets < FEW_OFFSETS:
        return f"there are fewer than {FEW_OFFSETS} offsets"
    return ""


def draw_sample(windows: Sequence[Window]) -> list[Window]:
    """Draw ranges of some windows. The same windows have the same sample."""
    rng = random.Random(repr([(w.topic, w.partition, w.start, w.read_to) for w in windows]))
    filled = [window for window in windows if window.start < window.read_to]
    sample = []
    for window in rng.sample(filled, min(SAMPLED_RANGES, len(filled))):
        start = rng.randrange(window.start, max(window.read_to - SAMPLED_OFFSETS, window.start) + 1)
        end = min(start + SAMPLED_OFFSETS, window.read_to)
        sample.append(Window(window.topic, window.partition, start, window.lso, window.hw, end))
    return sample


def difference_between_readers(
    spark: SparkSession, source: KafkaSource, windows: Sequence[Window], name: str, read: Read
) -> str:
    """Read windows with a reader and with Spark's source.

    Return the first difference, or "" if all folded rows are equal.
    """
    if not windows:
        return ""
    own = folded_rows(read(spark, source, windows))
    other = folded_rows(folded(read_ranges(spark, source, windows)))
    if own.equals(other):
        return ""
    pairs = zip(own.to_pylist(), other.to_pylist(), strict=False)
    at = next((i for i, (mine, theirs) in enumerate(pairs) if mine != theirs), min(len(own), len(other)))
    texts = [_described(table, at, windows) for table in (own, other)]
    return f"{name} read {texts[0]}, but {SPARK_SOURCE} read {texts[1]}"


def _described(table: pa.Table, at: int, windows: Sequence[Window]) -> str:
    if at >= len(table):
        return "no further record"
    row = table.slice(at, 1).to_pylist()[0]
    window = windows[row["window"]]
    return f"{row['n']} records from {window.topic}-{window.partition} offset {row['offset']}: {row['value']}"


def folded_rows(blocks: DataFrame) -> pa.Table:
    """Return the folded rows in blocks, sorted by window and offset."""
    batches = list(unpacked(blocks.toArrow().to_batches()))
    if not batches:
        return _NO_ROWS.empty_table()
    # Rows of a window are in one task and in order. So a stable order by window is enough.
    rows = pa.Table.from_batches(batches).append_column("at", pa.array(range(sum(map(len, batches)))))
    return rows.sort_by([("window", "ascending"), ("at", "ascending")]).drop_columns(["at"]).combine_chunks()


_NO_ROWS: Final = pa.schema(
    [("window", pa.int32()), ("offset", pa.int64()), ("value", pa.binary()), ("n", pa.int32())]
)


def _scanned(blocks: DataFrame, scan: Scan) -> pa.Table:
    return blocks.mapInArrow(scan, row.DDL).toArrow().cast(row.SCHEMA)
