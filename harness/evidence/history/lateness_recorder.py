"""Record of how late a thread wakes: whether the machine lets the threads of a process run in time.

A thread sleeps for a short fixed time on the monotonic clock, again and again. On a machine with spare
processor time it wakes within a millisecond. On a machine that is too busy, it has to wait until a processor
is free, like every other thread there. So its lateness shows whether a slow answer is evidence about Kafka.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.evidence.history.lines import Lateness
from harness.evidence.log_line import timestamps

SLEEP_S: Final = 0.1
"""Time of one sleep. Ten wakes a second cost less than a thousandth of a processor."""
WINDOW_S: Final = 1.0
"""Shortest time that one line covers. A late wake makes it longer."""
PRESSURE: Final = Path("/proc/pressure/cpu")
"""Linux: time in which tasks waited for a processor. Other systems and some containers do not have it."""


class LatenessRecorder:
    """Thread that measures how late it wakes, and passes one line for each window to `write`."""

    def __init__(
        self,
        write: Callable[[Lateness], None],
        since: int,
        *,
        sleep: Callable[[float], bool] | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Begin the first window at the monotonic time `since`.

        `sleep` sleeps for some seconds, and returns True when the recorder must stop.
        """
        self._write = write
        self._stopped = threading.Event()
        self._sleep = sleep or self._stopped.wait
        self._clock = clock
        self._since = since
        self._wakes = self._largest = self._total = 0
        self._pressure = read_pressure()
        self._thread = threading.Thread(target=self.run, name="lateness", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. It writes its last window first."""
        self._stopped.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def run(self) -> None:
        """Sleep and measure until the recorder is stopped."""
        while True:
            due = self._clock() + round(SLEEP_S * 1e9)
            must_stop = self._sleep(SLEEP_S)
            woke = self._clock()
            late = max(0, woke - due)
            self._wakes += 1
            self._largest = max(self._largest, late)
            self._total += late
            if must_stop or woke - self._since >= WINDOW_S * 1e9:
                self._end_window(woke)
            if must_stop:
                return

    def _end_window(self, now: int) -> None:
        before, self._pressure = self._pressure, read_pressure()
        line = Lateness(
            since=self._since,
            wakes=self._wakes,
            largest=self._largest,
            total=self._total,
            pressure=None if before is None or self._pressure is None else self._pressure - before,
            mono=now,
            wall=timestamps()["wall"],
        )
        self._since, self._wakes, self._largest, self._total = now, 0, 0, 0
        self._write(line)


def read_pressure() -> int | None:
    """Return for how many microseconds since the boot some task waited for a processor; None if unknown."""
    try:
        first, *_ = PRESSURE.read_text().splitlines()
        kind, *fields = first.split()
        return int(dict(field.split("=") for field in fields)["total"]) if kind == "some" else None
    except (OSError, ValueError, KeyError):
        return None
