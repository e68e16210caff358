"""The three readers of offset ranges: on real logs they return the same folded rows, byte by byte.

Spark's Kafka source, the Kafka consumer in the tasks and the fetch requests of the tasks must also agree with
librdkafka. If a reader in the tasks fails, the next one reads. If it differs, Spark's source reads. The
observation names the reason.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
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
from spark_jobs.jvm_class import JavaClass, compiled_class, java_class
from spark_jobs.jvm_fold import FETCHER, SOURCE, folded, read_fetched, read_folded
from spark_jobs.kafka_source import KafkaSource, read_ranges
from spark_jobs.range_scan import (
    CONSUMER,
    FETCHES,
    OWN_READERS,
    SPARK_SOURCE,
    Read,
    folded_rows,
    reason_for_spark,
)
from spark_jobs.scan_pass import Wanted
from spark_jobs.spark_errors import spark_failures
from tests.broker_requests import delete_records
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
        config |= {"transaction.timeout.ms": 900_000}  # the most that brokers allow
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


def agreed(spark: SparkSession, source: KafkaSource, windows: Sequence[Window]) -> pa.Table:
    """Return the folded rows of the windows; fail if the three readers do not agree on them."""
    rows = folded_rows(folded(read_ranges(spark, source, windows)))
    assert folded_rows(read_folded(spark, source, windows)).equals(rows)
    assert folded_rows(read_fetched(spark, source, windows)).equals(rows)
    return rows


def test_three_readers_and_librdkafka_agree_on_whole_logs(spark: SparkSession, written: Written) -> None:
    rows = agreed(spark, KafkaSource(written.bootstrap), written.windows)
    plain = by_librdkafka(written.bootstrap, written.windows)
    assert rows.equals(plainly_folded(plain))
    assert 4 * rows.num_rows < len(plain.rows)


@pytest.mark.parametrize("where", ["value", "key", "header"])
def test_three_readers_agree_on_ranges_that_begin_inside_a_batch(
    spark: SparkSession, written: Written, where: Literal["value", "key", "header"]
) -> None:
    source = KafkaSource(written.bootstrap, where)
    ranges = draw_ranges(written.windows, seed=len(where))
    rows = agreed(spark, source, ranges)
    assert rows.num_rows > len(CODECS)
    if where == "value":
        assert rows.equals(plainly_folded(by_librdkafka(written.bootstrap, ranges)))


@pytest.mark.parametrize("reader", ["fetches", pytest.param("consumer", marks=pytest.mark.soak)])
def test_observations_of_all_readers_are_equal(
    spark: SparkSession, written: Written, reader: Literal["fetches", "consumer"]
) -> None:
    own, other = (
        batch_job.main(spark, KafkaSource(written.bootstrap, reader=one), written.windows, wanted)
        for wanted in [Wanted(RUN, with_runs=True)]
        for one in (reader, "spark")
    )
    assert (own.meta.reading.reader, other.meta.reading.reader) == (OWN_READERS[reader][0], SPARK_SOURCE)
    for name in ("words", "origins", "runs"):
        assert getattr(own, name).tobytes() == getattr(other, name).tobytes()
    for name in ("records", "foreign", "late", "repeats", "clashes", "twice"):
        assert getattr(own.meta, name) == getattr(other.meta, name)


class Changed(KafkaSource):
    """A source whose readers in the tasks have another setting than Spark's source."""

    setting = ("isolation.level", "read_uncommitted")

    def consumer_options(self) -> dict[str, str]:
        return {**super().consumer_options(), **dict([self.setting])}


class Broken(Changed):
    setting = ("isolation.level", "unknown")


@pytest.mark.parametrize(
    ("left_out", "reader"),
    [((), FETCHES), pytest.param(("fetches",), CONSUMER, marks=pytest.mark.soak)],
    ids=["fetches", "consumer"],
)
def test_a_sample_by_two_readers_finds_a_difference(
    spark: SparkSession,
    written: Written,
    monkeypatch: pytest.MonkeyPatch,
    left_out: Sequence[str],
    reader: str,
) -> None:
    monkeypatch.setattr(range_scan, "FEW_OFFSETS", 0)
    # A copy keeps the order of the readers, which a deletion and its undo would change.
    others = {name: own for name, own in OWN_READERS.items() if name not in left_out}
    monkeypatch.setattr(range_scan, "OWN_READERS", others)
    right = batch_job.main(spark, KafkaSource(written.bootstrap), written.windows, Wanted(RUN))
    assert right.meta.reading.reader == reader
    assert right.meta.reading.sampled > 0
    found = batch_job.main(spark, Changed(written.bootstrap), written.windows, Wanted(RUN))
    assert found.meta.reading.reader == SPARK_SOURCE
    assert found.meta.reading.difference.startswith(f"{reader} read ")
    assert "but Spark's Kafka source read" in found.meta.reading.difference
    assert found.words.tobytes() == right.words.tobytes()


def test_sparks_source_reads_when_the_other_readers_fail(spark: SparkSession, written: Written) -> None:
    source = Broken(written.bootstrap, reader="fetches")
    found = batch_job.main(spark, source, written.windows, Wanted(RUN))
    assert found.meta.reading.reader == SPARK_SOURCE
    reason = found.meta.reading.reason
    assert f"{FETCHES} failed: java.lang.IllegalArgumentException: isolation.level is unknown" in reason
    assert f"{CONSUMER} failed: " in reason
    assert found.meta.records > 0


def test_the_consumer_reads_when_the_fetch_requests_fail(
    spark: SparkSession, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_missing(spark: SparkSession, source: KafkaSource, windows: Sequence[Window]) -> Any:
        missing = [Window("missing", w.partition, w.start, w.lso, w.hw, w.read_to) for w in windows]
        return read_fetched(spark, source, missing)

    monkeypatch.setattr(range_scan, "FEW_OFFSETS", 0)
    monkeypatch.setattr(range_scan, "OWN_READERS", {**OWN_READERS, "fetches": (FETCHES, read_missing)})
    found = batch_job.main(spark, KafkaSource(written.bootstrap), written.windows, Wanted(RUN))
    assert found.meta.reading.reader == CONSUMER
    assert found.meta.reading.sampled > 0
    assert found.meta.reading.reason.startswith(f"{FETCHES} failed: ")
    assert "no leader was found" in found.meta.reading.reason


@pytest.mark.parametrize(
    ("read", "reason"),
    [(read_folded, "does not reach offset {}"), (read_fetched, "to offset {}: .* returns no more records")],
)
def test_a_reader_fails_if_it_cannot_reach_an_end(
    spark: SparkSession, written: Written, monkeypatch: pytest.MonkeyPatch, read: Read, reason: str
) -> None:
    monkeypatch.setattr(jvm_fold, "PATIENCE_MS", 1000)
    (pinned,) = (w for w in written.windows if w.lso < w.hw)
    beyond = Window(pinned.topic, pinned.partition, pinned.start, pinned.lso, pinned.hw, pinned.hw)
    with pytest.raises(spark_failures(), match=reason.format(pinned.hw)):
        read(spark, KafkaSource(written.bootstrap), [beyond]).count()


@pytest.mark.parametrize(
    ("source", "offsets", "reason"),
    [
        (KafkaSource("h:1", "token"), 10**9, "do not look for identities in a token"),
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
def test_three_readers_agree_on_a_compacted_log(spark: SparkSession, cluster: Cluster) -> None:
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
        assert agreed(spark, KafkaSource(bootstrap), ranges).equals(
            plainly_folded(by_librdkafka(bootstrap, ranges))
        )


@pytest.mark.soak
@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "beyond the end"])
def test_readers_fail_if_a_log_has_no_such_offset(
    spark: SparkSession, cluster: Cluster, *, deleted: bool
) -> None:
    topic, bootstrap = f"sr-lost-{uuid.uuid4().hex[:8]}", cluster.bootstrap("DIRECT")
    cluster.create_topic(topic, [[1, 2, 3]])
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 10})
    for value in LaneEncoder(RUN, 1, 0).batch(0, 100, 7, "c"):
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    (window,) = freeze(bootstrap, [topic])
    source = KafkaSource(bootstrap)
    assert sum(folded_rows(read_fetched(spark, source, [window]))["n"].to_pylist()) == 100
    if deleted:
        delete_records(cluster.admin, 1, (topic, 0), 45)
    else:
        window = Window(topic, 0, 101, 101, 101, 110)
    for read, reason in ((read_fetched, "OFFSET_OUT_OF_RANGE"), (read_folded, "out of range")):
        with pytest.raises(spark_failures(), match=reason):
            read(spark, source, [window]).count()
    with pytest.raises(spark_failures()):
        batch_job.main(spark, KafkaSource(bootstrap, reader="fetches"), [window], Wanted(RUN))


_ABORTED = "return batch.isTransactional() && abortedProducers.contains(producer);"
RULES = {
    "aborted transactions": (_ABORTED, "return false;"),
    "their producers": (_ABORTED, "return batch.isTransactional() && !abortedProducers.isEmpty();"),
    "their starts": ("firstOffset(nextAborted) <= batch.lastOffset()", "true"),
    "their ends": ("abortedProducers.remove(producer);", ""),
    "control batches": (" || batch.isControlBatch() ||", " ||"),
    "the start of a range": ("offset >= from && offset < end", "offset < end"),
    "the end of a range": ("offset >= from && offset < end", "offset >= from"),
    "the last header": ("if (Arrays.equals(", "if (found < 0 && Arrays.equals("),
}
"""For each rule of the fetches: the Java code of the rule, and the code that replaces it."""


def variant(spark: SparkSession, tmp_path: Path, name: str, old: str, new: str) -> JavaClass:
    """Return a variant of the class with its own name, because an executor loads one class of a name."""
    text = FETCHER.read_text()
    assert text.count(old) == 1
    text = text.replace(old, new).replace(FETCHER.stem, name)
    return compiled_class(spark, text, tmp_path / f"{name}.jar", name, java_class(spark, SOURCE.stem))


@pytest.mark.soak
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_the_fetches_is_needed(
    spark: SparkSession, written: Written, tmp_path: Path, rule: str
) -> None:
    make = variant(spark, tmp_path, f"FetchesWithout{list(RULES).index(rule)}", *RULES[rule])
    source = KafkaSource(written.bootstrap, "header" if rule == "the last header" else "value")
    ranges = draw_ranges(written.windows, seed=3)
    rows = [folded_rows(read_fetched(spark, source, each)) for each in (ranges, written.windows)]
    assert rows != [
        folded_rows(read_fetched(spark, source, each, make)) for each in (ranges, written.windows)
    ]


class MovingLeader:
    """A topic whose leader moves while a reader reads it, a batch for each request."""

    def __init__(self, spark: SparkSession, cluster: Cluster) -> None:
        self.spark, self.cluster = spark, cluster
        self.topic, bootstrap = f"sr-moves-{uuid.uuid4().hex[:8]}", cluster.bootstrap("DIRECT")
        cluster.create_topic(self.topic, [[1, 2, 3]])
        self.source = KafkaSource(bootstrap, options={"kafka.max.partition.fetch.bytes": "1"})
        self.leaders = cycle([2, 3, 1])
        encoder = LaneEncoder(RUN, 1, 0)
        for part in range(2):
            producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 10})
            for value in encoder.batch(part * 40_000, 40_000, 7, "c"):
                producer.produce(self.topic, value)
                producer.poll(0)
            assert producer.flush(60) == 0
            self.move()
            self.move()
        (self.window,) = freeze(bootstrap, [self.topic])

    def move(self) -> None:
        self.cluster.move_leader(self.topic, 0, next(self.leaders))

    def read(self, make: JavaClass | None = None) -> tuple[pa.Table | Exception, int]:
        """Read while the leader moves; return the folded rows or the error, and the number of moves."""
        found: list[pa.Table | Exception] = []

        def read() -> None:
            try:
                found.append(folded_rows(read_fetched(self.spark, self.source, [self.window], make)))
            except spark_failures() as error:
                found.append(error)

        moves = 0
        reader = threading.Thread(target=read)
        reader.start()
        while reader.is_alive():
            self.move()
            moves += 1
        reader.join()
        return found[0], moves


@pytest.mark.soak
def test_fetches_follow_a_leader_that_moves(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    moving = MovingLeader(spark, cluster)
    rows = agreed(spark, KafkaSource(moving.source.bootstrap), [moving.window])
    assert sum(rows["n"].to_pylist()) == 80_000

    def moves_twice() -> list[pa.Table | Exception]:
        found, moves = moving.read()
        return [found] if moves > 1 else []

    assert wait_until(moves_twice, 120, "a read that lasts longer than a move of the leader") == [rows]
    # Without the errors of a leader that has moved, the same read fails: so the moves have an effect.
    text = FETCHER.read_text()
    start = text.index("Errors.NOT_LEADER_OR_FOLLOWER, ")
    old = text[start : text.index("});", start)]
    make = variant(spark, tmp_path, "FetchesStay", old, "")

    def fails() -> str:
        found, _ = moving.read(make)
        return str(found) if isinstance(found, Exception) else ""

    assert "LEADER" in wait_until(fails, 120, "a read that a move of the leader ends")
    # The broker compares the epoch of the last batch with its log. A wrong epoch is a log that was truncated.
    old = "Optional.of(Integer.valueOf(epoch))"
    make = variant(spark, tmp_path, "FetchesDiverge", old, old.replace("epoch)", "epoch + 1)"))
    with pytest.raises(spark_failures(), match="the log was truncated"):
        read_fetched(spark, moving.source, [moving.window], make).count()
