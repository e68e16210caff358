"""What the stream keeps on disk: one file of rows a batch, which a batch done again simply replaces.

    rows/batch-000000007.arrow    the rows of batch 7: a segment of every partition that it touched
    checkpoint/                   Spark's own: offsets/7 is written before batch 7, commits/7 after it
    frozen.json                   the ends to read to: written by the supervisor when the run is over
    progress.jsonl                a line a batch, for who watches

Rows are united by bit_or, sums, minima and maxima, so a file is all the state there is. The driver may be
killed between any two of these writes: a batch without its commit is done again, over the same offsets,
and writes the same file.
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
"""Segment of what the last pass read: after every batch."""


class Segments:
    """The folder of one streaming verification."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.frozen = folder / "frozen.json"
        self._rows = folder / "rows"
        self._rows.mkdir(parents=True, exist_ok=True)

    def write(self, batch: int, rows: pa.Table) -> None:
        """Keep the rows of a batch: the file appears whole, in place of one from an earlier attempt."""
        path = self.path(batch)
        temporary = path.with_suffix(".new")
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, row.SCHEMA) as out:
            out.write_table(rows)
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(path)

    def path(self, batch: int) -> Path:
        """Return where the rows of a batch stand."""
        return self._rows / f"batch-{batch:010d}.arrow"

    def batches(self) -> list[int]:
        """List the batches that left rows, committed or not."""
        return sorted(int(path.stem.removeprefix("batch-")) for path in self._rows.glob("batch-*.arrow"))

    def committed(self) -> int:
        """Return the last batch that Spark committed, -1 if there is none."""
        folder = self.checkpoint / "commits"
        done = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.exists() else []
        return max(done, default=-1)

    def ends(self, windows: Sequence[Window]) -> dict[PartitionId, int]:
        """Return how far the committed batches read, from the checkpoint's own log."""
        ends = {(window.topic, window.partition): window.start for window in windows}
        last = self.committed()
        if last >= 0:
            lines = (self.checkpoint / "offsets" / str(last)).read_text().splitlines()
            for topic, found in json.loads(lines[-1]).items():
                ends |= {(topic, int(partition)): offset for partition, offset in found.items()}
        return ends

    def read(self, upto: int) -> pa.Table:
        """Return the rows of all batches up to one, each with the segment that it is."""
        tables = []
        for batch in [one for one in self.batches() if one <= upto or one == FINAL]:
            with pa.memory_map(str(self.path(batch))) as file:
                table = pa.ipc.open_file(file).read_all()
            tables.append(table.append_column("segment", pa.array(np.full(table.num_rows, batch))))
        empty = row.SCHEMA.append(pa.field("segment", pa.int64())).empty_table()
        return pa.concat_tables([empty, *tables])

    def drop_after(self, last: int) -> None:
        """Remove the rows of a batch that was begun and never committed: the last pass reads it anew."""
        for batch in self.batches():
            if batch > last:
                self.path(batch).unlink()

    def freeze(self, windows: Sequence[Window]) -> None:
        """Tell the job where to end."""
        temporary = self.frozen.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(list(windows)))
        temporary.replace(self.frozen)

    def frozen_windows(self) -> list[Window] | None:
        """Return where to end, once somebody has said."""
        if not self.frozen.exists():
            return None
        return msgspec.json.decode(self.frozen.read_bytes(), type=list[Window])
