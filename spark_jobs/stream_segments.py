"""State of a streaming verification on disk: one file of rows per batch.

    rows/batch-000000007.arrow    the rows that the scan of batch 7 returned
    rows/batch-000000007.json     number of records, size and SHA-256 of that file
    checkpoint/                   written by Spark: offsets/7 before batch 7, commits/7 after it
    frozen.json                   the end offsets, written by the supervisor at the end of the run
    progress.jsonl                one line per batch, for the supervisor

A segment is the rows of one batch. The observation is computed from all segments with bit_or, sums, minima
and maxima. So these files are the complete state.

The driver may be killed between any two writes. Spark then repeats the batch that has no commit, over the
same offsets. The repeated batch replaces its files with the same rows.

Spark numbers its batches from 0 without gaps, and a batch that Spark committed has both files. If one of them
is missing, or the rows differ from the recorded SHA-256, the state is damaged and no observation is made.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from harness.base.errors import HarnessError
from harness.base.partition_id import PartitionId
from harness.evidence.observation import Window
from spark_jobs import scan_rows as row


class SegmentSeal(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Number of Kafka records in a batch, and size and SHA-256 of the file with the rows of the batch."""

    records: int
    size: int
    sha256: str


class DamagedSegmentError(HarnessError):
    """An error for a committed batch whose rows are missing, or are not the rows that were written."""


class Segments:
    """The folder with the state of one streaming verification."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.frozen = folder / "frozen.json"
        self._rows = folder / "rows"
        self._rows.mkdir(parents=True, exist_ok=True)

    def write(self, batch: int, rows: pa.Table) -> None:
        """Write the rows of a batch and their seal. If Spark repeats a batch, both are replaced."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, row.SCHEMA) as out:
            out.write_table(rows)
        data = sink.getvalue().to_pybytes()
        seal = SegmentSeal(
            records=count_records(rows), size=len(data), sha256=hashlib.sha256(data).hexdigest()
        )
        path = self.path(batch)
        _replace(path, data)
        _replace(path.with_suffix(".json"), msgspec.json.encode(seal))

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
        """Return the rows of all batches from 0 up to number `upto`.

        The column `segment` contains the number of the batch. Raise DamagedSegmentError if the rows of a
        batch are missing or damaged.
        """
        empty = row.SCHEMA.append(pa.field("segment", pa.int64())).empty_table()
        return pa.concat_tables([empty, *(self._read_batch(batch) for batch in range(upto + 1))])

    def _read_batch(self, batch: int) -> pa.Table:
        path = self.path(batch)
        try:
            seal = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=SegmentSeal)
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise _damaged(f"Spark committed batch {batch}, but {error.filename} is missing") from error
        except msgspec.DecodeError as error:
            raise _damaged(f"{path.with_suffix('.json')} cannot be decoded: {error}") from error
        if len(data) != seal.size or hashlib.sha256(data).hexdigest() != seal.sha256:
            raise _damaged(f"{path} has {len(data)} bytes that differ from the {seal.size} bytes written")
        table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
        if count_records(table) != seal.records:
            raise _damaged(f"{path} has {count_records(table)} of {seal.records} records")
        return table.append_column("segment", pa.array(np.full(table.num_rows, batch, np.int64)))

    def freeze(self, windows: Sequence[Window]) -> None:
        """Write frozen.json, which contains the windows with their final end offsets.

        The job stops its stream when it has read up to these offsets.
        """
        _replace(self.frozen, msgspec.json.encode(list(windows)))

    def frozen_windows(self) -> list[Window] | None:
        """Return the windows with their final end offsets, or None if these are not written yet."""
        if not self.frozen.exists():
            return None
        return msgspec.json.decode(self.frozen.read_bytes(), type=list[Window])

    def reached(self, windows: Sequence[Window]) -> bool:
        """Return whether the committed batches have read every window up to its frozen end offset.

        `windows` are the windows that the stream reads. Return False while no end offsets are written.
        """
        frozen = self.frozen_windows()
        if frozen is None:
            return False
        ends = self.ends(windows)
        return all(ends[window.topic, window.partition] >= window.read_to for window in frozen)


def count_records(rows: pa.Table) -> int:
    """Return the number of Kafka records that a scan read, according to its rows."""
    kinds = np.asarray(rows["kind"])
    counted = (kinds == row.WORD) | (kinds == row.FOREIGN)
    return int(np.asarray(rows["n"])[counted].sum())


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically."""
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _damaged(problem: str) -> DamagedSegmentError:
    return DamagedSegmentError(problem, "the state of the streaming job is damaged: run the scenario again")
