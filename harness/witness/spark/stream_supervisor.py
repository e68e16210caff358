"""Supervisor of a run's streaming job. It starts the job's driver, and restarts it when it dies or hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.base.errors import HarnessError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.evidence.observation import Observation, Window, load
from harness.witness.plain_consumer import freeze
from harness.witness.spark.spark_process import OBSERVATION, Job, write_job
from spark_jobs.stream_segments import Segments

SILENCE_LIMIT_S: Final = 300.0
"""Longest time without progress; after it, the supervisor treats the driver as hung. The limit is longer
than the longest wait of the driver's Kafka client, which is 3 x 61 s.
"""

MAX_FAILED_STARTS: Final = 3
"""The supervisor gives up after this number of consecutive driver exits without a new batch."""

FINISH_LIMIT_S: Final = 600.0
INTERRUPTED_LIMIT_S: Final = 30.0
"""Time limit for the job's last pass (up to the end offsets) after the user interrupted the run."""
STOP_LIMIT_S: Final = 20.0
_TAIL: Final = 4096


class Lag(NamedTuple):
    """Number of offsets that the job has not read.

    `behind_stable` counts the offsets up to the last stable offset. `unstable` counts the offsets from the
    last stable offset up to the high watermark.
    """

    behind_stable: int
    unstable: int


class StreamProgress(NamedTuple):
    """The latest progress of the streaming job: counts of its records, its restarts, and its lag.

    `silent_s` is the number of seconds since the job reported its last batch.
    """

    batch: int
    rows: int
    rows_per_s: float
    records: int
    duplicates: int
    aborted_intent: int
    restarts: int
    silent_s: float
    lag: Lag | None


class StreamVerification:
    """Supervisor of one streaming job, which runs in a driver process."""

    def __init__(self, job: Job, log: Callable[[str], None]) -> None:
        self.job = job
        self.folder = Path(job.folder)
        self.segments = Segments(self.folder)
        self.starts = 0
        self.given_up = ""
        self._failed_starts = 0
        self._committed = self.segments.committed()
        self._log = log
        self._path = write_job(job)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the driver; None while no driver runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the driver. It continues from the checkpoint if one exists."""
        self.starts += 1
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.witness.spark.spark_process", str(self._path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the driver, its JVM and its workers with SIGKILL; all of them are in one process group."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_LIMIT_S)

    def watch(self) -> None:
        """Restart the driver if it died or made no progress for too long."""
        if self.done() or self.given_up:
            return
        if self.pid is not None and self._silence() > SILENCE_LIMIT_S:
            self._log(f"the Spark driver reported nothing for {SILENCE_LIMIT_S:.0f} s and was killed")
            self.kill()
        if self.pid is None:
            self._restart(self._process.returncode if self._process else 0)

    def _restart(self, code: int) -> None:
        """Restart the driver, unless it failed several times in a row without reading a batch."""
        committed = self.segments.committed()
        by_itself = code > 0
        self._failed_starts = self._failed_starts + 1 if by_itself and committed == self._committed else 0
        self._committed = committed
        if self._failed_starts == MAX_FAILED_STARTS:
            message = last_line(self.folder / "driver.log")
            times = f"{MAX_FAILED_STARTS} times (code {code})"
            self.given_up = f"the Spark driver exited {times} and read nothing: {message}"
            self._log(self.given_up)
            return
        self._log(f"the Spark driver exited with code {code}: restarting it from its checkpoint")
        self.start()

    def _silence(self) -> float:
        changes = [p.stat().st_mtime for p in (self.folder / "progress.jsonl", self._path) if p.exists()]
        return time.time() - max(changes, default=time.time())

    def done(self) -> bool:
        """Return whether the job is done, which is when it has written its observation completely."""
        return (self.folder / OBSERVATION / "meta.json").exists()

    def lines(self) -> list[dict[str, Any]]:
        """Return all complete lines of the progress file, decoded from JSON."""
        path = self.folder / "progress.jsonl"
        text = path.read_text() if path.exists() else ""
        # Skip an incomplete line, which a killed driver may leave.
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def progress(
        self, *, ask_brokers: bool = True, bounds: Sequence[Window] | None = None
    ) -> StreamProgress | None:
        """Return the progress of the job, or None before its first batch.

        The lag is the distance to the current end offsets in `bounds`. Without `bounds`, this method requests
        the end offsets from the brokers. If `ask_brokers` is false, it sends no request, and the lag is None.
        """
        lines = self.lines()
        batches = [line for line in lines if line["what"] == "batch"]
        if not batches:
            return None
        last = batches[-1]
        restarts = sum(line["what"] in ("restart", "start") for line in lines) - 1
        names = ("batch", "rows", "rows_per_s", "records", "duplicates", "aborted_intent")
        fields = {name: last[name] for name in names}
        silent = max(0.0, (time.time_ns() - last["wall"]) / 1e9)
        if bounds is None and ask_brokers:
            bounds = self._bounds()
        lag = _lag(last, bounds) if bounds else None
        return StreamProgress(**fields, restarts=restarts, silent_s=silent, lag=lag)

    def _bounds(self) -> list[Window] | None:
        try:
            return freeze(
                self.job.bootstrap, {window.topic for window in self.job.windows}, self.job.security
            )
        except WaitTimeoutError:
            return None  # the brokers are down, perhaps because of a fault of the run

    def finish(
        self,
        windows: Iterable[Window],
        limit: float = FINISH_LIMIT_S,
        hurry: Callable[[], bool] = lambda: False,
    ) -> Observation:
        """Give the job its end offsets, wait until it has read up to them, and return its observation.

        Once `hurry()` returns true, wait at most INTERRUPTED_LIMIT_S longer.
        """
        self.segments.freeze(list(windows))
        hint = f"look at {self.folder}/driver.log"
        hurried = 0.0

        def over() -> bool:
            nonlocal hurried
            self.watch()
            if self.given_up:
                raise HarnessError(self.given_up, hint)
            if not self.done() and hurry():
                hurried = hurried or time.monotonic()
                if time.monotonic() - hurried > INTERRUPTED_LIMIT_S:
                    raise WaitTimeoutError("interrupted before Spark had read to the frozen ends", hint)
            return self.done()

        try:
            wait_until(over, limit, "Spark to read to the frozen ends", hint=hint)
        except WaitTimeoutError:
            self.kill()
            raise
        self.stop()
        return load(self.folder / OBSERVATION)

    def stop(self) -> None:
        """Wait until the driver exits by itself; kill it after STOP_LIMIT_S."""
        if self._process is None:
            return
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()


def _lag(last: dict[str, Any], now: Sequence[Window]) -> Lag:
    """Return the job's lag, computed from its last batch and the current end offsets in `now`."""
    behind = sum(w.lso - last["ends"].get(w.topic, {}).get(str(w.partition), w.start) for w in now)
    return Lag(max(0, behind), sum(w.hw - w.lso for w in now))


def last_line(path: Path) -> str:
    """Return the last line of a log without reading the whole file."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return file.read().decode(errors="replace").strip().rpartition("\n")[2]
