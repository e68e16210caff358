"""Growth of an application's outputs, from which a run learns how long the application may be silent.

Without a consumer group, the outputs alone show when an application has finished: they no longer grow. An
application that has just been restarted does not write either, so the time must be longer than a restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

LEAST_QUIET_S: Final = 10.0
"""Least time without growth after which an application has finished."""
FACTOR: Final = 2.0
"""A later silence of an application may be longer than the longest one so far by this factor."""


class OutputGrowth:
    """Times at which the outputs have grown. The first silence begins with the start of the application."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: object = None
        self._grew_at = clock()
        self._longest = 0.0

    def start(self) -> None:
        """Begin the first silence: the application is about to be started."""
        self._grew_at = self._clock()

    def note(self, ends: object) -> float:
        """Note the present ends of the outputs. Return for how many seconds they have not changed."""
        now = self._clock()
        if self._ends is None:
            self._ends = ends
        elif ends != self._ends:
            self._longest = max(self._longest, now - self._grew_at)
            self._ends, self._grew_at = ends, now
        return now - self._grew_at

    @property
    def quiet_s(self) -> float:
        """Time without growth after which the application has finished.

        It is twice the longest silence after which the application wrote again, and at least
        `LEAST_QUIET_S`. The silences include the first start and the restarts during faults.
        """
        return max(LEAST_QUIET_S, FACTOR * self._longest)
