"""The streaming job: it reads while the clients write, and ends with a pass to the frozen ends.

State is bit words on disk (segments.py). Any failure of the query, such as all brokers being away for
longer than the client waits, ends in a new start from the checkpoint; a limit bounds how long that may
go on without a batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.evidence.observation import Observation, Window
from spark_jobs.batch_job import collect, new_meta, settle
from spark_jobs.kafka_source import KafkaSource, Log, read_ranges, read_stream, window_numbers
from spark_jobs.running_totals import RunningTotals
from spark_jobs.scan_observation import ScanObservation
from spark_jobs.scan_pass import Wanted, scan_words
from spark_jobs.stream_segments import FINAL, Segments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S: Final = 0.5


@dataclass(frozen=True)
class Pace:
    """How large a batch may be, how often one starts, and how long nothing may succeed."""

    most_per_batch: int = 2_000_000
    trigger_s: float = 1.0
    restart_limit_s: float = 600.0


class Stream:
    """One life of the driver: from the checkpoint on, until the ends are frozen."""

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
        self.live = RunningTotals()
        self._numbers = window_numbers(self.windows)
        self._next: int | None = None
        self._progress = segments.folder / "progress.jsonl"
        self._told = -1

    def batch(self, frame: DataFrame, number: int) -> None:
        """Do one batch: scan it and keep its rows. Done again, it writes the same rows to the same file."""
        rows = collect(Log(frame, self._numbers), scan_words(self.wanted))
        if self._next != number:
            # The first batch of this life, or one that is done again: count from what is on disk.
            self.live = RunningTotals()
            self.live.add(self.segments.read(number - 1))
        self.live.add(rows)
        self.segments.write(number, rows)
        self._next = number + 1

    def run(self, pace: Pace) -> None:
        """Read until somebody freezes the ends."""
        failing_since: float | None = None
        while self.segments.frozen_windows() is None:
            before = self.segments.committed()
            try:
                self._run_query(pace)
            except _failures() as error:
                if self.segments.committed() > before or failing_since is None:
                    failing_since = time.monotonic()
                self.tell("restart", error=str(error).splitlines()[0][:300], batch=self.segments.committed())
                self._next = None
                if time.monotonic() - failing_since > pace.restart_limit_s:
                    raise

    def _run_query(self, pace: Pace) -> None:
        frame = read_stream(self.spark, self.source, self.windows, pace.most_per_batch)
        query: StreamingQuery = (
            frame.writeStream.foreachBatch(self.batch)
            .option("checkpointLocation", str(self.segments.checkpoint))
            .trigger(processingTime=f"{int(pace.trigger_s * 1000)} milliseconds")
            .start()
        )
        try:
            while not query.awaitTermination(LOOK_S):  # type: ignore[arg-type]
                self._tell_progress(query)
                if not query.status["isTriggerActive"]:
                    self._progress.touch()  # idle is not silent: between two triggers the query lives
                if self.segments.frozen_windows() is not None:
                    return
        finally:
            query.stop()
            self._tell_progress(query)

    def _tell_progress(self, query: StreamingQuery) -> None:
        last: Any = query.lastProgress
        if last is None or last["batchId"] == self._told or not last["numInputRows"]:
            return
        self._told = last["batchId"]
        ends = [
            json.loads(s["endOffset"]) if isinstance(s["endOffset"], str) else s["endOffset"]
            for s in last["sources"]
        ]
        self.tell(
            "batch",
            batch=last["batchId"],
            rows=last["numInputRows"],
            rows_per_s=last["processedRowsPerSecond"],
            ms=last["durationMs"],
            ends=ends[0] if ends else {},
            **self.live.told(),
        )

    def tell(self, what: str, **more: Any) -> None:
        """Write one line for who watches."""
        line = {"what": what, "wall": time.time_ns(), "mono": time.monotonic_ns(), **more}
        with self._progress.open("a") as out:
            out.write(json.dumps(line) + "\n")

    def last_pass(self, frozen: Sequence[Window]) -> Observation:
        """Read from the last committed batch to the frozen ends, and close the account."""
        last = self.segments.committed()
        self.segments.drop_after(last)
        ends = self.segments.ends(self.windows)
        asked = {(window.topic, window.partition): window for window in frozen}
        rest, whole = [], []
        for known in self.windows:
            place = (known.topic, known.partition)
            window = asked[place]
            # The stream may have gone beyond, where somebody went on writing: that was read as well.
            end = max(window.read_to, ends[place])
            lso, hw = max(window.lso, end), max(window.hw, end)
            rest.append(Window(*place, ends[place], lso, hw, end))
            whole.append(Window(*place, known.start, lso, hw, end))
        rows = collect(read_ranges(self.spark, self.source, rest), scan_words(self.wanted))
        self.segments.write(FINAL, rows)
        self.tell("last_pass", batch=last, records=int(sum(w.read_to - w.start for w in rest)))
        account = ScanObservation(new_meta("spark", whole), self.segments.read(last))
        return settle(self.spark, self.source, account, self.wanted)[0]


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
    pace: Pace,
) -> Observation:
    """Observe a topic while it is written; return the account once the ends are frozen and reached."""
    stream = Stream(spark, source, windows, wanted, Segments(folder))
    stream.tell("start", batch=stream.segments.committed())
    stream.run(pace)
    frozen = stream.segments.frozen_windows()
    assert frozen is not None
    return stream.last_pass(frozen)
