"""What becomes of a live job whose driver can never start."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import HarnessError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.witness.spark import stream_supervisor as live_module
from harness.witness.spark.spark_process import Job
from harness.witness.spark.stream_supervisor import MOST_IN_VAIN, StreamVerification, last_line


def test_a_driver_that_ends_by_itself_and_reads_nothing_is_given_up(tmp_path: Path) -> None:
    said: list[str] = []
    job = Job(kind="stream", bootstrap="127.0.0.1:1", windows=[], folder=str(tmp_path), run="abcd1234")
    live = StreamVerification(job, said.append)
    (tmp_path / "job.json").write_text("{}")  # a job that says nothing of what to do

    live.start()

    def given_up() -> str:
        live.watch()
        return live.given_up

    assert "missing required field" in wait_until(given_up, 60, "the driver to be given up")
    assert live.starts == MOST_IN_VAIN
    assert said[-1] == live.given_up
    with pytest.raises(HarnessError, match="read nothing") as refused:
        live.finish([])
    assert str(tmp_path / "driver.log") in refused.value.hint


def test_a_driver_that_is_killed_is_started_again_however_often(tmp_path: Path) -> None:
    job = Job(kind="stream", bootstrap="127.0.0.1:1", windows=[], folder=str(tmp_path), run="abcd1234")
    live = StreamVerification(job, lambda _: None)
    live.start()
    for _ in range(MOST_IN_VAIN + 1):
        live.kill()
        live.watch()
    assert live.pid is not None
    assert live.given_up == ""
    live.kill()


def test_who_is_in_a_hurry_does_not_wait_for_the_last_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(kind="stream", bootstrap="127.0.0.1:1", windows=[], folder=str(tmp_path), run="abcd1234")
    live = StreamVerification(job, lambda _: None)
    monkeypatch.setattr(live, "watch", lambda: None)
    monkeypatch.setattr(live_module, "HURRIED_LIMIT_S", 0.1)
    asked = iter([False, False])

    with pytest.raises(WaitTimeoutError, match="interrupted before"):
        live.finish([], limit=60, hurry=lambda: next(asked, True))


def test_the_last_line_of_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    log.write_text("noise\n" * 100_000 + "the reason\n\n")
    assert last_line(log) == "the reason"
    log.write_text("")
    assert last_line(log) == ""
