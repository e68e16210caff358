"""Running totals of a streaming verification, which show problems while the run is still in progress."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_jobs import scan_rows as row


@dataclass
class RunningTotals:
    """Totals of all batches so far.

    A record counts as a duplicate if it was already read, even in an earlier batch.
    """

    records: int = 0
    duplicates: int = 0
    aborted: int = 0
    foreign: int = 0
    behind: int = 0
    _bits: dict[tuple[int, ...], int] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Add the scan rows of one or several batches to the totals."""
        kinds = np.asarray(rows["kind"])
        words = rows.filter(pa.array(kinds == row.WORD))
        names = ("producer", "lane", "word", "n", "aborted", "late")
        columns = [np.asarray(words[name]).tolist() for name in names]
        bits = row.bits_of(words).tolist()
        for producer, lane, word, n, aborted, late, quarters in zip(*columns, bits, strict=True):
            new = sum(quarter << 64 * i for i, quarter in enumerate(quarters))
            key = (producer, lane, word)
            old = self._bits.get(key, 0)
            self._bits[key] = old | new
            self.records += n
            self.duplicates += n - (new & ~old).bit_count()
            self.aborted += aborted
            self.behind += late
        foreign = rows.filter(pa.array(kinds == row.FOREIGN))
        self.foreign += int(np.asarray(foreign["n"]).sum())

    def as_dict(self) -> dict[str, int]:
        """Return the totals as fields of a line in progress.jsonl."""
        return {
            "records": self.records,
            "duplicates": self.duplicates,
            "aborted_intent": self.aborted,
            "foreign": self.foreign,
            "behind": self.behind,
        }
