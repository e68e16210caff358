"""How Spark read along with a run: batches, new beginnings and silences, from what its driver has said."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "logs/spark-progress.jsonl"
_REASONS_SHOWN: Final = 5


class _Said(msgspec.Struct):
    """A line of the driver; a batch has rows, the last pass has records, a restart its error."""

    what: str
    wall: int
    rows: int = 0
    records: int = 0
    error: str = ""


def rows_of(run: Path) -> list[tuple[str, str]]:
    """What there is to tell, as names and values; nothing if Spark did not read along."""
    path = run / FILE
    lines = [
        said for line in (path.read_bytes() if path.exists() else b"").splitlines() if (said := _said(line))
    ]
    if not lines:
        return []
    batches = [line for line in lines if line.what == "batch"]
    rows = [("batches", f"{len(batches)}, {sum(batch.rows for batch in batches)} rows")]
    rows += [("last pass", f"{line.records} offsets") for line in lines if line.what == "last_pass"]
    again = Counter(
        line.error if line.what == "restart" else "the driver was started again"
        for line in lines[1:]
        if line.what in ("start", "restart")
    )
    rows.append(("begun anew", f"{again.total()} times from its checkpoint"))
    rows += [("because", f"{why} ({count} times)") for why, count in again.most_common(_REASONS_SHOWN)]
    first = lines[0].wall
    silences = [(later.wall - earlier.wall, earlier) for earlier, later in pairwise(lines)]
    if silences:
        longest, since = max(silences, key=lambda silence: silence[0])
        at = (since.wall - first) / 1e9
        rows.append(("longest silence", f"{longest / 1e9:.1f} s, {at:.1f} s after its start"))
    return rows


def _said(line: bytes) -> _Said | None:
    try:
        return msgspec.json.decode(line, type=_Said)
    except msgspec.DecodeError:  # torn: the driver was killed
        return None
