"""The supervisor of the streaming job: it restarts the driver, gives up, or is interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import HarnessError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.witness.spark import stream_supervisor as supervisor_module
from harness.witness.spark.spark_process import Job
from harness.witness.spark.stream_supervisor import MAX_FAILED_STARTS, StreamVerification, last_line


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


def test_an_interrupted_run_does_not_wait_for_the_last_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(kind="stream", bootstrap="127.0.0.1:1", windows=[], folder=str(tmp_path), run="abcd1234")
    verification = StreamVerification(job, lambda _: None)
    monkeypatch.setattr(verification, "watch", lambda: None)
    monkeypatch.setattr(supervisor_module, "INTERRUPTED_LIMIT_S", 0.1)
    answers = iter([False, False])

    with pytest.raises(WaitTimeoutError, match="interrupted before"):
        verification.finish([], limit=60, hurry=lambda: next(answers, True))


def test_the_last_line_of_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    log.write_text("noise\n" * 100_000 + "the reason\n\n")
    assert last_line(log) == "the reason"
    log.write_text("")
    assert last_line(log) == ""
