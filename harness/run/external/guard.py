"""Guard of an external cluster: it watches the cluster during a run, and stops the run for safety.

The guard stops the run in these cases:

    - an operator has created the abort file that the cluster file names
    - the deadline has passed
    - the cluster could not be observed for BLIND_S seconds
    - too many partitions of other users are under-replicated
    - the run writes more than the limits in the cluster file allow
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from harness.base.closing import Closing
from harness.base.errors import HarnessError, describe_error
from harness.cluster.external.external_cluster import ExternalCluster
from harness.cluster.health import describe_partition
from harness.run.external.write_budget import Meter
from harness.scenario import Scenario

EVERY_S: Final = 0.25
LOOK_S: Final = 1.0
COUNT_S: Final = 5.0
"""Seconds between checks of the end offsets. These checks need a request to every leader, so they are made
less often than the checks of the metadata.
"""
BLIND_S: Final = 15.0
"""The run stops if the guard cannot observe the cluster for more than this many seconds. If one broker or
controller fails, another one takes over in less time.
"""


class Guard(Closing):
    """Thread that watches the cluster until it finds a reason to stop the run."""

    def __init__(self, cluster: ExternalCluster, scenario: Scenario, stop: Callable[[str], None]) -> None:
        self.stopped_because = ""
        self.looks = 0
        self._cluster = cluster
        self._meter = Meter(cluster, scenario)
        self._stop = stop
        self._began = self._seen = time.monotonic()
        self._looked = self._counted = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="guard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching, and write the totals to the audit log.

        The totals are the number of checks, the stored bytes and the highest rate.
        """
        self._over.set()
        self._thread.join(30)
        with suppress(HarnessError, OSError, EOFError):  # on failure, keep the previous measurement
            self._meter.look()
        counted = {"stored": self._meter.stored, "bytes_per_second": round(self._meter.fastest)}
        self._cluster.audit.note("counted", looks=self.looks, **counted)

    def _loop(self) -> None:
        while not self._over.wait(EVERY_S):
            try:
                why = self._reason()
            except Exception as error:  # noqa: BLE001  # any failure ends the guard, so the run must stop
                why = f"the guard failed: {describe_error(error)}"
            if why:
                self._end(why)
                return

    def _end(self, why: str) -> None:
        """Write the reason to the audit log and stop the run, even if the audit log cannot be written."""
        try:
            self._cluster.audit.note("stop", why=why)
        except Exception as error:  # noqa: BLE001  # for example, the disk is full
            why = f"{why} (not in the audit log: {error})"
        self.stopped_because = why
        self._stop(why)

    def _reason(self) -> str:
        """Return the reason to stop the run; empty if there is none."""
        limits = self._cluster.file.limits
        if Path(limits.abort_file).exists():
            return f"the abort file {limits.abort_file} exists"
        if time.monotonic() - self._began > limits.deadline:
            return f"the deadline of {limits.deadline} has passed"
        if time.monotonic() - self._looked < LOOK_S:
            return ""
        self._looked = time.monotonic()
        try:
            found = self._look()
        except (HarnessError, OSError, EOFError) as error:
            blind = time.monotonic() - self._seen
            return f"could not observe the cluster for {blind:.0f} s: {error}" if blind > BLIND_S else ""
        self._seen = time.monotonic()
        self.looks += 1
        return found

    def _look(self) -> str:
        limit = self._cluster.file.limits.foreign_under_replicated
        ill = self._cluster.foreign_under_replicated()
        if len(ill) > limit:
            return (
                f"{len(ill)} foreign partitions are under-replicated, such as {describe_partition(ill[0])}: "
                f"limits.foreign_under_replicated is {limit}"
            )
        if time.monotonic() - self._counted < COUNT_S:
            return ""
        self._counted = time.monotonic()
        return self._meter.look()
