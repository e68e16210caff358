"""The two readers of offset ranges: on real logs they return the same folded rows, byte by byte.

Spark's Kafka source and the Kafka consumer in the tasks must also agree with librdkafka. If the consumer
fails or differs, Spark's source reads, and the observation names the reason.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyspark.sql import SparkSession

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.evidence.observation import Window
from harness.evidence.record import HEADER, Identity, LaneEncoder, Origin, encode
from harness.witness.plain_consumer import freeze
from spark_jobs import batch_job, jvm_fold, range_scan
from spark_jobs.jvm_fold import folded, read_folded
from spark_jobs.kafka_source import KafkaSource, read_ranges
from spark_jobs.range_scan import CONSUMER, SPARK_SOURCE, folded_rows, reason_for_spark
from spark_jobs.scan_pass import Wanted
from spark_jobs.spark_errors import spark_failures
from tests.spark.generated import RUN, Log, Value, plainly_folded

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ABORTED, MIXED, EMPTY = 0, 1, 2
"""Partitions of a topic: one with aborted records alone, one with records of all kinds, one without any."""


class Written(NamedTuple):
    """Topics of a test, and their windows up to the last stable offsets."""

    bootstrap: str
    windows: list[Window]


class TopicWriter:
    """Writer of random records with one codec: in transactions that overlap, and without transactions."""

    def __init__(self, bootstrap: str, topic: str, codec: str) -> None:
        self.random = random.Random(codec)
        self.topic = topic
        config = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5}
        self.plain = Producer({**config, "enable.idempotence": True})
        config |= {"transaction.timeout.ms": 600_000}  # longer than the tests of this module
        self.transactional = [Producer({**config, "transactional.id": f"{topic}-{i}"}) for i in range(2)]
        self.next_seq = [0, 0, 0]
        for producer in self.transactional:
            producer.init_transactions(30)

    def write(self, *, leave_open: bool) -> None:
        """Write to the partitions; with `leave_open`, the last transaction stays open."""
        first, second = self.transactional
        for number in range(10):
            partition = ABORTED if number == 9 else MIXED
            first.begin_transaction()
            self._send(first, 0, partition)
            self._send(self.plain, 2, MIXED)
            second.begin_transaction()
            self._send(second, 1, MIXED)
            second.commit_transaction(30)
            self._send(first, 0, partition)
            (first.abort_transaction if number % 3 == 0 else first.commit_transaction)(30)
        if leave_open:
            first.begin_transaction()
            self._send(first, 0, MIXED)
            self._send(self.plain, 2, MIXED)

    def _send(self, producer: Producer, lane: int, partition: int) -> None:
        for value in self._values(lane):
            header: list[tuple[str, str | Value]] = (
                [(HEADER, b"x"), (HEADER, value)] if self.random.random() < 0.9 else []
            )
            producer.produce(self.topic, value, key=value, partition=partition, headers=header)
            if self.random.random() < 0.005:
                producer.flush(30)  # ends a batch
        assert producer.flush(30) == 0

    def _values(self, lane: int) -> list[Value]:
        count, first = self.random.choice([1, 5, 300, 700]), self.next_seq[lane]
        self.next_seq[lane] += count
        values: list[Value] = [*LaneEncoder(RUN, lane, 0, b"and more").batch(first, count, first, "c")]
        if lane == 2:
            steps = range(first, first + count)
            values = [encode(Identity(RUN, 2, 0, i, 7, "c", Origin(5, 1, i, 0, 9)), b"xy") for i in steps]
        for _ in range(self.random.choice([0, 0, 3])):
            strange = (None, b"", b"junk", LaneEncoder("zzzz9999", 1, 0).batch(9, 1)[0])
            values[self.random.randrange(count)] = self.random.choice(strange)
        return values


def stable(bootstrap: str, writers: Sequence[TopicWriter]) -> list[Window]:
    """Return all windows once the last stable offset is below the end only where a transaction is open."""
    windows = freeze(bootstrap, [writer.topic for writer in writers])
    return windows if [w.partition for w in windows if w.lso < w.hw] == [MIXED] else []


@pytest.fixture(scope="module")
def written(cluster: Cluster) -> Iterator[Written]:
    bootstrap = cluster.bootstrap("DIRECT")
    writers = []
    for codec in CODECS:
        topic = f"sr-{codec}-{uuid.uuid4().hex[:8]}"
        cluster.create_topic(topic, 3)
        writers.append(TopicWriter(bootstrap, topic, codec))
        writers[-1].write(leave_open=codec == "lz4")
    windows = wait_until(partial(stable, bootstrap, writers), 30, "the markers of ended transactions")
    assert {w.hw for w in windows if w.partition == EMPTY} == {0}
    yield Written(bootstrap, windows)
    writers[CODECS.index("lz4")].transactional[0].abort_transaction(30)


def by_librdkafka(bootstrap: str, windows: Sequence[Window]) -> Log:
    """Read windows record by record with another client library."""
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "none"}
    config |= {"isolation.level": "read_committed"}
    config |= {"enable.auto.commit": False, "auto.offset.reset": "error", "enable.partition.eof": True}
    consumer = Consumer(config)
    log = Log(len(windows))

    def reach(i: int, window: Window) -> bool:
        """Add records, and return whether the end of the window or the last stable offset is reached."""
        for message in consumer.consume(10_000, 0.1):
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return True
            offset: Any = message.offset()
            if offset >= window.read_to:
                return True
            log.rows.append((i, offset, message.value()))
        return False

    for i, window in enumerate(windows):
        if window.start < window.read_to:
            consumer.assign([TopicPartition(window.topic, window.partition, window.start)])
            end = f"offset {window.read_to} of {window.topic}-{window.partition}"
            wait_until(partial(reach, i, window), 60, end, every=0)
    consumer.close()
    return log


def draw_ranges(windows: Sequence[Window], seed: int) -> list[Window]:
    """Return windows with random starts and ends, which are mostly inside a batch."""
    rng = random.Random(seed)
    ranges = []
    for w in windows:
        start, end = sorted(rng.choices(range(w.start, w.read_to + 1), k=2))
        ranges.append(Window(w.topic, w.partition, start, w.lso, w.hw, end))
    return ranges


def both(spark: SparkSession, source: KafkaSource, windows: Sequence[Window]) -> tuple[pa.Table, pa.Table]:
    """Return the folded rows by the consumer and by Spark's source."""
    return folded_rows(read_folded(spark, source, windows)), folded_rows(
        folded(read_ranges(spark, source, windows))
    )


def test_both_readers_and_librdkafka_agree_on_whole_logs(spark: SparkSession, written: Written) -> None:
    own, other = both(spark, KafkaSource(written.bootstrap), written.windows)
    assert own.equals(other)
    plain = by_librdkafka(written.bootstrap, written.windows)
    assert own.equals(plainly_folded(plain))
    assert 4 * own.num_rows < len(plain.rows)


@pytest.mark.parametrize("where", ["value", "key", "header"])
def test_both_readers_agree_on_ranges_that_begin_inside_a_batch(
    spark: SparkSession, written: Written, where: Literal["value", "key", "header"]
) -> None:
    source = KafkaSource(written.bootstrap, where)
    ranges = draw_ranges(written.windows, seed=len(where))
    own, other = both(spark, source, ranges)
    assert own.num_rows > len(CODECS)
    assert own.equals(other)
    if where == "value":
        assert own.equals(plainly_folded(by_librdkafka(written.bootstrap, ranges)))


def test_observations_of_both_readers_are_equal(spark: SparkSession, written: Written) -> None:
    found = {}
    for reader in ("consumer", "spark"):
        source = KafkaSource(written.bootstrap, reader=reader)
        found[reader] = batch_job.main(spark, source, written.windows, Wanted(RUN, with_runs=True))
    own, other = found["consumer"], found["spark"]
    assert (own.meta.reading.reader, other.meta.reading.reader) == (CONSUMER, SPARK_SOURCE)
    for name in ("words", "origins", "runs"):
        assert getattr(own, name).tobytes() == getattr(other, name).tobytes()
    for name in ("records", "foreign", "late", "repeats", "clashes", "twice"):
        assert getattr(own.meta, name) == getattr(other.meta, name)


class Changed(KafkaSource):
    """A source whose consumer has another setting than Spark's source."""

    setting = ("isolation.level", "read_uncommitted")

    def consumer_options(self) -> dict[str, str]:
        return {**super().consumer_options(), **dict([self.setting])}


class Broken(Changed):
    setting = ("isolation.level", "unknown")


def test_a_sample_by_both_readers_finds_a_difference(
    spark: SparkSession, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_scan, "FEW_OFFSETS", 0)
    right = batch_job.main(spark, KafkaSource(written.bootstrap), written.windows, Wanted(RUN))
    assert right.meta.reading.reader == CONSUMER
    assert right.meta.reading.sampled > 0
    found = batch_job.main(spark, Changed(written.bootstrap), written.windows, Wanted(RUN))
    assert found.meta.reading.reader == SPARK_SOURCE
    assert "but Spark's Kafka source read" in found.meta.reading.difference
    assert found.words.tobytes() == right.words.tobytes()


def test_sparks_source_reads_when_the_consumer_fails(spark: SparkSession, written: Written) -> None:
    source = Broken(written.bootstrap, reader="consumer")
    found = batch_job.main(spark, source, written.windows, Wanted(RUN))
    assert found.meta.reading.reader == SPARK_SOURCE
    assert "the consumer failed" in found.meta.reading.reason
    assert found.meta.records > 0


def test_the_consumer_fails_if_it_cannot_reach_an_end(
    spark: SparkSession, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm_fold, "PATIENCE_MS", 1000)
    (pinned,) = (w for w in written.windows if w.lso < w.hw)
    beyond = Window(pinned.topic, pinned.partition, pinned.start, pinned.lso, pinned.hw, pinned.hw)
    with pytest.raises(spark_failures(), match=f"does not reach offset {pinned.hw}"):
        read_folded(spark, KafkaSource(written.bootstrap), [beyond]).count()


@pytest.mark.parametrize(
    ("source", "offsets", "reason"),
    [
        (KafkaSource("h:1", "token"), 10**9, "does not look for identities in a token"),
        (KafkaSource("h:1", options={"kafka.security.protocol": "SSL"}), 10**9, "not tested with SSL"),
        (KafkaSource("h:1"), range_scan.FEW_OFFSETS - 1, "fewer than"),
        (KafkaSource("h:1", reader="spark"), 10**9, "it was chosen"),
        (KafkaSource("h:1", options={"kafka.security.protocol": "PLAINTEXT"}), 10**9, ""),
        (KafkaSource("h:1", reader="consumer"), 1, ""),
        (KafkaSource("h:1", reader="consumer"), 0, "there are no offsets"),
    ],
)
def test_the_reason_for_sparks_source(source: KafkaSource, offsets: int, reason: str) -> None:
    found = reason_for_spark(source, offsets)
    assert reason in found
    assert bool(found) == bool(reason)


@pytest.mark.soak  # soak only: the broker compacts a log at most every 15 s
def test_both_readers_agree_on_a_compacted_log(spark: SparkSession, cluster: Cluster) -> None:
    topic, bootstrap = f"sr-compact-{uuid.uuid4().hex[:8]}", cluster.bootstrap("DIRECT")
    settings = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    cluster.create_topic(topic, [[1]], settings)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 50})
    values = LaneEncoder(RUN, 1, 0).batch(0, 3000, 7, "c")

    def holes() -> bool:
        producer.produce(topic, values[0], key=b"last")  # a new record closes the segment
        assert producer.flush(30) == 0
        (window,) = freeze(bootstrap, [topic])
        return len(by_librdkafka(bootstrap, [window]).rows) < window.read_to

    for i, value in enumerate(values):
        producer.produce(topic, value, key=b"%d" % (i % 700 if i % 3 else i))
    wait_until(holes, 90, "the broker to compact the log", every=2)
    windows = freeze(bootstrap, [topic])
    for ranges in (windows, draw_ranges(windows, 1), draw_ranges(windows, 2)):
        own, other = both(spark, KafkaSource(bootstrap), ranges)
        assert own.equals(other)
        assert own.equals(plainly_folded(by_librdkafka(bootstrap, ranges)))
