"""The supervisor of the streaming job: it restarts the driver, gives up, or is interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import HarnessError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.evidence.observation import Findings, Meta, Observation, Window, save
from harness.witness.spark import stream_supervisor as supervisor_module
from harness.witness.spark.spark_process import OBSERVATION, SECOND_OPINION, Job
from harness.witness.spark.stream_supervisor import MAX_FAILED_STARTS, StreamVerification, last_line
from spark_jobs.stream_segments import Segments
from tests.spark.generated import RUN
from tests.unit.test_spark_segments import commit, rows

WINDOWS = [Window("t", partition, 0, 90, 90, 90) for partition in (0, 1)]


def test_a_driver_that_keeps_exiting_without_reading_is_given_up(tmp_path: Path) -> None:
    messages: list[str] = []
    job = Job(kind="stream", bootstrap="127.0.0.1:1", windows=[], folder=str(tmp_path), run="abcd1234")
    verification = StreamVerification(job, messages.append)
    (tmp_path / "job.json").write_text("{}")  # a job without its required fields

    verification.start()

    def given_up() -> str:
        verification.watch()
        return verification.given_up

    assert "missing required field" in wait_until(given_up, 60, "the driver to be given up")
    assert verification.starts == MAX_FAILED_STARTS
    assert messages[-1] == verification.given_up
    with pytest.raises(HarnessError, match="read nothing") as refused:
        verification.finish([])
    assert str(tmp_path / "driver.log") in refused.value.hint


def test_a_killed_driver_is_always_restarted(tmp_path: Path) -> None:
    job = Job(kind="stream", bootstrap="127.0.0.1:1", windows=[], folder=str(tmp_path), run="abcd1234")
    verification = StreamVerification(job, lambda _: None)
    verification.start()
    for _ in range(MAX_FAILED_STARTS + 1):
        verification.kill()
        verification.watch()
    assert verification.pid is not None
    assert verification.given_up == ""
    verification.kill()


def supervisor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> StreamVerification:
    """Return a supervisor of a job that never starts a driver."""
    job = Job(kind="stream", bootstrap="127.0.0.1:1", windows=WINDOWS, folder=str(folder), run=RUN)
    verification = StreamVerification(job, lambda _: None)
    monkeypatch.setattr(verification, "watch", lambda: None)
    return verification


def test_an_interrupted_run_does_not_wait_for_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verification = supervisor(tmp_path, monkeypatch)
    monkeypatch.setattr(supervisor_module, "INTERRUPTED_LIMIT_S", 0.1)
    answers = iter([False, False])

    with pytest.raises(WaitTimeoutError, match="interrupted while waiting for Spark's stream"):
        verification.finish(WINDOWS, limit=60, hurry=lambda: next(answers, True))


def test_an_interrupted_run_keeps_the_stream_and_does_not_wait_for_the_batch_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verification = supervisor(tmp_path, monkeypatch)
    monkeypatch.setattr(supervisor_module, "INTERRUPTED_LIMIT_S", 0.1)
    read = Meta(witness="spark", kind="spark", complete=True, foreign=Findings(count=5))
    save(Observation(read), tmp_path / OBSERVATION)

    stream, batch = verification.finish(WINDOWS, limit=60, hurry=lambda: True)

    assert (stream.meta.complete, stream.rows) == (True, 5)
    assert (batch.meta.witness, batch.meta.complete, batch.rows) == ("spark-batch", False, 0)
    assert "interrupted while waiting for Spark's batch job" in batch.meta.detail
    assert [window.read_to for window in batch.meta.windows] == [0, 0]


def test_both_readings_are_returned_once_both_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verification = supervisor(tmp_path, monkeypatch)
    for name, folder in (("spark", OBSERVATION), ("spark-batch", SECOND_OPINION)):
        save(Observation(Meta(witness=name, kind="spark", complete=True)), tmp_path / folder)
    readings = verification.finish(WINDOWS, limit=60)
    assert [(one.meta.witness, one.meta.complete) for one in readings] == [
        ("spark", True),
        ("spark-batch", True),
    ]
    assert Segments(tmp_path).frozen_windows() == WINDOWS


def test_a_stream_that_read_nothing_is_an_incomplete_witness_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verification = supervisor(tmp_path, monkeypatch)
    with pytest.raises(WaitTimeoutError):
        verification.finish(WINDOWS, limit=0)
    stream, batch = verification.partial("no driver")
    assert (stream.meta.witness, stream.meta.complete, stream.rows) == ("spark", False, 0)
    assert stream.meta.detail == "180 offsets before the frozen ends were not read: no driver"
    assert [(window.start, window.read_to, window.hw) for window in stream.meta.windows] == [
        (0, 0, 90),
        (0, 0, 90),
    ]
    assert (batch.meta.complete, batch.meta.detail) == (False, "the stream did not reach the frozen ends")


def test_a_stream_that_read_in_part_keeps_what_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verification = supervisor(tmp_path, monkeypatch)
    commit(verification.segments, 0, {"0": 0, "1": 20})
    verification.segments.write(0, rows(0, 20))
    verification.segments.write(1, rows(20, 7))  # Spark never committed this batch
    verification.segments.freeze(WINDOWS)
    stream, _ = verification.partial("too slow")
    assert (stream.meta.complete, stream.rows, stream.meta.records) == (False, 20, 20)
    assert [window.read_to for window in stream.meta.windows] == [0, 20]
    assert "160 offsets" in stream.meta.detail


def test_a_stream_without_frozen_ends_keeps_what_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verification = supervisor(tmp_path, monkeypatch)
    commit(verification.segments, 0, {"0": 90, "1": 120})
    verification.segments.write(0, rows(0, 20))
    stream, batch = verification.partial("no leader reported its end offsets")
    assert (stream.meta.complete, stream.rows) == (False, 20)
    assert stream.meta.detail == "no leader reported its end offsets"
    assert [window.read_to for window in stream.meta.windows] == [90, 120]
    assert not batch.meta.complete


def test_a_stream_with_damaged_state_read_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verification = supervisor(tmp_path, monkeypatch)
    commit(verification.segments, 0, {"0": 90, "1": 90})
    verification.segments.freeze(WINDOWS)
    stream, _ = verification.partial("it failed")
    assert (stream.meta.complete, stream.rows) == (False, 0)
    assert "Spark committed batch 0, but" in stream.meta.detail
    assert [window.read_to for window in stream.meta.windows] == [0, 0]


def test_the_last_line_of_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    log.write_text("noise\n" * 100_000 + "the reason\n\n")
    assert last_line(log) == "the reason"
    log.write_text("")
    assert last_line(log) == ""
