"""The batch job: it scans fixed offset ranges once, and doubtful words and lanes in them a second time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.evidence.bit_words import Columns
from harness.evidence.log_line import clock_id
from harness.evidence.observation import Meta, Observation, Window
from spark_jobs import scan_rows as row
from spark_jobs.kafka_source import KafkaSource, read_ranges
from spark_jobs.range_scan import collect, scan_ranges
from spark_jobs.scan_observation import ScanObservation
from spark_jobs.scan_pass import Wanted, scan_words
from spark_jobs.second_scan import scan_late, scan_outputs, scan_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_WITNESS: Final = "spark-batch"
"""Name of the witness that reads fixed offset ranges; the witness `spark` is the streaming job."""


@dataclass
class Observed:
    """An observation, with the scan rows from which it was built.

    `aborted` is the number of records that were read although their intended outcome is abort.
    """

    observation: Observation
    rows: pa.Table
    aborted: int

    def with_case(self, case: int) -> pa.Table:
        """Return the scan rows with an additional column `case`, which the functions of crosscheck.py need.

        crosscheck.py can check several ledgers at once. `case` is the number of the ledger to which these
        rows belong.
        """
        return self.rows.append_column("case", pa.array(np.full(self.rows.num_rows, case, np.int32)))


def main(
    spark: SparkSession,
    source: KafkaSource,
    windows: Sequence[Window],
    wanted: Wanted,
    *,
    witness: str = BATCH_WITNESS,
    purpose: Literal["all", "consumed"] = "all",
) -> Observation:
    """Scan each window from its `start` to its `read_to`, and return the observation.

    A window is the range of offsets to read in one partition.
    """
    return main_with_rows(spark, source, windows, wanted, new_meta(witness, windows, purpose)).observation


def main_with_rows(
    spark: SparkSession,
    source: KafkaSource,
    windows: Sequence[Window],
    wanted: Wanted,
    meta: Meta | None = None,
) -> Observed:
    """Scan the windows like `main`, but also return the scan rows, which crosscheck.py needs."""
    rows, reading = scan_ranges(spark, source, windows, scan_words(wanted))
    meta = meta or new_meta(BATCH_WITNESS, windows)
    meta.reading = reading
    return _observed(spark, source, rows, wanted, meta)


def every_run(spark: SparkSession, source: KafkaSource, windows: Sequence[Window]) -> dict[str, Observed]:
    """Scan the windows for the records of all runs, and return one observation for each run id."""
    rows, reading = scan_ranges(spark, source, windows, scan_words(Wanted(None)))
    named = pc.unique(rows["run"].drop_null()).to_pylist()
    observations = {}
    for run in sorted(named) or [""]:
        own_rows = rows.filter(pc.or_kleene(pc.equal(rows["run"], run), pc.is_null(rows["run"])))
        meta = new_meta(f"{BATCH_WITNESS} {run}".strip(), windows)
        meta.reading = reading
        observations[run] = _observed(spark, source, own_rows, Wanted(run), meta)
    return observations


def _observed(
    spark: SparkSession, source: KafkaSource, rows: pa.Table, wanted: Wanted, meta: Meta
) -> Observed:
    scanned = ScanObservation(meta, rows)
    observation, late = complete(spark, source, scanned, wanted)
    return Observed(observation, pa.concat_tables([rows, late]), scanned.aborted)


def new_meta(witness: str, windows: Sequence[Window], purpose: Literal["all", "consumed"] = "all") -> Meta:
    """Return metadata for an observation in which a witness reads every window from `start` to `read_to`."""
    return Meta(
        witness=witness,
        kind="spark",
        purpose=purpose,
        complete=all(window.start == 0 for window in windows),
        clock=clock_id(),
        finished=time.monotonic_ns(),
        windows=list(windows),
    )


def complete(
    spark: SparkSession, source: KafkaSource, scanned: ScanObservation, wanted: Wanted
) -> tuple[Observation, pa.Table]:
    """Run the second scans that are needed, and complete the observation with their results.

    There are three second scans: for repeated records, for late records, and for extra pipeline outputs. The
    result of the first scan determines which of them are needed. Also return the rows of the scan for late
    records.
    """
    doubts = scanned.doubts()
    records = late = outputs = empty()
    if doubts:
        windows = scanned.meta.windows
        if len(doubts.repeats["word"]):
            records = collect(
                read_ranges(spark, source, _narrowed(windows, scanned, doubts.repeats)),
                scan_records(wanted, doubts.words()),
            )
        if len(doubts.lanes):
            touched = set(row.unpack(doubts.lanes).window.tolist())
            held = [window if i in touched else _nothing(window) for i, window in enumerate(windows)]
            late = collect(read_ranges(spark, source, held), scan_late(wanted, doubts.lanes, doubts.earlier))
        if len(doubts.twice["word"]):
            outputs = collect(
                read_ranges(spark, source, _narrowed(windows, scanned, doubts.twice)),
                scan_outputs(wanted, doubts.inputs()),
            )
    return scanned.close(records, late, outputs), late


def empty() -> pa.Table:
    """Return a table without rows that has the columns of a scan."""
    return row.SCHEMA.empty_table()


def _nothing(window: Window) -> Window:
    return Window(window.topic, window.partition, window.start, window.lso, window.hw, window.start)


def _narrowed(windows: Sequence[Window], scanned: ScanObservation, doubtful: Columns) -> list[Window]:
    """Return each window, reduced to the offset range of its doubtful words.

    A word is doubtful if a second scan must read its records. A window without doubtful words gets an empty
    range.
    """
    ranges: dict[int, tuple[int, int]] = {}
    for window, low, high in zip(*(doubtful[name].tolist() for name in ("window", "lo", "hi")), strict=True):
        before = ranges.get(window, (low, high))
        ranges[window] = (min(low, before[0]), max(high, before[1]))
    narrowed = []
    for i, window in enumerate(windows, scanned.first_window):
        low, high = ranges.get(i, (window.start, window.start - 1))
        narrowed.append(Window(window.topic, window.partition, low, window.lso, window.hw, high + 1))
    return narrowed
