"""State of a streaming verification on disk: one file of rows per batch.

    rows/batch-000000007.arrow    the rows that the scan of batch 7 returned
    checkpoint/                   written by Spark: offsets/7 before batch 7, commits/7 after it
    frozen.json                   the end offsets, written by the supervisor at the end of the run
    progress.jsonl                one line per batch, for the supervisor

A segment is the rows of one batch. The observation is computed from all segments with bit_or, sums, minima
and maxima. So these files are the complete state.

The driver may be killed between any two writes. Spark then repeats the batch that has no commit, over the
same offsets. The repeated batch replaces its file with the same rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from harness.base.partition_id import PartitionId
from harness.evidence.observation import Window
from spark_jobs import scan_rows as row

FINAL: Final = 1 << 30
"""Segment number of the last pass, which reads the remaining records after the stream has stopped.

It is higher than any batch number.
"""


class Segments:
    """The folder with the state of one streaming verification."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.frozen = folder / "frozen.json"
        self._rows = folder / "rows"
        self._rows.mkdir(parents=True, exist_ok=True)

    def write(self, batch: int, rows: pa.Table) -> None:
        """Write the rows of a batch atomically. If Spark repeats a batch, its file is replaced."""
        path = self.path(batch)
        temporary = path.with_suffix(".new")
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, row.SCHEMA) as out:
            out.write_table(rows)
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(path)

    def path(self, batch: int) -> Path:
        """Return the path of the file with the rows of a batch."""
        return self._rows / f"batch-{batch:010d}.arrow"

    def batches(self) -> list[int]:
        """Return the numbers of the batches that have a file, whether Spark committed them or not."""
        return sorted(int(path.stem.removeprefix("batch-")) for path in self._rows.glob("batch-*.arrow"))

    def committed(self) -> int:
        """Return the number of the last batch that Spark committed, or -1 if there is none."""
        folder = self.checkpoint / "commits"
        done = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.exists() else []
        return max(done, default=-1)

    def ends(self, windows: Sequence[Window]) -> dict[PartitionId, int]:
        """Return, for each partition, the offset up to which the committed batches have read it.

        The offsets are from Spark's checkpoint.
        """
        ends = {(window.topic, window.partition): window.start for window in windows}
        last = self.committed()
        if last >= 0:
            lines = (self.checkpoint / "offsets" / str(last)).read_text().splitlines()
            for topic, offsets in json.loads(lines[-1]).items():
                ends |= {(topic, int(partition)): offset for partition, offset in offsets.items()}
        return ends

    def read(self, upto: int) -> pa.Table:
        """Return the rows of all batches up to number `upto` and of the last pass.

        The column `segment` contains the number of the batch.
        """
        tables = []
        for batch in [number for number in self.batches() if number <= upto or number == FINAL]:
            with pa.memory_map(str(self.path(batch))) as file:
                table = pa.ipc.open_file(file).read_all()
            tables.append(table.append_column("segment", pa.array(np.full(table.num_rows, batch))))
        empty = row.SCHEMA.append(pa.field("segment", pa.int64())).empty_table()
        return pa.concat_tables([empty, *tables])

    def drop_after(self, last: int) -> None:
        """Remove the rows of batches with a number above `last`.

        Spark did not commit these batches, and the last pass reads their records again.
        """
        for batch in self.batches():
            if batch > last:
                self.path(batch).unlink()

    def freeze(self, windows: Sequence[Window]) -> None:
        """Write frozen.json, which contains the windows with their final end offsets.

        The job stops its stream when it finds this file.
        """
        temporary = self.frozen.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(list(windows)))
        temporary.replace(self.frozen)

    def frozen_windows(self) -> list[Window] | None:
        """Return the windows with their final end offsets, or None if these are not written yet."""
        if not self.frozen.exists():
            return None
        return msgspec.json.decode(self.frozen.read_bytes(), type=list[Window])
