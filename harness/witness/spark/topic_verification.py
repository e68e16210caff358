"""Verification of topics with Spark or a plain consumer, with or without the ledger of a run.

With a ledger, the checkers check the observation in the same way as that of every other witness, and with the
expectations of the run (ledger_selection.py). In addition, Spark itself counts anomalies (crosscheck.py), and
these counts must agree with those of the checkers. A plain consumer reads small topics, because Spark needs
seconds to start. Both readers have the same findings. Without a ledger, only the records themselves are
checked. The sequences of each lane must be dense from 0. Each sequence must be present once and in order. No
record may have the intended outcome abort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
import numpy as np

from harness.evidence.bit_words import (
    WORD_SEQS,
    group_sizes,
    group_starts,
    lowest_and_highest,
    merge,
    popcount,
    split_lane_key,
)
from harness.evidence.checkers.model import Evidence, Expect, Pipeline
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.checkers.visibility_index import VisibilityIndex
from harness.evidence.client_list import ClientList
from harness.evidence.ledger import COMMITTED, FATE_NAMES, OPEN_END, Ledger
from harness.evidence.observation import INTENTS, Findings, Observation, Reading, Window
from harness.evidence.record import ABORT
from harness.kafka.admin import existing_topics
from harness.kafka.reachability import reach_cluster
from harness.kafka.security import PLAINTEXT, Security
from harness.witness.plain_consumer import freeze, group_positions, observe_every_run, observe_topics
from harness.witness.spark.frozen_offsets import freeze_ends
from harness.witness.spark.ledger_selection import Selection, select_topics
from harness.witness.spark.spark_session import DEFAULT_MASTER, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.batch_job import Observed
    from spark_jobs.crosscheck import Frames
    from spark_jobs.kafka_source import KafkaSource

BOTH: Final = ("exactly_once", "atomicity", "order", "offsets", "pipeline")
"""Properties whose anomalies are counted twice: by the checkers, and by Spark without the checkers."""

ONLY_CHECKERS: Final = ("positions", "sends")
"""Units of anomalies that Spark does not count: positions of groups, and sends in the wrong order."""

ReaderChoice = Literal["auto", "plain", "spark"]
SMALL: Final = 500_000
"""Number of offsets from which on Spark reads: below, a plain consumer is done before Spark has started."""

QUICK_START_OFFSETS: Final = 2_000_000
"""Number of offsets from which on a quick start of Spark's JVM would cost more than it saves."""

WITH_LEDGER: Final = ("exactly_once", "atomicity", "order", "offsets", "coverage")
"""Properties that the records of transactional producers and a ledger always show."""

UNCHECKED: Final = (
    "records lost at the end of a lane: the number of sent records is unknown",
    "which missing or readable records were acknowledged",
    "transactions that can be read only in part, and transactions with an unknown outcome",
    "readable records of transactions that aborted although a commit was intended",
    "group positions, and outputs against inputs",
)


class LaneReport(msgspec.Struct, kw_only=True):
    """Report on one lane with missing sequences.

    It contains the highest sequence that was read, the number of distinct sequences that were read, and the
    number of sequences that are missing below the highest one.
    """

    run: str
    producer: int
    lane: int
    highest: int
    distinct: int
    missing: int


class RunWithoutLedger(msgspec.Struct, kw_only=True):
    """Result for one run that was verified without a ledger.

    All counts are exact; `unchecked` lists the checks that are not possible without a ledger.
    """

    run: str
    records: int
    lanes: int
    missing: int
    aborted_intent: int
    duplicates: Findings
    reordered: Findings
    foreign: Findings
    gaps: list[LaneReport]
    unchecked: tuple[str, ...] = UNCHECKED

    @property
    def anomalies(self) -> int:
        """Number of wrong records. Gaps do not count, because an aborted transaction also leaves a gap."""
        return self.aborted_intent + self.duplicates.count + self.reordered.count


class Share(NamedTuple):
    """Counts of the records that one producer has in one partition and that have the same fate.

    The fate of a record is its outcome according to the ledger, such as committed. `expected` is the number
    of records with this fate in the ledger. `read` is the number of these records that were read with
    read_committed.
    """

    producer: int
    topic: str
    partition: int
    fate: str
    expected: int
    read: int


@dataclass
class Verified:
    """The result of a verification of topics: the windows, the observations and the findings.

    `hanging` lists the windows in which a transaction stayed open. `without_ledger` has one entry per run,
    and is filled only if no ledger was given. With a ledger, `unchecked` lists what `eos check` would check
    in addition. `readings` lists which readers read the records.
    """

    windows: list[Window]
    hanging: list[Window]
    reader: Literal["plain", "spark"] = "spark"
    observations: list[Observation] = field(default_factory=list)
    judgement: Judgement | None = None
    spark_findings: dict[str, int] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    without_ledger: list[RunWithoutLedger] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    def add(self, observation: Observation) -> None:
        """Add an observation, and which of Spark's readers read its records."""
        self.observations.append(observation)
        if observation.meta.reading not in self.readings:
            self.readings.append(observation.meta.reading)

    @property
    def is_contradictory(self) -> bool:
        """Whether Spark and the checkers disagree, or Spark's two readers."""
        return bool(self.disagreements) or any(reading.difference for reading in self.readings)


def verify_topics(
    bootstrap: str,
    topics: Iterable[str],
    *,
    history: Path | None = None,
    expect: Expect | None = None,
    run: str = "",
    clients: ClientList | None = None,
    master: str = DEFAULT_MASTER,
    where: Literal["value", "key", "header"] = "value",
    log: Callable[[str], None] = lambda _: None,
    reader: ReaderChoice = "auto",
    verbose: bool = False,
    session: SparkSession | None = None,
    security: Security = PLAINTEXT,
) -> Verified:
    """Freeze the end offsets of topics, and verify the records before them.

    `history` is the directory of a run's histories, `expect` contains its expectations, `run` is its id, and
    `clients` is the list of its clients. Without `history`, the topics are verified without a ledger. Before
    the topics are read, check the ledger, the address and the topics. With `auto`, a plain consumer reads
    fewer than SMALL offsets, and Spark reads more, or with a master that is not this machine.
    """
    names = sorted(set(topics))
    selection = None if history is None else select_topics(history, expect, names, run, clients)
    existing_topics(reach_cluster(bootstrap, security, log=log), required=names)
    frozen = freeze_ends(bootstrap, names, security=security)
    verified = Verified(frozen.windows, frozen.hanging)
    offsets = sum(window.read_to - window.start for window in frozen.windows)
    if reader == "auto":
        small = offsets < SMALL
        reader = "plain" if small and session is None and master == DEFAULT_MASTER else "spark"
    verified.reader = reader
    if reader == "plain":
        verify_plainly(bootstrap, verified, selection, clients, where=where, security=security)
        return verified
    from spark_jobs.kafka_source import KafkaSource

    security.for_java()
    spark = session or start_session(
        "eos verify", master, log, quiet=not verbose, quick_start=offsets < QUICK_START_OFFSETS
    )
    try:
        source = KafkaSource(bootstrap, where, security.spark())
        if selection is None:
            verified.without_ledger = observe_without_ledger(spark, source, verified)
        else:
            verify_with_ledger(spark, source, verified, selection, clients, security=security)
    finally:
        if session is None:
            spark.stop()
    return verified


def verify_plainly(
    bootstrap: str,
    verified: Verified,
    selection: Selection | None,
    clients: ClientList | None = None,
    *,
    where: Literal["value", "key", "header"] = "value",
    security: Security = PLAINTEXT,
) -> None:
    """Read the windows with a plain consumer, and run the same checks as on Spark's observation."""
    if selection is None:
        found = observe_every_run(bootstrap, verified.windows, where=where, security=security)
        for run, observation in found.items():
            verified.observations.append(observation)
            verified.without_ledger.append(check_without_ledger(run, observation, _aborted(observation)))
        return
    ledger, expect, run = selection.ledger, selection.expect, selection.run
    verified.unchecked = selection.unchecked
    topics = {window.topic for window in verified.windows}
    observation = observe_topics(
        bootstrap, topics, run, shared=verified.windows, where=where, security=security
    )
    verified.observations.append(observation)
    if expect.pipeline is not None:
        group, inputs = expect.pipeline.group, expect.pipeline.inputs
        ends = group_positions(bootstrap, group, security)
        consumed = observe_topics(
            bootstrap, inputs, run, witness="consumed", ends=ends, group=group, where=where, security=security
        )
        verified.observations.append(consumed)
    verified.judgement = judge(Evidence(ledger, verified.observations, expect, clients=clients))
    verified.shares = shares_of(ledger, observation)


def _aborted(observation: Observation) -> int:
    """Return the number of records that were read although their intended outcome is abort."""
    labels = observation.labels
    assert labels is not None
    return int(labels["n"][labels["intent"] == INTENTS.index(ABORT)].sum())


def shares_of(ledger: Ledger, observation: Observation) -> list[Share]:
    """Return the number of expected records and of read records per producer, partition and fate.

    Of an interval whose end is unknown, the expected records are those that were read.
    """
    intervals = ledger.intervals
    if not len(intervals.lane):
        return []
    index = VisibilityIndex(ledger, observation)
    sizes = np.where(
        (intervals.last >= OPEN_END) & (intervals.fate != COMMITTED),
        index.visible,
        intervals.last - intervals.first + 1,
    )
    totals: dict[tuple[int, str, int, str], tuple[int, int]] = {}
    producers = split_lane_key(ledger.lanes)[0]
    columns = zip(
        *(column.tolist() for column in (intervals.lane, intervals.fate, sizes, index.visible)), strict=True
    )
    for lane, fate, expected, read in columns:
        key = (int(producers[lane]), *ledger.places[lane], FATE_NAMES[fate])
        before = totals.get(key, (0, 0))
        totals[key] = (before[0] + expected, before[1] + read)
    return sorted(Share(*key, *counts) for key, counts in totals.items())


def verify_with_ledger(
    spark: SparkSession,
    source: KafkaSource,
    verified: Verified,
    selection: Selection,
    clients: ClientList | None = None,
    *,
    security: Security = PLAINTEXT,
) -> None:
    """Observe the topics, run the checkers, and compare Spark's own findings with those of the checkers."""
    from spark_jobs import batch_job
    from spark_jobs.scan_pass import Wanted

    ledger, expect, run = selection.ledger, selection.expect, selection.run
    verified.unchecked = selection.unchecked
    observed = batch_job.main_with_rows(spark, source, verified.windows, Wanted(run))
    verified.add(observed.observation)
    consumed = None
    if expect.pipeline is not None:
        consumed = consumed_by(spark, source, run, expect.pipeline, security)
        verified.add(consumed.observation)
    verified.judgement = judge(Evidence(ledger, verified.observations, expect, clients=clients))
    # Build the DataFrames only once, because own_findings and own_shares then use the same cached joins.
    frames = frames_of(spark, ledger, observed)
    verified.spark_findings = own_findings(frames)
    verified.shares = own_shares(frames, verified.windows)
    if consumed is not None and expect.pipeline is not None:
        verified.spark_findings |= own_pipeline_findings(spark, observed, consumed, expect.pipeline)
    verified.disagreements = disagreements(verified.spark_findings, verified.judgement)


def consumed_by(
    spark: SparkSession, source: KafkaSource, run: str, pipeline: Pipeline, security: Security = PLAINTEXT
) -> Observed:
    """Observe the inputs of a pipeline up to the committed offsets of its group."""
    from spark_jobs import batch_job
    from spark_jobs.scan_pass import Wanted

    positions = group_positions(source.bootstrap, pipeline.group, security)
    windows = []
    for window in freeze(source.bootstrap, pipeline.inputs, security):
        position = positions.get((window.topic, window.partition))
        if position is not None:
            window.read_to = min(window.read_to, position)
            windows.append(window)
    meta = batch_job.new_meta("spark-consumed", windows, "consumed")
    meta.group = pipeline.group
    meta.positions = [(*place, position) for place, position in sorted(positions.items())]
    return batch_job.main_with_rows(spark, source, windows, Wanted(run, with_runs=True), meta)


def own_findings(frames: Frames) -> dict[str, int]:
    """Return Spark's own count for each anomaly name, from joins of expected and observed words."""
    from spark_jobs.crosscheck import findings

    return {row["name"]: row["count"] for row in findings(frames).collect() if not row["permitted"]}


def own_shares(frames: Frames, windows: Sequence[Window]) -> list[Share]:
    """Return the number of expected records and of read records per producer, partition and fate.

    Spark counts these records itself, without the checkers.
    """
    from spark_jobs.crosscheck import counts

    rows = counts(frames).where("window >= 0").collect()
    return sorted(
        Share(
            row["producer"],
            windows[row["window"]].topic,
            windows[row["window"]].partition,
            FATE_NAMES[row["fate"]],
            row["expected"],
            row["visible"],
        )
        for row in rows
    )


def frames_of(spark: SparkSession, ledger: Ledger, observed: Observed) -> Frames:
    """Return the input of crosscheck.py.

    The input is three DataFrames: the rows of Spark's scan, the ledger's lanes, and the ledger's intervals.
    """
    from spark_jobs.crosscheck import Frames
    from spark_jobs.expected_words import frame_of, intervals_table, lanes_table

    return Frames(
        frame_of(spark, [observed.with_case(0)]),
        frame_of(spark, [lanes_table(ledger, observed.observation.meta, 0, 0)]),
        frame_of(spark, [intervals_table(ledger, 0)]),
    )


def own_pipeline_findings(
    spark: SparkSession, observed: Observed, consumed: Observed, pipeline: Pipeline
) -> dict[str, int]:
    """Return Spark's own count for each anomaly name of a pipeline, from joins of outputs and inputs."""
    from spark_jobs.crosscheck_pipeline import pipeline_findings
    from spark_jobs.expected_words import frame_of

    expected = spark.createDataFrame([(0, pipeline.outputs)], "case int, expected int")
    outputs, inputs = (frame_of(spark, [scan.with_case(0)]) for scan in (observed, consumed))
    return {row["name"]: row["count"] for row in pipeline_findings(outputs, inputs, expected).collect()}


def disagreements(by_spark: dict[str, int], judgement: Judgement) -> list[str]:
    """List the anomalies that Spark and the checkers count differently."""
    by_checkers: dict[str, int] = {}
    for result in judgement.results:
        for anomaly in result.anomalies:
            if result.property in BOTH and anomaly.unit not in ONLY_CHECKERS:
                by_checkers[anomaly.name] = by_checkers.get(anomaly.name, 0) + anomaly.count
    names = sorted({*by_spark, *by_checkers} - {"inconsistent_offset", "early_read"})
    return [
        f"{name}: Spark counts {by_spark.get(name, 0)}, the checkers count {by_checkers.get(name, 0)}"
        for name in names
        if by_spark.get(name, 0) != by_checkers.get(name, 0)
    ]


def observe_without_ledger(
    spark: SparkSession, source: KafkaSource, verified: Verified
) -> list[RunWithoutLedger]:
    """Check the records of every run found in the windows of `verified`; add the observations to it."""
    from spark_jobs import batch_job

    results = []
    for run, observed in batch_job.every_run(spark, source, verified.windows).items():
        verified.add(observed.observation)
        results.append(check_without_ledger(run, observed.observation, observed.aborted))
    return results


def check_without_ledger(run: str, observation: Observation, aborted: int) -> RunWithoutLedger:
    """Check the records of one run without a ledger, and return the result.

    Missing records are the gaps below the highest sequence of each lane. The observation contains the other
    findings: duplicate records, reordered records, and records without the run's identity. `aborted` is the
    number of records with the intended outcome abort.
    """
    words, meta = observation.words, observation.meta
    columns = {name: words[name] for name in ("producer", "lane", "word", "bits")}
    merged = merge([columns], ("producer", "lane", "word"))
    starts = group_starts(merged["producer"], merged["lane"])
    ends = starts + group_sizes(starts, len(merged["word"])) - 1
    distinct = np.add.reduceat(popcount(merged["bits"]), starts) if len(starts) else starts
    highest = merged["word"][ends] * WORD_SEQS + lowest_and_highest(merged["bits"][ends])[1]
    missing = highest + 1 - distinct
    gaps = [
        LaneReport(
            run=run,
            producer=int(merged["producer"][starts[i]]),
            lane=int(merged["lane"][starts[i]]),
            highest=int(highest[i]),
            distinct=int(distinct[i]),
            missing=int(missing[i]),
        )
        for i in np.flatnonzero(missing > 0).tolist()
    ]
    return RunWithoutLedger(
        run=run,
        records=meta.records,
        lanes=len(starts),
        missing=int(missing.sum()),
        aborted_intent=aborted,
        duplicates=meta.repeats,
        reordered=meta.late,
        foreign=meta.foreign,
        gaps=gaps,
    )
