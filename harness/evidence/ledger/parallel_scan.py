"""Parallel reading of the blocks of a large history file, with one thread per core."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from harness.evidence.history import Block

WORTH_BYTES: Final = 8 << 20
"""Size of a history in bytes from which its blocks are read in parallel."""

_AHEAD: Final = 2
"""Number of blocks per thread that are read before their results are needed, to limit memory."""

Result = TypeVar("Result")


def of_each(
    work: Callable[[bytes], Result], blocks: Iterable[Block], size: int
) -> Iterator[tuple[Block, Result]]:
    """Call a function with the content of each block of a file of this size; yield the results in order.

    Threads suffice: numpy, which does most of the work, releases the interpreter's lock. New processes would
    take longer to start than a million transactions take to read, and would have to send their columns.
    """
    cores = os.cpu_count() or 1
    if cores < 2 or size < WORTH_BYTES:
        for block in blocks:
            yield block, work(block.data)
        return
    with ThreadPoolExecutor(cores) as pool:
        running: deque[tuple[Block, Future[Result]]] = deque()
        for block in blocks:
            running.append((block, pool.submit(work, block.data)))
            if len(running) > _AHEAD * cores:
                first, result = running.popleft()
                yield first, result.result()
        for first, result in running:
            yield first, result.result()
