"""A wait in which only the time counts in which the machine was not starved."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.base.errors import WaitTimeoutError
from harness.base.waits import wait_until
from harness.evidence.checkers.starvation import counted_time
from harness.evidence.history import HistoryFile
from harness.evidence.ledger import scan

MOST: Final = 3.0
"""The wait takes at most this many times its limit, however starved the machine is."""


def wait_counted(
    condition: Callable[[], bool],
    limit: float,
    describe: str,
    *,
    observer: Path,
    every: float,
    wait: Callable[..., object] = wait_until,
    clock: Callable[[], int] = time.monotonic_ns,
) -> None:
    """Wait until `condition` returns True; raise WaitTimeoutError after `limit` seconds that count.

    The history of the run's observer shows which time counts. The checkers read the same record, so they
    find that the run waited long enough, unless the machine was starved for most of the time.
    """
    began = clock()
    waited, left = 0.0, limit
    while left > 0:
        try:
            wait(condition, left, describe, every=every)
        except WaitTimeoutError:
            now = clock()
            waited = (now - began) / 1e9
            counted = counted_time(scan(HistoryFile(observer)), began, now) / 1e9
            # The present second is not in the record yet: do not read the history more often than needed.
            left = min(max(limit - counted, every) if counted < limit else 0.0, MOST * limit - waited)
        else:
            return
    longer = f", {waited - limit:.0f} s of them because the machine was starved" if waited > limit + 2 else ""
    raise WaitTimeoutError(f"waited {waited:.1f} s for {describe}{longer}", "look at the application's log")
