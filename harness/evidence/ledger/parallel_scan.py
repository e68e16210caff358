"""Parallel fold of the history files of a large run, with one process per core."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from typing import Final, TypeVar

from harness.evidence.history import HistoryFile

WORTH_BYTES: Final = 64 << 20
"""Total size of the histories in bytes above which a parallel fold is faster.

For smaller histories, starting the processes takes longer than the parallel fold saves.
"""

Result = TypeVar("Result")


def of_each(work: Callable[[HistoryFile], Result], histories: Sequence[HistoryFile]) -> Iterator[Result]:
    """Call a function with every file, and yield the results in the given order.

    Large files are read in parallel. At most one result per process waits, so that memory stays bounded.
    """
    readers = min(os.cpu_count() or 1, len(histories))
    if readers < 2 or sum(history.size for history in histories) < WORTH_BYTES:
        yield from map(work, histories)
        return
    # Do not fork: the caller may have threads, and the threads of a client library do not work in a forked
    # process. So spawn new processes.
    with ProcessPoolExecutor(readers, multiprocessing.get_context("spawn")) as pool:
        waiting = iter(histories)
        running: deque[Future[Result]] = deque(pool.submit(work, one) for one in islice(waiting, readers))
        while running:
            result = running.popleft().result()
            running.extend(pool.submit(work, one) for one in islice(waiting, 1))
            yield result
