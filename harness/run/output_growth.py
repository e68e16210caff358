"""Growth of an application's outputs, from which a run learns how long the application may be silent.

Without a consumer group, the outputs alone show when an application has finished: they no longer grow. An
application that starts does not write either, nor one that waits for the answer to a request. So a silence
begins only when the application is ready, and must be longer than its silences so far and than its request
time-out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

LEAST_QUIET_S: Final = 10.0
"""Least time without growth after which an application has finished, besides its request time-out."""
FACTOR: Final = 2.0
"""A later silence of an application may be longer than the longest one so far by this factor."""


class OutputGrowth:
    """Times at which the outputs have grown, and the silences between them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: object = None
        self._grew_at = clock()
        self._longest = 0.0
        self._has_grown = False

    def begin(self) -> None:
        """Begin a silence now: the application starts, or it could not write until now."""
        self._grew_at = self._clock()

    def note(self, ends: object) -> float:
        """Note the present ends of the outputs. Return for how many seconds they have not changed."""
        now = self._clock()
        if self._ends is None:
            self._ends = ends
        elif ends != self._ends:
            self._longest = max(self._longest, now - self._grew_at)
            self._ends, self._grew_at, self._has_grown = ends, now, True
        return now - self._grew_at

    def quiet_s(self, request_timeout_s: float, never_s: float) -> float:
        """Return the time without growth after which the application has finished.

        It is twice the longest silence after which the application wrote again, which includes the first
        start and the restarts during faults. It is also longer than the request time-out by `LEAST_QUIET_S`:
        a client whose request was lost is silent that long, and then sends it again. It is `never_s` if the
        application has written nothing yet, because then its silences are unknown.
        """
        if not self._has_grown:
            return never_s
        return max(FACTOR * self._longest, request_timeout_s + LEAST_QUIET_S)
