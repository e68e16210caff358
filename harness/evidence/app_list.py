"""The starts of the application under test, and how each of them ended: the file app.json.

The run writes a start into the list before it starts the instance, and the end as soon as it has observed it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Final, Literal

import msgspec

from harness.evidence.log_line import clock_id
from harness.evidence.run_directory import RunDirectory

FILE: Final = "app.json"
FORMAT: Final = 1

AppEnd = Literal["", "stopped", "by itself", "by a fault", "killed"]
"""How a start of an instance ended.

    stopped      it ended after the run had asked it to stop
    by itself    it ended although the run had not asked it to stop
    by a fault   a fault of the run ended it
    killed       it did not end within its time limit after the run had asked it to stop, so the run killed it
    (empty)      the run recorded no end
"""


class AppStart(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One start of an instance, and its end.

    `started` and `at` (the time of the end) are monotonic times in nanoseconds. `reason` is why the harness
    ended the instance, such as its memory limit, and `last_line` is the last line of its output.
    """

    instance: str
    number: int
    started: int
    ended: AppEnd = ""
    at: int = 0
    exit_code: int | None = None
    reason: str = ""
    fault: str = ""
    last_line: str = ""


class AppList(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All starts of the instances of a run, in order. `clock` is the id of the run's monotonic clock.

    `gave_up` maps an instance that the run did not restart any more to the reason.
    """

    format: int = FORMAT
    run: str
    clock: str
    starts: list[AppStart] = []
    gave_up: dict[str, str] = {}

    @property
    def restarts(self) -> dict[str, int]:
        """How often each instance was started again."""
        return {name: count - 1 for name, count in Counter(s.instance for s in self.starts).items()}


class AppListWriter:
    """Writer of app.json. It replaces the whole file after each change, and it is thread-safe."""

    def __init__(self, directory: RunDirectory, run: str) -> None:
        self._directory = directory
        self._list = AppList(run=run, clock=clock_id())
        self._lock = threading.Lock()
        self._write()

    def add(self, instance: str, number: int) -> None:
        """Add a start that the run is about to carry out."""
        with self._lock:
            self._list.starts.append(AppStart(instance=instance, number=number, started=time.monotonic_ns()))
            self._write()

    def end(
        self,
        instance: str,
        number: int,
        how: AppEnd,
        *,
        exit_code: int | None = None,
        reason: str = "",
        fault: str = "",
        last_line: str = "",
    ) -> None:
        """Record how a start ended. The first end that is recorded for a start stays."""
        with self._lock:
            for start in self._list.starts:
                if (start.instance, start.number) == (instance, number) and not start.ended:
                    start.ended, start.at, start.exit_code = how, time.monotonic_ns(), exit_code
                    start.reason, start.fault, start.last_line = reason, fault, last_line
                    self._write()

    def give_up(self, instance: str, reason: str) -> None:
        """Record that an instance is not restarted any more."""
        with self._lock:
            self._list.gave_up[instance] = reason
            self._write()

    def _write(self) -> None:
        self._directory.write(FILE, self._list)
