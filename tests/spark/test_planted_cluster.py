"""Planted violations on a real cluster: the batch job and the streaming job find these and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from harness.base.errors import ExitCode
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import history_files
from harness.evidence.ledger import fold
from harness.evidence.observation import Observation, Spot
from harness.witness.plain_consumer import observe_topics
from harness.witness.spark.frozen_offsets import freeze_ends
from harness.witness.spark.topic_verification import (
    WITH_LEDGER,
    Verified,
    observe_without_ledger,
    verify_topics,
)
from harness.witness.spark.verify_report import exit_code_of
from spark_jobs import streaming_job
from spark_jobs.kafka_source import KafkaSource
from spark_jobs.scan_pass import Wanted
from spark_jobs.stream_segments import Segments
from tests.client_case import examples_of
from tests.spark.planting import SEQS, WANTED, counts, make, write

pytestmark = [pytest.mark.spark, pytest.mark.cluster]


# Regular expressions for the examples in a verdict. READ extracts producer, lane and sequences. TORN extracts
# transaction, producer, and number of readable records.
READ = re.compile(r"producer (\d+) lane (\d+) [^;]*?(?:missing are |read )([\d-]+)(?:$|;)")
TORN = re.compile(r"transaction (\d+) of producer (\d+) \(\w+\): only (\d+) of its")


class Planted(NamedTuple):
    """Topics that a test wrote to the cluster as one run, and the folder with their histories."""

    run: str
    topics: list[str]
    history: Path
    bootstrap: str


def plant(cluster: Cluster, folder: Path, *, flawed: bool) -> Planted:
    run = uuid.uuid4().hex[:8]
    topics = make(f"sv-{run}", flawed=flawed)
    history = write(cluster, topics, run, folder)
    return Planted(run, [topic.name for topic in topics], history, cluster.bootstrap("DIRECT"))


@pytest.fixture(scope="module")
def flawed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return plant(cluster, tmp_path_factory.mktemp("flawed"), flawed=True)


@pytest.fixture(scope="module")
def clean(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return plant(cluster, tmp_path_factory.mktemp("clean"), flawed=False)


def of_stream(spark: SparkSession, planted: Planted, folder: Path, most: int) -> Observation:
    """Read the topics as a stream in small batches, up to the frozen end offsets."""
    frozen = freeze_ends(planted.bootstrap, planted.topics)
    assert not frozen.hanging
    segments = Segments(folder)
    job = streaming_job.Stream(
        spark, KafkaSource(planted.bootstrap), frozen.windows, Wanted(planted.run), segments
    )
    segments.freeze(frozen.windows)
    job.run(streaming_job.BatchPace(most, 0.1, 60))
    assert segments.committed() >= 0
    return job.observation()


def judge_with(planted: Planted, observation: Observation) -> Judgement:
    ledger = fold(history_files(planted.history))
    return judge(Evidence(ledger, [observation], Expect(properties=list(WITH_LEDGER))))


def spots(found: list[Spot]) -> set[tuple[str, int, int, int, int]]:
    return {(one.topic, one.partition, one.producer, one.lane, one.seq) for one in found}


def assert_plain_reader_agrees(planted: Planted, by_spark: Verified) -> None:
    """Verify the same topics with the plain reader, and compare everything that a user sees."""
    plain = verify_topics(planted.bootstrap, planted.topics, history=planted.history, reader="plain")
    assert plain.judgement is not None
    assert by_spark.judgement is not None
    assert counts(plain.judgement) == counts(by_spark.judgement)
    assert plain.judgement.exit_code == by_spark.judgement.exit_code
    assert [(r.property, r.verdict, r.compared) for r in plain.judgement.results] == [
        (r.property, r.verdict, r.compared) for r in by_spark.judgement.results
    ]
    assert plain.shares == by_spark.shares
    assert plain.unchecked == by_spark.unchecked
    assert (plain.reader, by_spark.reader) == ("plain", "spark")


def test_batch_finds_everything_and_agrees_with_the_checkers(spark: SparkSession, flawed: Planted) -> None:
    found = verify_topics(flawed.bootstrap, flawed.topics, history=flawed.history, session=spark)
    assert found.judgement is not None
    assert counts(found.judgement) == WANTED
    assert found.spark_findings == WANTED
    assert found.disagreements == []
    assert_plain_reader_agrees(flawed, found)
    read = {
        name: [READ.search(example) for example in examples_of(found.judgement, name)]
        for name in ("lost", "aborted_read")
    }
    assert {name: {one.groups() for one in ones if one} for name, ones in read.items()} == {
        "lost": {("3", "0", "0"), ("4", "1", "599"), ("5", "0", "250-260")},
        "aborted_read": {("8", "0", "142")},
    }
    torn = [TORN.match(example) for example in examples_of(found.judgement, "torn_transaction")]
    assert {one.groups() for one in torn if one} == {
        ("0", "3", "199"),
        ("5", "4", "199"),
        ("2", "5", "189"),
        ("1", "8", "1"),
        ("2", "9", "100"),
    }
    assert "producer 910 lane 0: no client declared this lane" in "".join(
        examples_of(found.judgement, "phantom")
    )
    shares = {(one.producer, one.partition, one.fate): (one.expected, one.read) for one in found.shares}
    assert shares[5, 0, "committed"] == (400, 389)
    assert shares[8, 0, "aborted"] == (100, 1)
    assert (
        sum(expected - read for (_, _, fate), (expected, read) in shares.items() if fate == "committed") == 13
    )
    meta = found.observations[0].meta
    duplicate, elsewhere, *_ = flawed.topics
    assert spots(meta.repeats.examples) == {(duplicate, 0, 1, 0, SEQS - 1), (elsewhere, 1, 2, 0, 10)}
    assert spots(meta.late.examples) == {(flawed.topics[5], 0, 6, 0, 300), (flawed.topics[6], 1, 7, 1, 255)}
    assert [one.detail for one in meta.foreign.examples] == ["7 bytes are too few: an identity has 48"]


def test_batch_raises_no_false_alarm(spark: SparkSession, clean: Planted) -> None:
    found = verify_topics(clean.bootstrap, clean.topics, history=clean.history, session=spark)
    assert found.judgement is not None
    assert counts(found.judgement) == {}
    assert found.judgement.exit_code == 0, found.judgement.encode().decode()
    assert found.spark_findings == {}
    assert_plain_reader_agrees(clean, found)


@pytest.mark.parametrize("most", [3000, pytest.param(20_000, marks=pytest.mark.soak)])
def test_the_stream_finds_the_same_as_the_batch(
    spark: SparkSession, flawed: Planted, clean: Planted, tmp_path: Path, most: int
) -> None:
    found = of_stream(spark, flawed, tmp_path / "flawed", most)
    assert counts(judge_with(flawed, found)) == WANTED
    plain = observe_topics(flawed.bootstrap, flawed.topics, flawed.run)
    assert found.words.tobytes() == plain.words.tobytes()
    for name in ("repeats", "late", "foreign"):
        assert getattr(found.meta, name) == getattr(plain.meta, name)
    assert counts(judge_with(clean, of_stream(spark, clean, tmp_path / "clean", most))) == {}


def test_records_alone_show_duplicates_reordering_and_gaps(
    spark: SparkSession, flawed: Planted, clean: Planted
) -> None:
    source = KafkaSource(flawed.bootstrap)
    (one,) = observe_without_ledger(
        spark, source, Verified(freeze_ends(flawed.bootstrap, flawed.topics).windows, [])
    )
    assert (one.run, one.duplicates.count, one.reordered.count, one.foreign.count) == (flawed.run, 2, 2, 1)
    assert one.unchecked
    gaps = {(gap.producer, gap.lane): gap.missing for gap in one.gaps}
    assert gaps[3, 0] == 1 + 2 * 100  # a first record, an aborted and an unclear transaction are missing
    assert (4, 1) in gaps  # aborted records cause a gap in the sequences; a missing last record does not
    assert one.aborted_intent == 1
    assert one.anomalies == 5
    (two,) = observe_without_ledger(
        spark, source, Verified(freeze_ends(clean.bootstrap, clean.topics).windows, [])
    )
    assert (two.anomalies, two.foreign.count) == (0, 0)
    for planted, by_spark in ((flawed, one), (clean, two)):
        plain = verify_topics(planted.bootstrap, planted.topics, reader="plain")
        assert plain.without_ledger == [by_spark]


def test_a_topic_without_any_record_is_unknown_to_both_readers(spark: SparkSession, cluster: Cluster) -> None:
    topic, bootstrap = f"sv-empty-{uuid.uuid4().hex[:8]}", cluster.bootstrap("DIRECT")
    cluster.create_topic(topic, 1)
    found = [
        verify_topics(bootstrap, [topic], reader="plain"),
        verify_topics(bootstrap, [topic], reader="spark", session=spark),
    ]

    assert found[0].without_ledger == found[1].without_ledger
    assert [exit_code_of(one) for one in found] == [ExitCode.UNKNOWN] * 2


@pytest.mark.parametrize(
    "reader", ["plain", pytest.param("spark", marks=pytest.mark.soak)]
)  # soak only: `eos verify` starts its own Spark session
def test_eos_verify_without_a_ledger_reports_anomalies(flawed: Planted, reader: str) -> None:
    eos = Path(sys.executable).with_name("eos")
    topics = [word for topic in flawed.topics for word in ("--topic", topic)]
    done = subprocess.run(
        [eos, "verify", "--bootstrap", flawed.bootstrap, "--reader", reader, *topics],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == ExitCode.ANOMALY, done.stderr
    assert f"run {flawed.run}: " in done.stdout
    assert "records intended to be aborted: 1" in done.stdout
    assert done.stderr == ""


def test_a_hanging_transaction_is_reported_after_the_limit(cluster: Cluster) -> None:
    topic, bootstrap = f"sv-open-{uuid.uuid4().hex[:8]}", cluster.bootstrap("DIRECT")
    cluster.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    assert producer.flush(30) == 0
    frozen = freeze_ends(bootstrap, [topic], limit=1.0)
    assert [(one.partition, one.lso, one.hw) for one in frozen.hanging] == [(1, 0, 1)]
    assert [one.read_to for one in frozen.windows] == [0, 0]
    producer.abort_transaction(30)
    assert freeze_ends(bootstrap, [topic]).hanging == []
