"""Reads the history files of a large run side by side, one process a core."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from harness.evidence.history import HistoryFile
from harness.evidence.ledger.history_scan import Scan, scan

WORTH_BYTES: Final = 64 << 20
"""Below this the readers' start takes longer than they save."""


def scans(histories: Sequence[HistoryFile]) -> Iterator[Scan]:
    """Read every file, in the order given; side by side where there is enough to read."""
    readers = min(os.cpu_count() or 1, len(histories))
    if readers < 2 or sum(history.size for history in histories) < WORTH_BYTES:
        yield from map(scan, histories)
        return
    # Spawned, not forked: whoever calls may run threads, and a client library's do not survive a fork.
    with ProcessPoolExecutor(readers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(scan, histories)
