"""Supervisor of a run's streaming job. It starts the job's driver, and restarts it when it dies or hangs.

Every wait for the driver has a limit. This table derives them:

    SILENCE_LIMIT_S           300 s   longest silence of a healthy driver: its Kafka client gives up after
                                      3 x 61 s; a slow batch may follow
    FINISH_LIMIT_S            600 s   start of the driver on a loaded machine 100 s (ten times the 10 s of an
                                      idle one) + one hang of SILENCE_LIMIT_S + a second start 100 s +
                                      100 s to read (48 million records at the lowest measured rate)
    SECOND_OPINION_LIMIT_S    200 s   100 s to read, 100 s for second scans and the queries of a contract
    INTERRUPTED_LIMIT_S        30 s   both together, after the user interrupted the run: a driver that is up
                                      needs about 5 s; a driver that still starts is not worth the wait
    STOP_LIMIT_S               20 s   end of the driver's JVM after its last line of output
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from harness.base.errors import HarnessError, WaitTimeoutError, describe_error
from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.evidence.observation import Observation, Window, load
from harness.witness.plain_consumer import freeze
from harness.witness.spark.spark_process import CONTRACT, OBSERVATION, SCRATCH, SECOND_OPINION, Job, write_job
from spark_jobs.batch_job import BATCH_WITNESS, empty, new_meta
from spark_jobs.frozen_windows import frozen_ends_of, read_windows
from spark_jobs.scan_observation import ScanObservation
from spark_jobs.stream_segments import DamagedSegmentError, Segments

SILENCE_LIMIT_S: Final = 300.0
"""Longest time without progress; after it, the supervisor treats the driver as hung."""

FINISH_LIMIT_S: Final = 600.0
"""Time limit for the stream to reach the frozen ends, from the moment when they are frozen."""

SECOND_OPINION_LIMIT_S: Final = 200.0
"""Time limit for the batch job, from the moment when the stream has reached the frozen ends."""

INTERRUPTED_LIMIT_S: Final = 30.0
"""Time limit for the rest of the stream and for the batch job after the user interrupted the run."""

STOP_LIMIT_S: Final = 20.0
"""Time limit for the driver to exit by itself when it has written all its observations."""

MAX_FAILED_STARTS: Final = 3
"""The supervisor gives up after this number of consecutive driver exits without a new batch."""

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


class Readings(NamedTuple):
    """The observations of both readings of a streaming job: of its stream, and of its batch job."""

    stream: Observation
    batch: Observation


class StreamVerification:
    """Supervisor of one streaming job, which runs in a driver process."""

    def __init__(self, job: Job, log: Callable[[str], None]) -> None:
        self.job = job
        self.folder = Path(job.folder)
        self.segments = Segments(self.folder)
        self.starts = 0
        self.given_up = ""
        self.batch_s = 0.0
        """Seconds that `finish` waited for the batch job."""
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
        scratch = self.folder / SCRATCH
        scratch.mkdir(exist_ok=True)
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.witness.spark.spark_process", str(self._path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(scratch)},
            )

    def kill(self) -> None:
        """Kill the driver, its JVM and its workers with SIGKILL; all of them are in one process group."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_LIMIT_S)

    def remove_scratch(self) -> None:
        """Remove the temporary files of a driver that has ended; one that runs needs them."""
        if self.pid is None:
            shutil.rmtree(self.folder / SCRATCH, ignore_errors=True)

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
            errors = [line["error"] for line in self.lines() if line["what"] == "restart"]
            message = errors[-1] if errors else last_line(self.folder / "driver.log")
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
        """Return whether the job is done, which is when it has written both observations completely."""
        return self.stream_done() and (self.folder / SECOND_OPINION / "meta.json").exists()

    def stream_done(self) -> bool:
        """Return whether the stream has reached the frozen ends and its observation is written completely."""
        return (self.folder / OBSERVATION / "meta.json").exists()

    def read_ends(self) -> dict[PartitionId, int]:
        """Return, for each partition, the offset up to which the stream has read it and committed."""
        return self.segments.ends(self.job.windows)

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
        windows: Sequence[Window],
        limit: float = FINISH_LIMIT_S,
        hurry: Callable[[], bool] = lambda: False,
        read_before: Mapping[PartitionId, int] | None = None,
    ) -> Readings:
        """Give the job its end offsets, wait until it has read up to them, and return its observations.

        `read_before` contains the offsets that the stream had read before the end offsets were requested; see
        `read_ends`. Raise an error if the stream does not reach the end offsets. If only the batch job fails,
        its observation is incomplete and names the reason. Once `hurry()` returns true, wait at most
        INTERRUPTED_LIMIT_S longer.
        """
        frozen = frozen_ends_of(windows, read_before or {})
        self.segments.freeze(frozen)
        deadline = _Deadline(hurry)
        try:
            self._wait(self.stream_done, limit, "Spark's stream to read to the frozen ends", deadline)
        except HarnessError:
            self.kill()
            raise
        began = time.monotonic()
        try:
            waited = "Spark's batch job to read to the frozen ends"
            self._wait(self.done, SECOND_OPINION_LIMIT_S, waited, deadline)
        except HarnessError as error:
            self.kill()
            batch = unread(BATCH_WITNESS, frozen, error.message)
        else:
            self.batch_s = time.monotonic() - began
            self.stop()
            batch = load(self.folder / SECOND_OPINION)
        return Readings(load(self.folder / OBSERVATION), batch)

    def _wait(self, done: Callable[[], bool], limit: float, describe: str, deadline: _Deadline) -> None:
        hint = f"look at {self.folder}/driver.log"

        def over() -> bool:
            self.watch()
            if done():
                return True
            if self.given_up:
                raise HarnessError(self.given_up, hint)
            if deadline.passed():
                raise WaitTimeoutError(f"interrupted while waiting for {describe}", hint)
            return False

        wait_until(over, limit, describe, hint=hint)

    def contract_views(self) -> list[Observation]:
        """Return the observations that the queries of a contract made, once the job is done."""
        return [load(meta.parent) for meta in sorted((self.folder / CONTRACT).glob("*/meta.json"))]

    def partial(self, reason: str) -> Readings:
        """Return incomplete observations: what the stream has read so far, and nothing of the batch job.

        `reason` describes why the stream has not reached the end offsets that `finish` writes.
        """
        frozen = self.segments.frozen_windows() or self.job.windows
        try:
            rows, ends = self.segments.read(self.segments.committed()), self.read_ends()
        except (DamagedSegmentError, OSError) as error:
            reason = f"{reason}; {describe_error(error)}"
            rows, ends = empty(), {(window.topic, window.partition): window.start for window in frozen}
        meta = new_meta("spark", read_windows(self.job.windows, frozen, ends))
        missing = sum(max(0, window.read_to - ends[window.topic, window.partition]) for window in frozen)
        meta.complete = False
        meta.detail = (
            f"{missing} offsets before the frozen ends were not read: {reason}" if missing else reason
        )
        stream = ScanObservation(meta, rows).close_without_second_scans()
        return Readings(stream, unread(BATCH_WITNESS, frozen, "the stream did not reach the frozen ends"))

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


class _Deadline:
    """The moment at which the supervisor stops waiting because the user interrupted the run."""

    def __init__(self, hurry: Callable[[], bool]) -> None:
        self._hurry = hurry
        self._since = 0.0

    def passed(self) -> bool:
        if not self._hurry():
            return False
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since > INTERRUPTED_LIMIT_S


def unread(witness: str, windows: Sequence[Window], reason: str) -> Observation:
    """Return the observation of a witness that read nothing; `reason` describes why."""
    meta = new_meta(witness, [msgspec.structs.replace(window, read_to=window.start) for window in windows])
    meta.complete, meta.detail = False, reason
    return Observation(meta)
