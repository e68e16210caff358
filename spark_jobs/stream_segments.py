"""State of a stream on disk: one file of rows per batch. A repeated batch replaces its file.

    rows/batch-000000007.arrow    the rows of batch 7: a segment of every partition that it read
    checkpoint/                   written by Spark: offsets/7 before batch 7, commits/7 after it
    frozen.json                   the end offsets, written by the supervisor at the end of the run
    progress.jsonl                one line per batch, for the supervisor

Rows are merged with bit_or, sums, minima and maxima, so these files are the complete state. The driver may be
killed between any two writes. Spark then repeats the batch that has no commit, over the same offsets, and
writes the same file.
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
"""Segment number of the last pass. It is higher than the number of every batch."""


class Segments:
    """The folder of one streaming verification."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.frozen = folder / "frozen.json"
        self._rows = folder / "rows"
        self._rows.mkdir(parents=True, exist_ok=True)

    def write(self, batch: int, rows: pa.Table) -> None:
        """Write the rows of a batch atomically. This replaces the file of an earlier attempt."""
        path = self.path(batch)
        temporary = path.with_suffix(".new")
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, row.SCHEMA) as out:
            out.write_table(rows)
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(path)

    def path(self, batch: int) -> Path:
        """Return the file of a batch."""
        return self._rows / f"batch-{batch:010d}.arrow"

    def batches(self) -> list[int]:
        """Return the numbers of the batches that have rows, committed or not."""
        return sorted(int(path.stem.removeprefix("batch-")) for path in self._rows.glob("batch-*.arrow"))

    def committed(self) -> int:
        """Return the number of the last batch that Spark committed, or -1 if there is none."""
        folder = self.checkpoint / "commits"
        done = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.exists() else []
        return max(done, default=-1)

    def ends(self, windows: Sequence[Window]) -> dict[PartitionId, int]:
        """Return the end offsets of the committed batches, from the checkpoint."""
        ends = {(window.topic, window.partition): window.start for window in windows}
        last = self.committed()
        if last >= 0:
            lines = (self.checkpoint / "offsets" / str(last)).read_text().splitlines()
            for topic, offsets in json.loads(lines[-1]).items():
                ends |= {(topic, int(partition)): offset for partition, offset in offsets.items()}
        return ends

    def read(self, upto: int) -> pa.Table:
        """Return the rows of all batches up to `upto` and of the last pass, with the batch as segment."""
        tables = []
        for batch in [number for number in self.batches() if number <= upto or number == FINAL]:
            with pa.memory_map(str(self.path(batch))) as file:
                table = pa.ipc.open_file(file).read_all()
            tables.append(table.append_column("segment", pa.array(np.full(table.num_rows, batch))))
        empty = row.SCHEMA.append(pa.field("segment", pa.int64())).empty_table()
        return pa.concat_tables([empty, *tables])

    def drop_after(self, last: int) -> None:
        """Remove the rows of batches after `last`: they have no commit, and the last pass repeats them."""
        for batch in self.batches():
            if batch > last:
                self.path(batch).unlink()

    def freeze(self, windows: Sequence[Window]) -> None:
        """Write the frozen end offsets, which make the job finish."""
        temporary = self.frozen.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(list(windows)))
        temporary.replace(self.frozen)

    def frozen_windows(self) -> list[Window] | None:
        """Return the end offsets, or None before they are frozen."""
        if not self.frozen.exists():
            return None
        return msgspec.json.decode(self.frozen.read_bytes(), type=list[Window])
