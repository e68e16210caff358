"""The streaming job: it reads while clients write, and ends when it has reached the frozen end offsets.

The stream itself reads every record. Its state is bit words on disk (stream_segments.py). The query may fail,
for example if all brokers are down for longer than the Kafka client waits. After any failure, the job
restarts the query from the checkpoint. It gives up if no batch succeeds within a time limit.

After the stream, a batch read over the same offsets gives a second opinion. It shares no state with the
stream. The checkers compare both observations, as they do with those of all witnesses.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.evidence.observation import Observation, Window
from spark_jobs import batch_job
from spark_jobs.batch_job import complete, new_meta
from spark_jobs.frozen_windows import read_windows
from spark_jobs.kafka_source import KafkaSource, batch_log, count_outputs, read_stream, window_numbers
from spark_jobs.range_scan import collect
from spark_jobs.running_totals import RunningTotals
from spark_jobs.scan_observation import ScanObservation
from spark_jobs.scan_pass import Wanted, scan_words
from spark_jobs.spark_errors import describe_failure, spark_failures
from spark_jobs.stream_segments import Segments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S: Final = 0.2
"""Seconds between two looks at the query: at its progress, and whether it has reached the end offsets."""

PROGRESS: Final = "progress.jsonl"

DATA_LOSS: Final = "KAFKA_DATA_LOSS"
"""Error class with which Spark's Kafka source reports that offsets vanished or went back."""


@dataclass(frozen=True)
class BatchPace:
    """Pace of the stream: maximum records per batch, seconds between batches, and a time limit for restarts.

    If the query fails, the job restarts it. The job gives up if queries keep failing for longer than the
    limit and no batch succeeds in that time.
    """

    most_per_batch: int = 2_000_000
    trigger_s: float = 1.0
    restart_limit_s: float = 600.0


class Stream:
    """The streaming query of one driver process. It runs until it has reached the frozen end offsets."""

    def __init__(
        self,
        spark: SparkSession,
        source: KafkaSource,
        windows: Sequence[Window],
        wanted: Wanted,
        segments: Segments,
    ) -> None:
        self.spark = spark
        self.source = source
        self.windows = list(windows)
        self.wanted = wanted
        self.segments = segments
        self.totals = RunningTotals()
        self._numbers = window_numbers(self.windows)
        self._next: int | None = None
        self._progress = segments.folder / PROGRESS
        self._reported_batch = -1

    def batch(self, frame: DataFrame, number: int) -> None:
        """Scan one batch and write the resulting rows to the batch's file.

        If Spark repeats a batch, the same rows are written to the same file.
        """
        rows = collect(batch_log(frame, self.source, self._numbers), scan_words(self.wanted))
        if self._next != number:
            # This batch does not follow the last one of this process: it is the first batch or a repeated
            # batch. Compute the totals again from the files of the earlier batches.
            self.totals = RunningTotals()
            self.totals.add(self.segments.read(number - 1))
        self.totals.add(rows)
        self.segments.write(number, rows)
        self._next = number + 1

    def run(self, pace: BatchPace) -> None:
        """Read the stream until it has reached the end offsets that the supervisor writes.

        If the query fails, restart it from the checkpoint.
        """
        failing_since: float | None = None
        while not self.segments.reached(self.windows):
            before = self.segments.committed()
            try:
                self._run_query(pace)
            except spark_failures() as error:
                if self.segments.committed() > before or failing_since is None:
                    failing_since = time.monotonic()
                self.write_line("restart", error=describe_failure(error), batch=self.segments.committed())
                self._next = None
                if time.monotonic() - failing_since > pace.restart_limit_s:
                    raise
                if DATA_LOSS in str(error) and self.segments.frozen_windows() is not None:
                    raise  # the clients have ended, so the vanished offsets will not return

    def _run_query(self, pace: BatchPace) -> None:
        frame = read_stream(self.spark, self.source, self.windows, pace.most_per_batch)
        query: StreamingQuery = (
            frame.writeStream.foreachBatch(self.batch)
            .option("checkpointLocation", str(self.segments.checkpoint))
            .trigger(processingTime=f"{int(pace.trigger_s * 1000)} milliseconds")
            .start()
        )
        try:
            while not query.awaitTermination(LOOK_S):  # type: ignore[arg-type]
                self._write_progress(query)
                if not query.status["isTriggerActive"]:
                    self._progress.touch()  # between two triggers the query is idle: show that it is alive
                if self.segments.reached(self.windows):
                    return
        finally:
            query.stop()
            self._write_progress(query)

    def _write_progress(self, query: StreamingQuery) -> None:
        last: Any = query.lastProgress
        if last is None or last["batchId"] == self._reported_batch or not last["numInputRows"]:
            return
        self._reported_batch = last["batchId"]
        ends = [
            json.loads(s["endOffset"]) if isinstance(s["endOffset"], str) else s["endOffset"]
            for s in last["sources"]
        ]
        self.write_line(
            "batch",
            batch=last["batchId"],
            rows=last["numInputRows"],
            rows_per_s=last["processedRowsPerSecond"],
            ms=last["durationMs"],
            ends=ends[0] if ends else {},
            **self.totals.as_dict(),
        )

    def write_line(self, what: str, **more: Any) -> None:
        """Append one line to the progress file of this stream."""
        write_line(self.segments.folder, what, **more)

    def observation(self) -> Observation:
        """Return the observation of all batches that Spark committed."""
        frozen, last = self.segments.frozen_windows(), self.segments.committed()
        assert frozen is not None
        windows = read_windows(self.windows, frozen, self.segments.ends(self.windows))
        scanned = ScanObservation(new_meta("spark", windows), self.segments.read(last))
        if any(window.read_to > window.lso for window in windows):
            # The log went back, so a second scan cannot read these offsets again.
            return scanned.close_without_second_scans()
        return complete(self.spark, self.source, scanned, self.wanted)[0]


def main(
    spark: SparkSession,
    source: KafkaSource,
    windows: Sequence[Window],
    wanted: Wanted,
    *,
    folder: Path,
    pace: BatchPace,
) -> Observation:
    """Observe topics while clients write to them; return when the frozen end offsets are reached."""
    stream = Stream(spark, source, windows, wanted, Segments(folder))
    stream.write_line("start", batch=stream.segments.committed())
    stream.run(pace)
    observation = stream.observation()
    stream.write_line("reached", batch=stream.segments.committed(), rows=observation.rows)
    return observation


def second_opinion(
    spark: SparkSession,
    source: KafkaSource,
    stream: Observation,
    wanted: Wanted,
    *,
    folder: Path,
    counted: Sequence[str] = (),
) -> Observation:
    """Read the offsets that the stream has read once more, with the batch job, and return its observation.

    Also count the outputs of each input in the topics `counted`.
    """
    began = time.monotonic()
    windows = [
        Window(w.topic, w.partition, w.start, w.lso, w.hw, min(w.read_to, w.lso)) for w in stream.meta.windows
    ]
    # The checkers compare this observation with the stream's, word by word, so no sample is needed.
    batch = batch_job.main(spark, replace(source, reader="fetches"), windows, wanted)
    if counted:
        batch.origins = count_outputs(spark, source, [w for w in windows if w.topic in counted])
        batch.meta.twice.compared = int(batch.origins["n"].sum())
    seconds = round(time.monotonic() - began, 2)
    reading = batch.meta.reading
    why = {"reason": reading.reason} if reading.reason else {}
    write_line(folder, "second_opinion", rows=batch.rows, seconds=seconds, reader=reading.reader, **why)
    return batch


def write_line(folder: Path, what: str, **more: Any) -> None:
    """Append one line to the progress file in the folder of the job, which the supervisor reads."""
    line = {"what": what, "wall": time.time_ns(), "mono": time.monotonic_ns(), **more}
    with (folder / PROGRESS).open("a") as out:
        out.write(json.dumps(line) + "\n")
