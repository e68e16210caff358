"""A Spark job that runs in a separate process.

The job reads its description from one file and writes its observation to other files.

Run it with `python -m harness.witness.spark.spark_process JOB.json`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import msgspec

from harness.evidence.checkers.model import AppContract
from harness.evidence.observation import Observation, Window, save
from harness.evidence.row_output import RowSource
from harness.kafka.security import PLAINTEXT, Security
from harness.witness.spark.spark_session import DEFAULT_MASTER, start_session


class Job(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Description of a job: the cluster, the windows to read, and the folder for the observation."""

    kind: Literal["batch", "stream"]
    bootstrap: str
    windows: list[Window]
    folder: str
    run: str
    where: Literal["value", "key", "header", "token"] = "value"
    slots: dict[str, int] = {}
    counted: list[str] = []
    """Output topics whose outputs the batch job counts for each input."""
    contract: AppContract | None = None
    """Contract of an application whose queries the batch job runs."""
    rows: list[RowSource] = []
    """Outputs of the application that are no topic."""
    quick_start: bool = False
    """Whether the job reads so few records that a quick start of its JVM matters more than its speed."""
    with_runs: bool = False
    purpose: Literal["all", "consumed"] = "all"
    master: str = DEFAULT_MASTER
    most_per_batch: int = 2_000_000
    trigger_s: float = 1.0
    restart_limit_s: float = 600.0
    options: dict[str, str] = {}
    settings: dict[str, str] = {}
    security: Security = PLAINTEXT


OBSERVATION = "account"
"""Name of the observation's folder in the job's folder. The observation is complete once this folder contains
meta.json.
"""
SECOND_OPINION = "second-opinion"
"""Name of the folder with the observation of the batch job that follows a streaming job.

The streaming job is done once this folder contains meta.json.
"""


CONTRACT = "contract"
"""Name of the folder with the observations that the queries of a contract made."""


SCRATCH = "scratch"
"""Name of the folder for the temporary files of Spark's JVM. It is removed with the job's folder, because a
JVM that was killed cannot remove them.
"""


def write_job(job: Job) -> Path:
    """Write the description of a job into its folder, and return the path of the file."""
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(job)))
    return path


def run_job(path: Path) -> Observation:
    """Run a job in this process. A streaming job that was killed continues from its checkpoint."""
    from spark_jobs import batch_job, contract_job, streaming_job
    from spark_jobs.kafka_source import KafkaSource
    from spark_jobs.scan_pass import Wanted

    job = msgspec.json.decode(path.read_bytes(), type=Job)
    job.security.for_java()
    drivers = [Path(jar) for row in job.rows for jar in row.driver]
    scratch = Path(job.folder) / SCRATCH
    scratch.mkdir(exist_ok=True)
    spark = start_session(
        f"eos {job.kind} {job.run}",
        job.master,
        overrides=job.settings,
        more_jars=drivers,
        quick_start=job.quick_start,
        scratch=scratch,
    )
    options = job.options | job.security.spark()
    source = KafkaSource(job.bootstrap, job.where, options, job.run, job.slots)
    wanted = Wanted(job.run, job.with_runs)
    try:
        if job.kind == "batch":
            observation = batch_job.main(spark, source, job.windows, wanted, purpose=job.purpose)
        else:
            pace = streaming_job.BatchPace(job.most_per_batch, job.trigger_s, job.restart_limit_s)
            folder = Path(job.folder)
            observation = streaming_job.main(spark, source, job.windows, wanted, folder=folder, pace=pace)
        save(observation, Path(job.folder) / OBSERVATION)
        if job.kind == "stream":
            if job.contract is not None and (job.contract.tables or job.rows):
                windows = observation.meta.windows
                views = contract_job.main(spark, source, windows, job.contract, job.rows)
                for i, view in enumerate(views):
                    save(view, Path(job.folder) / CONTRACT / str(i))
            second = streaming_job.second_opinion(
                spark, source, observation, wanted, folder=Path(job.folder), counted=job.counted
            )
            save(second, Path(job.folder) / SECOND_OPINION)
    finally:
        spark.stop()
    return observation


if __name__ == "__main__":
    run_job(Path(sys.argv[1]))
