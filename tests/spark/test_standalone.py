"""The verification on a standalone Spark cluster with two workers gives the same result as in one process."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import history_files
from harness.evidence.ledger import fold
from harness.evidence.observation import Observation
from harness.witness.spark.frozen_offsets import freeze_ends
from harness.witness.spark.spark_process import Job
from harness.witness.spark.topic_verification import WITH_LEDGER
from tests.spark.planting import WANTED, counts, make, write
from tests.spark.standalone_clusters import containers, run_batch, standalone

# These tests run three JVMs of Spark in addition to seven of Kafka, so they run only with --soak.
pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.soak]


def verify_apart(cluster: Cluster, folder: Path, master: str, settings: dict[str, str]) -> Judgement:
    """Verify the same planted violations on a Spark cluster and in one process, and compare the results."""
    run = uuid.uuid4().hex[:8]
    topics = make(f"sv-{run}", flawed=True)
    ledger = fold(history_files(write(cluster, topics, run, folder / "history")))
    bootstrap = cluster.bootstrap("DIRECT")
    windows = freeze_ends(bootstrap, [topic.name for topic in topics]).windows

    def account(master: str, name: str, settings: dict[str, str]) -> Observation:
        job = Job(
            kind="batch",
            bootstrap=bootstrap,
            windows=windows,
            folder=str(folder / name),
            run=run,
            master=master,
            settings=settings,
        )
        found = run_batch(job, 300)
        found.meta.finished = 0
        return found

    apart = account(master, "apart", {"spark.executor.memory": "512m", **settings})
    local = account("local[2,4]", "local", {})
    assert repr(apart.meta) == repr(local.meta)
    assert apart.words.tobytes() == local.words.tobytes()
    judged = [judge(Evidence(ledger, [one], Expect(properties=list(WITH_LEDGER)))) for one in (apart, local)]
    assert judged[0].encode() == judged[1].encode()
    return judged[0]


def test_two_worker_processes_find_what_one_process_finds(cluster: Cluster, tmp_path: Path) -> None:
    with standalone(tmp_path / "cluster") as master:
        assert counts(verify_apart(cluster, tmp_path, master, {})) == WANTED


@pytest.mark.engine
def test_two_workers_in_containers_find_what_one_process_finds(cluster: Cluster, tmp_path: Path) -> None:
    name = f"eos-spark-{uuid.uuid4().hex[:8]}"
    with containers(name, lambda line: print(line, file=sys.stderr)) as master:
        found = verify_apart(cluster, tmp_path, master, {"spark.pyspark.python": "python3"})
        assert counts(found) == WANTED
