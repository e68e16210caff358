"""The live verification of a run: starts the streaming job, watches it, starts it again when it dies."""

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
from harness.witness.spark.spark_process import ACCOUNT, Job, write_job
from spark_jobs.stream_segments import Segments

SILENCE_LIMIT_S: Final = 300.0
"""A driver that says nothing for longer than its client's longest wait (3 x 61 s) is not coming back."""

MOST_IN_VAIN: Final = 3
"""A driver that ends by itself so often in a row without a batch would do so for ever."""

FINISH_LIMIT_S: Final = 600.0
HURRIED_LIMIT_S: Final = 30.0
"""So long the last pass may still take for a user who has asked for the end."""
STOP_LIMIT_S: Final = 20.0
_TAIL: Final = 4096


class Lag(NamedTuple):
    """How far the job is behind what can be read, and how much is written and cannot be read yet."""

    behind_stable: int
    unstable: int


class StreamProgress(NamedTuple):
    """What the job said last."""

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
    """One streaming job and its driver process."""

    def __init__(self, job: Job, report: Callable[[str], None]) -> None:
        self.job = job
        self.folder = Path(job.folder)
        self.segments = Segments(self.folder)
        self.starts = 0
        self.given_up = ""
        self._in_vain = 0
        self._committed = self.segments.committed()
        self._report = report
        self._path = write_job(job)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The driver's process id, None while none runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the driver; it goes on from the checkpoint, if there is one."""
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
        """SIGKILL the driver, its JVM and its workers: they share a session of their own."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_LIMIT_S)

    def watch(self) -> None:
        """Start the driver again if it died, or if it has said nothing for too long."""
        if self.done() or self.given_up:
            return
        if self.pid is not None and self._silence() > SILENCE_LIMIT_S:
            self._report(f"the Spark driver has said nothing for {SILENCE_LIMIT_S:.0f} s: killed")
            self.kill()
        if self.pid is None:
            self._again(self._process.returncode if self._process else 0)

    def _again(self, code: int) -> None:
        """Start a driver that ended; not one that ends by itself again and again and reads nothing."""
        committed = self.segments.committed()
        by_itself = code > 0
        self._in_vain = self._in_vain + 1 if by_itself and committed == self._committed else 0
        self._committed = committed
        if self._in_vain == MOST_IN_VAIN:
            said = last_line(self.folder / "driver.log")
            self.given_up = f"the Spark driver ended {MOST_IN_VAIN} times ({code}) and read nothing: {said}"
            self._report(self.given_up)
            return
        self._report(f"the Spark driver ended ({code}): starting it again from its checkpoint")
        self.start()

    def _silence(self) -> float:
        spoken = [p.stat().st_mtime for p in (self.folder / "progress.jsonl", self._path) if p.exists()]
        return time.time() - max(spoken, default=time.time())

    def done(self) -> bool:
        """Whether the account is written."""
        return (self.folder / ACCOUNT / "meta.json").exists()

    def lines(self) -> list[dict[str, Any]]:
        """Everything the job has said."""
        path = self.folder / "progress.jsonl"
        text = path.read_text() if path.exists() else ""
        # A killed driver may leave half a line behind.
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def progress(
        self, *, ask_brokers: bool = True, bounds: Sequence[Window] | None = None
    ) -> StreamProgress | None:
        """Return how far the job is, None before its first batch; `bounds` spare asking the brokers."""
        lines = self.lines()
        batches = [line for line in lines if line["what"] == "batch"]
        if not batches:
            return None
        last = batches[-1]
        restarts = sum(line["what"] in ("restart", "start") for line in lines) - 1
        names = ("batch", "rows", "rows_per_s", "records", "duplicates", "aborted_intent")
        said = {name: last[name] for name in names}
        silent = max(0.0, (time.time_ns() - last["wall"]) / 1e9)
        if bounds is None and ask_brokers:
            bounds = self._bounds()
        lag = _lag(last, bounds) if bounds else None
        return StreamProgress(**said, restarts=restarts, silent_s=silent, lag=lag)

    def _bounds(self) -> list[Window] | None:
        try:
            return freeze(
                self.job.bootstrap, {window.topic for window in self.job.windows}, self.job.security
            )
        except WaitTimeoutError:
            return None  # the brokers are away: what the run does to them is not the progress line's affair

    def finish(
        self,
        windows: Iterable[Window],
        limit: float = FINISH_LIMIT_S,
        hurry: Callable[[], bool] = lambda: False,
    ) -> Observation:
        """Tell the job where to end, see it through, and return its account; in a `hurry` not for long."""
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
                if time.monotonic() - hurried > HURRIED_LIMIT_S:
                    raise WaitTimeoutError("interrupted before Spark had read to the frozen ends", hint)
            return self.done()

        try:
            wait_until(over, limit, "Spark to read to the frozen ends", hint=hint)
        except WaitTimeoutError:
            self.kill()
            raise
        self.stop()
        return load(self.folder / ACCOUNT)

    def stop(self) -> None:
        """Let the driver end by itself for a while, then kill it."""
        if self._process is None:
            return
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()


def _lag(last: dict[str, Any], now: Sequence[Window]) -> Lag:
    """Return how far the last batch's ends are behind what can be read, and what cannot be read yet."""
    behind = sum(w.lso - last["ends"].get(w.topic, {}).get(str(w.partition), w.start) for w in now)
    return Lag(max(0, behind), sum(w.hw - w.lso for w in now))


def last_line(path: Path) -> str:
    """The last line of a log, however long the log is."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return file.read().decode(errors="replace").strip().rpartition("\n")[2]
