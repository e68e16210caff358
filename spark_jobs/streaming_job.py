"""The streaming job: it reads while clients write, and ends with a last pass up to the frozen end offsets.

Its state is bit words on disk (stream_segments.py). The query may fail, for example if all brokers are down
for longer than the Kafka client waits. After any failure, the job restarts the query from the checkpoint. It
gives up if no batch succeeds within a time limit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.evidence.observation import Observation, Window
from spark_jobs.batch_job import collect, complete, new_meta
from spark_jobs.kafka_source import FrozenLog, KafkaSource, read_ranges, read_stream, window_numbers
from spark_jobs.running_totals import RunningTotals
from spark_jobs.scan_observation import ScanObservation
from spark_jobs.scan_pass import Wanted, scan_words
from spark_jobs.stream_segments import FINAL, Segments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S: Final = 0.5


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
    """The streaming query of one driver process. It runs until the supervisor writes the end offsets."""

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
        self._progress = segments.folder / "progress.jsonl"
        self._reported_batch = -1

    def batch(self, frame: DataFrame, number: int) -> None:
        """Scan one batch and write the resulting rows to the batch's file.

        If Spark repeats a batch, the same rows are written to the same file.
        """
        rows = collect(FrozenLog(frame, self._numbers), scan_words(self.wanted))
        if self._next != number:
            # This batch does not follow the last one of this process: it is the first batch or a repeated
            # batch. Compute the totals again from the files of the earlier batches.
            self.totals = RunningTotals()
            self.totals.add(self.segments.read(number - 1))
        self.totals.add(rows)
        self.segments.write(number, rows)
        self._next = number + 1

    def run(self, pace: BatchPace) -> None:
        """Read the stream until the supervisor writes the final end offsets.

        If the query fails, restart it from the checkpoint.
        """
        failing_since: float | None = None
        while self.segments.frozen_windows() is None:
            before = self.segments.committed()
            try:
                self._run_query(pace)
            except _failures() as error:
                if self.segments.committed() > before or failing_since is None:
                    failing_since = time.monotonic()
                self.write_line(
                    "restart", error=str(error).splitlines()[0][:300], batch=self.segments.committed()
                )
                self._next = None
                if time.monotonic() - failing_since > pace.restart_limit_s:
                    raise

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
                if self.segments.frozen_windows() is not None:
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
        """Append one line to the progress file, which the supervisor reads."""
        line = {"what": what, "wall": time.time_ns(), "mono": time.monotonic_ns(), **more}
        with self._progress.open("a") as out:
            out.write(json.dumps(line) + "\n")

    def last_pass(self, frozen: Sequence[Window]) -> Observation:
        """Read the records between the last committed batch and the final end offsets.

        Return the observation of all batches and of this last pass.
        """
        last = self.segments.committed()
        self.segments.drop_after(last)
        ends = self.segments.ends(self.windows)
        frozen_by_place = {(window.topic, window.partition): window for window in frozen}
        rest, whole = [], []
        for known in self.windows:
            place = (known.topic, known.partition)
            window = frozen_by_place[place]
            # The stream may have read more records than the supervisor's end offset covers, because a client
            # continued to write. These records count as well.
            end = max(window.read_to, ends[place])
            lso, hw = max(window.lso, end), max(window.hw, end)
            rest.append(Window(*place, ends[place], lso, hw, end))
            whole.append(Window(*place, known.start, lso, hw, end))
        rows = collect(read_ranges(self.spark, self.source, rest), scan_words(self.wanted))
        self.segments.write(FINAL, rows)
        self.write_line("last_pass", batch=last, records=int(sum(w.read_to - w.start for w in rest)))
        scanned = ScanObservation(new_meta("spark", whole), self.segments.read(last))
        return complete(self.spark, self.source, scanned, self.wanted)[0]


def _failures() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)


def main(
    spark: SparkSession,
    source: KafkaSource,
    windows: Sequence[Window],
    wanted: Wanted,
    *,
    folder: Path,
    pace: BatchPace,
) -> Observation:
    """Observe topics while clients write to them; return when the final end offsets are reached."""
    stream = Stream(spark, source, windows, wanted, Segments(folder))
    stream.write_line("start", batch=stream.segments.committed())
    stream.run(pace)
    frozen = stream.segments.frozen_windows()
    assert frozen is not None
    return stream.last_pass(frozen)
