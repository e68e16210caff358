"""Processor time and memory that a run uses on the machine of the harness."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Final

from harness.base.processes import memory_of

MEGABYTE: Final = 1 << 20
APP_MEMORY: Final = "the largest instance of the application"
SHARE: Final = 10
"""Number of equal parts into which the samples are divided. The memory at the start of a run is the median
of the first part. The memory at its end is the median of the last part. Single samples vary too much.
"""


class ResourceUsage:
    """Resource use of a run: memory of every kind of process, and processor time of the run's own process."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._began_cpu = time.process_time()
        self._samples: dict[str, list[int]] = {}

    def sample(self, pids: Mapping[str, Sequence[int]]) -> None:
        """Sample the memory of this process, and of the largest process of each other kind.

        `pids` maps the name of a kind of process, such as the clients, to the ids of its processes. The
        memory of such a process includes its child processes. The memory of this process does not include
        child processes.
        """
        largest = {
            kind: max((memory_of(pid, children=True) for pid in group), default=0)
            for kind, group in pids.items()
        }
        for kind, memory in {"the run itself": memory_of(os.getpid()), **largest}.items():
            if memory:
                self._samples.setdefault(kind, []).append(memory)

    def describe(self) -> str:
        """Describe in one line the processor time and the memory that the run has used.

        The processor time is a share of one core. The memory of each kind of process is given for the start
        and for the end of the run.
        """
        share = (time.process_time() - self._began_cpu) / (time.monotonic() - self._began)
        memory = []
        for kind, samples in self._samples.items():
            tenth = max(1, len(samples) // SHARE)
            first, last = (
                round(statistics.median(part) / MEGABYTE) for part in (samples[:tenth], samples[-tenth:])
            )
            memory.append(f"{kind} {first} and {last} MB")
        text = f"the run itself took {share:.1%} of a core so far"
        return f"{text}; memory at the start and at the end: {', '.join(memory)}" if memory else text
