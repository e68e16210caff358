"""Verify topics with Spark, with a run's ledger or without any.

With a ledger the account goes to the same checkers as every witness's, and Spark's own findings are put
beside theirs: two ways from the same words, which must agree. Without one, the records themselves say
much: sequences are dense from 0, each is there once and in order, and none was meant to be aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
import numpy as np

from harness.base.errors import UsageError
from harness.evidence.bit_words import (
    WORD_SEQS,
    group_sizes,
    group_starts,
    lowest_and_highest,
    merge,
    popcount,
)
from harness.evidence.checkers.model import Evidence, Expect, Pipeline
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import history_files
from harness.evidence.ledger import FATE_NAMES, Ledger, fold
from harness.evidence.observation import Findings, Observation, Window
from harness.witness.plain_consumer import freeze, group_positions
from harness.witness.spark.frozen_offsets import freeze_ends
from harness.witness.spark.spark_session import DEFAULT_MASTER, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.batch_job import Observed
    from spark_jobs.crosscheck import Frames
    from spark_jobs.kafka_source import KafkaSource

BOTH: Final = ("exactly_once", "atomicity", "order", "offsets", "pipeline")
"""Properties whose anomalies Spark finds by itself as well."""

WITH_LEDGER: Final = ("exactly_once", "atomicity", "order", "offsets", "coverage")
Report = Callable[[str], None]

UNCHECKED: Final = (
    "records lost at the end of a lane: nobody told how many were sent",
    "records that were lost or read without having been acknowledged: nobody told which were",
    "transactions read in part, and transactions whose end is unknown",
    "what an aborted transaction wrote without meaning to abort",
    "group positions, and outputs against inputs",
)


class LaneReport(msgspec.Struct, kw_only=True):
    """What the records of one lane say of themselves."""

    run: str
    producer: int
    lane: int
    highest: int
    distinct: int
    missing: int


class SelfEvident(msgspec.Struct, kw_only=True):
    """What a topic tells without a ledger; every count is exact, `unchecked` says what was not looked at."""

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
        """How many records speak against the topic; holes do not, since an abort leaves one as well."""
        return self.aborted_intent + self.duplicates.count + self.reordered.count


class Share(NamedTuple):
    """What of one producer's records of one fate can be read in one partition."""

    producer: int
    topic: str
    partition: int
    fate: str
    owed: int
    read: int


@dataclass
class Verified:
    """What a verification found."""

    windows: list[Window]
    hanging: list[Window]
    observations: list[Observation] = field(default_factory=list)
    judgement: Judgement | None = None
    spark_findings: dict[str, int] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    alone: list[SelfEvident] = field(default_factory=list)


def verify_topics(
    bootstrap: str,
    topics: Iterable[str],
    *,
    history: Path | None = None,
    expect: Expect | None = None,
    master: str = DEFAULT_MASTER,
    where: Literal["value", "key", "header"] = "value",
    report: Report = lambda _: None,
    session: SparkSession | None = None,
) -> Verified:
    """Freeze the ends of some topics and verify them, with the histories of a run where there are any."""
    from spark_jobs.kafka_source import KafkaSource

    frozen = freeze_ends(bootstrap, topics)
    found = Verified(frozen.windows, frozen.hanging)
    spark = session or start_session("eos verify", master, report)
    try:
        source = KafkaSource(bootstrap, where)
        if history is None:
            found.alone = observe_alone(spark, source, frozen.windows, found.observations)
        else:
            files = history_files(history)
            if not files:
                raise UsageError(
                    f"{history} holds no history", "name the run's directory: eos verify --ledger RUN"
                )
            with_ledger(spark, source, found, fold(files), _expected(expect))
    finally:
        if session is None:
            spark.stop()
    return found


def _expected(expect: Expect | None) -> Expect:
    """Keep of what a run promised what one verification can check: its pipeline, not its witnesses."""
    pipeline = expect.pipeline if expect else None
    return Expect(properties=[*WITH_LEDGER, *(["pipeline"] if pipeline else [])], pipeline=pipeline)


def with_ledger(
    spark: SparkSession, source: KafkaSource, found: Verified, ledger: Ledger, expect: Expect
) -> None:
    """Observe, let the checkers judge, and put Spark's own findings beside theirs."""
    from spark_jobs import batch_job
    from spark_jobs.scan_pass import Wanted

    runs = sorted({client.opening.run for client in ledger.clients if client.opening})
    if len(runs) != 1:
        raise UsageError(f"the histories tell of {len(runs)} runs", "give the directory of one run")
    observed = batch_job.main_with_rows(spark, source, found.windows, Wanted(runs[0]))
    found.observations.append(observed.observation)
    consumed = None
    if expect.pipeline is not None:
        consumed = consumed_by(spark, source, runs[0], expect.pipeline)
        found.observations.append(consumed.observation)
    found.judgement = judge(Evidence(ledger, found.observations, expect))
    # One set of frames: what the findings have joined and kept, the shares find there.
    frames = frames_of(spark, ledger, observed)
    found.spark_findings = own_findings(frames)
    found.shares = own_shares(frames, found.windows)
    if consumed is not None and expect.pipeline is not None:
        found.spark_findings |= own_pipeline_findings(spark, observed, consumed, expect.pipeline)
    found.disagreements = disagreements(found.spark_findings, found.judgement)


def consumed_by(spark: SparkSession, source: KafkaSource, run: str, pipeline: Pipeline) -> Observed:
    """Observe what a pipeline's group has passed: its inputs up to the positions that it committed."""
    from spark_jobs import batch_job
    from spark_jobs.scan_pass import Wanted

    positions = group_positions(source.bootstrap, pipeline.group)
    windows = []
    for window in freeze(source.bootstrap, pipeline.inputs):
        position = positions.get((window.topic, window.partition))
        if position is not None:
            window.read_to = min(window.read_to, position)
            windows.append(window)
    meta = batch_job.new_meta("spark-consumed", windows, "consumed")
    meta.group = pipeline.group
    meta.positions = [(*place, position) for place, position in sorted(positions.items())]
    return batch_job.main_with_rows(spark, source, windows, Wanted(run, with_runs=True), meta)


def own_findings(frames: Frames) -> dict[str, int]:
    """Return what Spark finds by joining the ledger's words with the observed ones, by name."""
    from spark_jobs.crosscheck import findings

    found = findings(frames).collect()
    return {one["name"]: one["count"] for one in found if not one["permitted"]}


def own_shares(frames: Frames, windows: Sequence[Window]) -> list[Share]:
    """Return what Spark counts of each producer's records in each partition, fate by fate."""
    from spark_jobs.crosscheck import counts

    found = counts(frames).where("window >= 0").collect()
    return sorted(
        Share(
            one["producer"],
            windows[one["window"]].topic,
            windows[one["window"]].partition,
            FATE_NAMES[one["fate"]],
            one["owed"],
            one["visible"],
        )
        for one in found
    )


def frames_of(spark: SparkSession, ledger: Ledger, observed: Observed) -> Frames:
    """Return what was observed, beside what the ledger says of lanes and intervals."""
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
    """Return what Spark finds by joining the outputs' inputs with those that the group has passed."""
    from spark_jobs.crosscheck_pipeline import pipeline_findings
    from spark_jobs.expected_words import frame_of

    owed = spark.createDataFrame([(0, pipeline.outputs)], "case int, owed int")
    outputs, inputs = (frame_of(spark, [one.with_case(0)]) for one in (observed, consumed))
    return {one["name"]: one["count"] for one in pipeline_findings(outputs, inputs, owed).collect()}


def disagreements(mine: dict[str, int], judgement: Judgement) -> list[str]:
    """Say where Spark's findings differ from the checkers'."""
    theirs: dict[str, int] = {}
    for result in judgement.results:
        for one in result.anomalies:
            if result.property in BOTH and one.unit != "positions":
                theirs[one.name] = theirs.get(one.name, 0) + one.count
    names = sorted({*mine, *theirs} - {"inconsistent_offset", "early_read"})
    return [
        f"{name}: Spark counts {mine.get(name, 0)}, the checkers {theirs.get(name, 0)}"
        for name in names
        if mine.get(name, 0) != theirs.get(name, 0)
    ]


def observe_alone(
    spark: SparkSession, source: KafkaSource, windows: list[Window], observations: list[Observation]
) -> list[SelfEvident]:
    """Observe every run that left records in some windows, and let the records speak for themselves."""
    from spark_jobs import batch_job

    found = []
    for run, observed in batch_job.every_run(spark, source, windows).items():
        observations.append(observed.observation)
        found.append(self_evident(run, observed.observation, observed.aborted))
    return found


def self_evident(run: str, observation: Observation, aborted: int) -> SelfEvident:
    """Judge a lane's density by its highest sequence: everything below must be there."""
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
    return SelfEvident(
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
