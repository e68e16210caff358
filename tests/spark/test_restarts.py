"""The verdict stays the same when the streaming driver is killed at critical moments, or all brokers stop."""

from __future__ import annotations

import random
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.checkers.verdict import judge
from harness.evidence.history import history_files
from harness.evidence.ledger import fold
from harness.evidence.observation import Observation
from harness.faults import Kill, inject
from harness.witness.plain_consumer import freeze, observe_topics
from harness.witness.spark.frozen_offsets import freeze_ends
from harness.witness.spark.spark_process import Job
from harness.witness.spark.stream_supervisor import StreamVerification
from harness.witness.spark.topic_verification import WITH_LEDGER
from tests.spark.traffic import Traffic

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

LIMIT = 240.0
OUTAGE_S = 90.0
PARTITIONS = 3


def verification(cluster: Cluster, folder: Path) -> tuple[StreamVerification, Traffic]:
    run = uuid.uuid4().hex[:8]
    topic = f"live-{run}"
    cluster.create_topic(topic, PARTITIONS)
    bootstrap = cluster.bootstrap("DIRECT")
    job = Job(
        kind="stream",
        bootstrap=bootstrap,
        windows=freeze(bootstrap, [topic]),
        folder=str(folder),
        run=run,
        most_per_batch=8000,
        trigger_s=0.2,
        quick_start=True,
        with_runs=True,
    )
    return StreamVerification(job, lambda line: print(line, file=sys.stderr)), Traffic(
        bootstrap, topic, PARTITIONS, run, 1
    )


def batches(live: StreamVerification) -> int:
    return live.segments.committed()


def until(live: StreamVerification, traffic: Traffic, condition: Callable[[], bool], what: str) -> None:
    """Write transactions until the condition is true."""

    def step() -> bool:
        live.watch()
        traffic.transaction(traffic.random.choice([1, 5, 300, 2000]))
        return condition()

    wait_until(step, LIMIT, what, every=0.0)


def close(live: StreamVerification, traffic: Traffic, folder: Path) -> Observation:
    """Finish the stream at the current end offsets, check its observation, and return it.

    The observation must equal that of a plain consumer, and must agree with the history.
    """
    topic = traffic.topic
    frozen = freeze_ends(live.job.bootstrap, [topic])
    assert not frozen.hanging
    found, batch = live.finish(frozen.windows, LIMIT)
    assert found.rows == batch.rows
    assert found.words.tobytes() == batch.words.tobytes()
    plain = observe_topics(live.job.bootstrap, [topic], traffic.run)
    assert found.words.tobytes() == plain.words.tobytes()
    assert found.meta.repeats == plain.meta.repeats
    assert found.meta.late == plain.meta.late
    ledger = fold(history_files(traffic.history(folder)))
    judgement = judge(Evidence(ledger, [found, plain], Expect(properties=list(WITH_LEDGER))))
    assert judgement.exit_code == 0, judgement.encode().decode()
    assert traffic.aborted
    return found


def between_rows_and_commit(live: StreamVerification) -> Callable[[], bool]:
    """Return a condition that holds while the rows of a batch are on disk but Spark has not committed it."""
    return lambda: any(batch > live.segments.committed() for batch in live.segments.batches())


def under_way(live: StreamVerification) -> Callable[[], bool]:
    """Return a condition that holds while Spark has planned a batch but the batch's rows are not on disk."""

    def condition() -> bool:
        planned = live.segments.checkpoint / "offsets"
        numbers = [int(path.name) for path in planned.glob("*") if path.name.isdigit()]
        return max(numbers, default=-1) > max(live.segments.batches(), default=-1)

    return condition


MOMENTS = ("rows without a commit", "a batch under way", "a start", "some batches")


def killed_when(
    live: StreamVerification, traffic: Traffic, condition: Callable[[], bool], what: str
) -> Callable[[], bool]:
    """Return a function that kills the driver once the condition holds.

    The function returns whether the condition still holds after the kill. If not, the kill came too late.
    """

    def killed() -> bool:
        until(live, traffic, condition, what)
        live.kill()
        return condition()

    return killed


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.soak)])
def test_a_killed_driver_continues_from_its_checkpoint(cluster: Cluster, tmp_path: Path, kills: int) -> None:
    live, traffic = verification(cluster, tmp_path / "job")
    chance = random.Random(20)
    live.start()
    try:
        until(live, traffic, lambda: batches(live) >= 1, "a first batch")
        for number in range(kills):
            what, before = MOMENTS[number % 4], batches(live)
            if what == "rows without a commit":
                # This is the most critical moment: the rows are on disk, but Spark has not committed the
                # batch.
                killed = killed_when(live, traffic, between_rows_and_commit(live), what)
                wait_until(killed, LIMIT, f"a kill that finds {what}", every=0)
            elif what == "a batch under way":
                killed = killed_when(live, traffic, under_way(live), what)
                wait_until(killed, LIMIT, f"a kill that finds {what}", every=0)
            elif what == "a start":
                at = time.monotonic() + chance.uniform(0, 6)
                killed_when(live, traffic, lambda at=at: time.monotonic() >= at, what)()  # type: ignore[misc]
            else:
                enough = before + chance.randint(1, 3)
                killed_when(live, traffic, lambda enough=enough: batches(live) >= enough, what)()  # type: ignore[misc]
            live.watch()
        found = close(live, traffic, tmp_path / "history")
    finally:
        live.kill()
    # The job starts once at first, and once after each kill. A kill that missed its moment was repeated, so
    # there may be more starts.
    assert live.starts > kills
    progress = live.progress(ask_brokers=False)
    assert progress is not None
    # A driver that was killed during its start did not report this start, so the reported number of restarts
    # may be too low. A query that restarts within a running driver is reported as one more restart.
    restarts = [line for line in live.lines() if line["what"] == "restart"]
    assert 0 < progress.restarts <= live.starts - 1 + len(restarts)
    assert (progress.duplicates, progress.aborted_intent) == (0, 0)
    assert found.meta.records > 0


@pytest.mark.soak
def test_transactions_of_up_to_20_000_records(cluster: Cluster, tmp_path: Path) -> None:
    """A transaction that spans several batches remains one transaction. One transaction in ten is aborted."""
    live, traffic = verification(cluster, tmp_path / "job")
    live.start()
    try:
        until(live, traffic, lambda: batches(live) >= 1, "a first batch")
        for size in [1, 20_000, 255, 256, 257, 20_000, 1, 5_000] * 5:
            live.watch()
            traffic.transaction(size)

        def followed() -> bool:
            live.watch()
            return batches(live) > 10

        wait_until(followed, LIMIT, "the large transactions to be read batch by batch")
        found = close(live, traffic, tmp_path / "history")
    finally:
        live.kill()
    # A batch has at most 8,000 offsets, so a large transaction spans several batches.
    assert found.meta.records > 250_000


@pytest.mark.soak
def test_the_stream_survives_an_outage_of_all_brokers(cluster: Cluster, tmp_path: Path) -> None:
    live, traffic = verification(cluster, tmp_path / "job")
    live.start()
    try:
        until(live, traffic, lambda: batches(live) >= 1, "a first batch")
        with inject(cluster, Kill(), "all"):
            heal_at = time.monotonic() + OUTAGE_S

            def over() -> bool:
                live.watch()
                return time.monotonic() >= heal_at

            wait_until(over, OUTAGE_S + 30, "the outage to have lasted", every=0.5)
            silent = live.progress(ask_brokers=False)
            assert silent is not None
            assert silent.silent_s > OUTAGE_S - 30  # the last batch may end in the first 30 s of the outage
        before = batches(live)
        until(live, traffic, lambda: batches(live) > before, "a batch after the outage")
        found = close(live, traffic, tmp_path / "history")
        print([line for line in live.lines() if line["what"] in ("start", "restart", "reached")])
    finally:
        live.kill()
    # The query continued, or restarted from its checkpoint, without help. Every start is in the progress
    # file.
    kinds = [line["what"] for line in live.lines()]
    assert kinds.count("start") == live.starts
    assert kinds.count("reached") == 1
    assert found.meta.records > 0
