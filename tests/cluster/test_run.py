"""Runs from end to end: a valid one, a negative control, and interrupted ones that leave nothing behind."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.base import processes
from harness.base.errors import ExitCode
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.check_run import check_run
from harness.evidence.ledger import COMMITTED
from harness.faults.intents import unhealed
from harness.report import results
from harness.report.diagram.diagram_file import draw as draw_diagram
from harness.report.diagram.sequence import SequenceFilter
from harness.run import make_run
from harness.scenario import find, load
from harness.scenario.plan import draw
from harness.testing.plugin import Ran
from tests.finished_runs import damage_in_every_way

pytestmark = pytest.mark.cluster

# Seed for the random moments at which runs are interrupted. Each process that runs tests draws a new seed.
# The report of a failed test shows its moment as an argument of the test.
MOMENTS = random.SystemRandom().randrange(1_000_000)


def test_the_demo_is_valid_and_can_be_judged_again_to_the_same_bytes(
    cluster: Cluster, run_scenario: Callable[..., Ran], tmp_path: Path
) -> None:
    ran = run_scenario("demo")

    assert ran.outcome.exit_code is ExitCode.VALID, ran.judgement
    assert ran.outcome.expected
    committed = ran.ledger.intervals.fate == COMMITTED
    assert committed.sum() > 10
    first = {name: (ran.directory / name).read_bytes() for name in ("verdict.json", "summary.json")}
    assert check_run(ran.directory, write=True)[0] is ExitCode.VALID
    assert first == {name: (ran.directory / name).read_bytes() for name in first}
    summary = json.loads(first["summary.json"])
    assert summary["properties"]["exactly_once"]["compared"] > 1000
    assert summary["properties"]["pipeline"]["compared"] > 100
    assert (ran.directory.parent / "latest").resolve() == ran.directory.resolve()
    assert {"report.html", "events.jsonl"} <= {file.name for file in ran.directory.iterdir()}
    (line,) = results.read(ran.directory.parent.parent / results.NAME)
    assert (line.scenario, line.verdict, line.expected) == ("demo", "valid", True)
    assert [fault.bit for fault in line.faults] == [True] * 6
    assert left_behind(cluster) == []
    damage_in_every_way(ran.directory, tmp_path)


def test_the_negative_control_is_found(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Use a relative path for the runs, as a user may. The client processes have other working directories.
    monkeypatch.chdir(tmp_path)
    scenario = load(find("without-idempotence"), {"verify.witnesses": '["reader"]'})
    outcome = make_run(cluster, scenario, draw(scenario, 1), Path("runs")).execute()

    assert outcome.exit_code is ExitCode.ANOMALY, outcome.judgement
    assert outcome.judgement.names() == ["duplicate"]
    assert outcome.expected
    damage_in_every_way(outcome.directory, tmp_path / "other")


def test_single_answers_are_lost_and_the_diagram_shows_the_retries(run_scenario: Callable[..., Ran]) -> None:
    ran = run_scenario("lost-answers", verify__witnesses='["reader"]')
    drawn = draw_diagram(ran.directory, SequenceFilter(most=100_000))

    assert ran.verdict == "valid", ran.judgement
    retries = [message for message in drawn.sequence.messages if message.mark == "retry"]
    retried = {message.text.split()[0] for message in retries}
    lost = {m.text.split()[0] for m in retries if m.retry_of and m.retry_of.answer_lost}
    assert lost >= {"Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"}
    # `retried` contains the requests that a client sent again for any reason, and `lost` only those sent
    # again after a lost answer. AddPartitionsToTxn need not be in `lost`. After a lost answer, the client
    # library may send AddPartitionsToTxn with more partitions, which the diagram does not show as a retry.
    assert retried >= lost | {"AddPartitionsToTxn"}
    from_logs = {m.text.split()[0] for m in drawn.sequence.messages if m.mark == "log"}
    assert from_logs >= {"copy", "marker"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_ten_seeds_of_the_demo_are_valid(run_scenario: Callable[..., Ran], seed: int) -> None:
    ran = run_scenario("demo", seed, plan__duration="60s")

    assert ran.verdict == "valid", ran.judgement


def moments() -> list[object]:
    """Draw the moments of interruption, in seconds after the start of a run: one, or ten in a soak."""
    rng = random.Random(MOMENTS)
    drawn = [tenths / 10 for tenths in rng.sample(range(5, 141), 10)]
    marks = [(), *[pytest.mark.soak] * 9]
    # The names of tests must be equal in all processes that run tests, so they do not contain the moments.
    return [
        pytest.param(moment, marks=mark, id=f"moment{number}")
        for number, (moment, mark) in enumerate(zip(drawn, marks, strict=True), 1)
    ]


@pytest.mark.parametrize("moment", moments())
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_a_run_that_ends_early_leaves_nothing_and_can_be_checked(
    cluster: Cluster, tmp_path: Path, how: signal.Signals, moment: float
) -> None:
    where = ["--backend", cluster.record.backend, "--state", str(cluster.state.path)]
    changes = ["--set", "plan.steady=2s", "--set", 'verify.witnesses=["reader"]']
    eos = str(Path(sys.executable).with_name("eos"))
    command = [eos, "run", "demo", "--seed", "1", "--runs", str(tmp_path), *where, *changes]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        wait_until(lambda: list(tmp_path.glob("demo/*/run.json")), 30, "the run to begin")
        time.sleep(moment)  # not a wait: the run is interrupted at this moment
        run.send_signal(how)
        _, output = run.communicate(timeout=180)

    if how is signal.SIGINT:
        assert run.returncode == ExitCode.INTERRUPTED, output
        assert "interrupted" in output
    else:
        healed = subprocess.run(
            [eos, "heal", "--state", str(cluster.state.path)],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert healed.returncode == 0, healed.stderr
    assert left_behind(cluster) == []
    assert unhealed(cluster.state) == []
    cluster.wait_healthy()
    code, _ = check_run(tmp_path / "demo" / "latest")
    # After Ctrl-C, the run still reads its records back. The verdict is valid only if the interrupt came
    # after the last phase. After SIGKILL, no witness has read anything, so the verdict cannot be valid.
    allowed = (ExitCode.UNKNOWN, ExitCode.VALID) if how is signal.SIGINT else (ExitCode.UNKNOWN,)
    assert code in allowed


def left_behind(cluster: Cluster) -> list[str]:
    return [found.command for found in processes.find(cluster.state.client_mark)]
