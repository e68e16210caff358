"""What a run takes of the machine that it runs on: processor time, and memory that must not grow with it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Final

from harness.base.processes import memory_of

MEGABYTE: Final = 1 << 20
SHARE: Final = 10
"""The first and the last tenth of the looks are compared: one look says little."""


class ResourceUsage:
    """Adds up what this process takes of a core, and looks at the memory of whoever takes part."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._began_cpu = time.process_time()
        self._looks: dict[str, list[int]] = {}

    def look(self, others: Mapping[str, Sequence[int]]) -> None:
        """Note the memory of this process and, of every other kind, of the largest one and its children."""
        largest = {
            kind: max((memory_of(pid, children=True) for pid in pids), default=0)
            for kind, pids in others.items()
        }
        for kind, found in {"the run itself": memory_of(os.getpid()), **largest}.items():
            if found:
                self._looks.setdefault(kind, []).append(found)

    def told(self) -> str:
        """Say what this process takes of one core, and what memory each kind held at first and at last."""
        share = (time.process_time() - self._began_cpu) / (time.monotonic() - self._began)
        memory = [
            f"{kind} {_middle(looks[: _tenth(looks)])} and {_middle(looks[-_tenth(looks) :])} MB"
            for kind, looks in self._looks.items()
        ]
        said = [f"the run itself took {share:.1%} of a core so far"]
        return "; ".join(said + ([f"memory at first and at last: {', '.join(memory)}"] if memory else []))


def _tenth(looks: list[int]) -> int:
    return max(1, len(looks) // SHARE)


def _middle(looks: list[int]) -> int:
    return round(statistics.median(looks) / MEGABYTE)
