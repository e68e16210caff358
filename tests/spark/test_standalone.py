"""The same verification on a standalone cluster of two worker processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.spark.ends import freeze_ends
from harness.spark.job import Job
from harness.spark.live import run_batch
from harness.spark.standalone import standalone
from tests.spark.planting import make, write

# Three JVMs of Spark beside seven of Kafka: for a long run.
pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.soak]


def test_two_worker_processes_find_what_one_process_finds(cluster: Cluster, tmp_path: Path) -> None:
    run = "standal1"
    topics = make("sv-standalone", flawed=True)
    write(cluster, topics, run, tmp_path / "history")
    bootstrap = cluster.bootstrap("DIRECT")
    windows = freeze_ends(bootstrap, [topic.name for topic in topics]).windows

    def account(master: str, name: str) -> bytes:
        job = Job(
            kind="batch",
            bootstrap=bootstrap,
            windows=windows,
            folder=str(tmp_path / name),
            run=run,
            master=master,
        )
        job.settings = {} if master.startswith("local") else {"spark.executor.memory": "512m"}
        found = run_batch(job, 300)
        found.meta.finished = 0
        return repr(found.meta).encode() + found.words.tobytes()

    with standalone(tmp_path / "cluster") as master:
        apart = account(master, "standalone")
    assert apart == account("local[2,4]", "local")
    assert b"count=2" in apart
