"""The Spark witness of a run: a streaming job that reads the topics while the clients write them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base import processes
from harness.base.errors import HarnessError, RefusedError
from harness.base.secrets import redact
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.observation import Observation, Window
from harness.run.row_collection import RowCollection
from harness.scenario import Scenario
from harness.scenario.contract_sql import app_contract
from harness.witness.plain_consumer import WITNESS_GROUP, freeze

if TYPE_CHECKING:
    from harness.witness.spark.stream_supervisor import Readings, StreamProgress, StreamVerification

SILENT_S = 10.0
"""The job is reported as silent after this many seconds without progress, if there are records to read. A
micro-batch takes a second or two.
"""


class SparkStream:
    """Streaming job of a run; it is started only if the scenario names Spark as a witness."""

    def __init__(self, cluster: Cluster, scenario: Scenario, run_id: str) -> None:
        self._cluster = cluster
        self._scenario = scenario
        self._run_id = run_id
        self._job: StreamVerification | None = None
        self._log: Callable[[str], None] = lambda _: None

    @property
    def pids(self) -> list[int]:
        """The process id of the driver in a list; an empty list if no driver runs."""
        return [self._job.pid] if self._job is not None and self._job.pid is not None else []

    @property
    def batch_s(self) -> float:
        """Seconds that `finish` waited for the batch job, which gives the second opinion."""
        return self._job.batch_s if self._job is not None else 0.0

    def start(self, folder: Path, log: Callable[[str], None], run: Path) -> None:
        """Start Spark's driver if Spark is a witness. The driver reads each topic from its first record.

        `folder` belongs to the driver. `run` is the run directory, where outputs with rows will be.
        """
        if "spark" not in self._scenario.verify.witnesses:
            return
        from harness.witness.spark.spark_process import Job
        from harness.witness.spark.spark_session import QUICK_START_RATE
        from harness.witness.spark.stream_supervisor import StreamVerification

        bootstrap, security = self._cluster.bootstrap(BrokerListener.DIRECT), self._cluster.security
        rows = RowCollection(self._cluster, self._scenario, self._run_id, run).sources()
        job = Job(
            kind="stream",
            bootstrap=bootstrap,
            windows=freeze(bootstrap, self._scenario.written_topics, security),
            folder=str(folder),
            security=security,
            run=self._run_id,
            where="token" if self._scenario.app else "value",
            slots=slots_of(self._scenario),
            counted=[part.topic for part in self._scenario.output if part.is_topic and part.is_counted],
            contract=app_contract(self._scenario),
            rows=rows,
            quick_start=self._scenario.rate < QUICK_START_RATE,
            options={"groupIdPrefix": f"{self._cluster.prefix}{WITNESS_GROUP}-spark"},
        )
        os.environ[processes.SUPERVISED] = "1"  # so that `eos heal` finds the driver, as it finds the clients
        self._log = log
        self._job = StreamVerification(job, log)
        self._job.start()

    def contract_views(self) -> list[Observation]:
        """Return the observations that the queries of a contract made."""
        return self._job.contract_views() if self._job is not None else []

    def stop(self) -> None:
        """Kill the driver at once."""
        if self._job is not None:
            self._job.kill()

    def restart_if_dead(self) -> None:
        """Restart the driver from its checkpoint if it has died."""
        if self._job is not None:
            self._job.watch()

    def progress(self, bounds: list[Window] | None) -> tuple[str, int | None]:
        """Return a phrase that describes the progress of Spark, and the stable offsets that it has not read.

        The phrase is "" if Spark is not a witness. The number is None if it is not known.
        """
        if self._job is None:
            return "", None
        progress = self._job.progress(ask_brokers=False, bounds=bounds)
        if progress is None:
            return "starting", None
        return describe_progress(progress), progress.lag.behind_stable if progress.lag else None

    def finish(
        self, freeze_ends: Callable[[], list[Window]], logs: Path, should_stop_waiting: Callable[[], bool]
    ) -> list[Observation]:
        """Let Spark read up to the final end offsets, then copy the driver's logs into the folder `logs`.

        Return the observation of the stream and that of the batch job. If the stream does not reach the end
        offsets, both are incomplete and name the reason. The list is empty if Spark was never started.
        """
        if self._job is None:
            return []
        try:
            try:
                read_before = self._job.read_ends()
                readings = self._job.finish(freeze_ends(), hurry=should_stop_waiting, read_before=read_before)
            except RefusedError:
                raise  # a refusal ends the run and does not count as a failure of the witness
            except HarnessError as error:
                readings = self._job.partial(error.message)
            self._log(describe_readings(readings))
            return list(readings)
        finally:
            self._job.remove_scratch()
            logs.mkdir(exist_ok=True)
            for file in map(self._job.folder.joinpath, ("driver.log", "progress.jsonl")):
                if file.exists():
                    (logs / f"spark-{file.name}").write_text(redact(file.read_text(errors="replace")))


def slots_of(scenario: Scenario) -> dict[str, int]:
    """Return the slot of each output topic of the application under test."""
    topics = [part.topic for part in scenario.output if part.is_topic]
    return {topic: slot for slot, topic in enumerate(topics, start=1)}


def describe_readings(readings: Readings) -> str:
    """Return one sentence with the number of rows that came by the stream and by the batch job."""
    stream, batch = readings
    if not stream.meta.complete:
        return f"the stream read {stream.rows} rows and is incomplete: {stream.meta.detail}"
    text = f"the stream read {stream.rows} rows to the frozen ends"
    if not batch.meta.complete:
        return f"{text}, but the batch job gave no second opinion: {batch.meta.detail}"
    return f"{text}, and as a second opinion the batch job read {batch.rows} rows"


def describe_progress(progress: StreamProgress) -> str:
    """Return one phrase with records read, lag, anomalies so far, and restarts."""
    parts = [f"{progress.records} read ({progress.rows_per_s:.0f}/s)"]
    if progress.lag is None or (progress.lag.behind_stable and progress.silent_s > SILENT_S):
        parts.append(f"nothing new for {progress.silent_s:.0f} s")
    if progress.lag is not None:
        parts.append(f"{progress.lag.behind_stable} behind")
    parts.append(f"{progress.duplicates} duplicates, {progress.aborted_intent} aborted")
    if progress.restarts:
        parts.append(f"restarted {progress.restarts} times from its checkpoint")
    return ", ".join(parts)
