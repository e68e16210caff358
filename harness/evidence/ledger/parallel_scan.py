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
"""Total size of the histories in bytes from which parallel scanning pays off.

For smaller histories, starting the processes takes longer than they save.
"""


def scans(histories: Sequence[HistoryFile]) -> Iterator[Scan]:
    """Scan every file, in the given order; in parallel if the files are large."""
    readers = min(os.cpu_count() or 1, len(histories))
    if readers < 2 or sum(history.size for history in histories) < WORTH_BYTES:
        yield from map(scan, histories)
        return
    # Spawn processes instead of forking: the caller may run threads, and a client library's threads break in
    # a fork.
    with ProcessPoolExecutor(readers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(scan, histories)
