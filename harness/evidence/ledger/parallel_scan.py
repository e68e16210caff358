"""Parallel scan of the history files of a large run, with one process per core."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from harness.evidence.history import HistoryFile
from harness.evidence.ledger.history_scan import Scan, scan

WORTH_BYTES: Final = 64 << 20
"""Total size of the histories in bytes above which a parallel scan is faster.

For smaller histories, starting the processes takes longer than the parallel scan saves.
"""


def scans(histories: Sequence[HistoryFile]) -> Iterator[Scan]:
    """Scan every file and yield the results in the given order. Large files are scanned in parallel."""
    readers = min(os.cpu_count() or 1, len(histories))
    if readers < 2 or sum(history.size for history in histories) < WORTH_BYTES:
        yield from map(scan, histories)
        return
    # Do not fork: the caller may have threads, and the threads of a client library do not work in a forked
    # process. So spawn new processes.
    with ProcessPoolExecutor(readers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(scan, histories)
