"""Table rows about Spark during a run, from the driver's log: rows read, restarts and the longest pause."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from harness.base.unreadable import UNREADABLE

FILE: Final = "logs/spark-progress.jsonl"
_REASONS_SHOWN: Final = 5


class _ProgressLine(msgspec.Struct):
    """A line of the driver's progress log.

    The line of a batch contains the number of its rows. When the stream has reached the frozen ends, a line
    `reached` contains the number of its last batch and of all its rows. A line `second_opinion` contains the
    number of rows that the batch job read, the time it took, and the reader with the reason for it. The line
    of a restart contains the error that caused the restart.
    """

    what: str
    wall: int
    batch: int = -1
    rows: int = 0
    seconds: float = 0.0
    reader: str = ""
    reason: str = ""
    error: str = ""


def rows_of(run: Path) -> list[tuple[str, ...]]:
    """Return the rows of a table, each with a name and a value.

    There are no rows if Spark did not read during the run.
    """
    path = run / FILE
    texts = path.read_bytes().splitlines() if path.is_file() else []
    lines = [line for text in texts if (line := _decoded(text)) is not None]
    if not lines:
        return []
    last = {line.what: line for line in lines}
    if reached := last.get("reached"):
        rows = [("read by the stream", f"{reached.rows} rows in {reached.batch + 1} batches, to frozen ends")]
    else:
        read = sum(line.rows for line in lines if line.what == "batch")
        rows = [("read by the stream", f"{read} rows; it did NOT reach the frozen ends")]
    if second := last.get("second_opinion"):
        by = f", read by {second.reader}" if second.reader else ""
        why = f" ({second.reason})" if second.reason else ""
        opinion = f"{second.rows} rows in {second.seconds:g} s{by}{why}"
        rows.append(("second opinion by the batch job", opinion))
    restarts = Counter(
        line.error if line.what == "restart" else "the driver was restarted"
        for line in lines[1:]
        if line.what in ("start", "restart")
    )
    rows.append(("restarted from its checkpoint", f"{restarts.total()} times"))
    rows += [("reason", f"{why} ({count} times)") for why, count in restarts.most_common(_REASONS_SHOWN)]
    silences = [(later.wall - earlier.wall, earlier.wall) for earlier, later in pairwise(lines)]
    if silences:
        longest, since = max(silences, key=lambda silence: silence[0])
        after = (since - lines[0].wall) / 1e9
        rows.append(("longest silence", f"{longest / 1e9:.1f} s, from {after:.1f} s after its start"))
    return [*rows]


def _decoded(line: bytes) -> _ProgressLine | None:
    try:
        return msgspec.json.decode(line, type=_ProgressLine)
    except UNREADABLE:  # the line is incomplete because the driver was killed
        return None
