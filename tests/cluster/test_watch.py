"""`eos watch` on a cluster: valid rounds leave no topics, and a broken client is an alert."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.base.errors import ExitCode
from harness.base.waits import wait_until
from harness.cli.main import cli
from harness.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster


def watch(cluster: Cluster, folder: Path, *arguments: str) -> Result:
    state = ["--state", str(cluster.state.path), "--runs", str(folder)]
    return CliRunner().invoke(cli, ["watch", *state, "--round", "3s", "--set", "plan.steady=1s", *arguments])


def topics(cluster: Cluster) -> set[str]:
    return {partition.topic for partition in cluster.admin.metadata(None).partitions}


def test_a_valid_round_is_a_line_with_counters_and_leaves_no_topic(cluster: Cluster, tmp_path: Path) -> None:
    before = topics(cluster)
    file = tmp_path / "eos.prom"
    done = watch(cluster, tmp_path / "runs", "--rounds", "1", "--metrics", str(file))

    assert done.exit_code == ExitCode.VALID, done.output
    (line,) = [json.loads(text) for text in done.stdout.splitlines()]
    assert (line["verdict"], line["anomalies"], line["reasons"]) == ("valid", {}, [])
    assert line["records"] > 50
    assert line["transactions"] > 5
    assert 'eos_watch_rounds_total{verdict="valid"} 1' in file.read_text()
    # The brokers acknowledge the deletion of a topic a moment before they apply it.
    wait_until(lambda: topics(cluster) <= before, 10, "the topics of the round to be deleted")


def test_a_client_that_breaks_its_promise_ends_the_watch(cluster: Cluster, tmp_path: Path) -> None:
    bug = ["--set", "workload.0.planted_bug=double-send", "--set", "workload.0.rate=200"]
    done = watch(cluster, tmp_path / "runs", *bug)

    assert done.exit_code == ExitCode.ANOMALY, done.output
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["verdict"] == "invalid"
    assert "duplicate" in last["anomalies"]
    assert (Path(last["directory"]) / "report.html").exists()


@pytest.mark.soak
def test_a_request_to_stop_ends_the_round_and_the_watch(cluster: Cluster, tmp_path: Path) -> None:
    places = ["--state", str(cluster.state.path), "--runs", str(tmp_path)]
    command = [sys.executable, "-m", "harness", "watch", *places, "--round", "60s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        events = wait_until(lambda: list(tmp_path.glob("canary/*/events.jsonl")), 60, "a run")
        wait_until(lambda: '"phase"' in events[0].read_text(), 30, "its first phase")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)

    (line,) = [json.loads(text) for text in output.splitlines()]
    assert (process.returncode, line["interrupted"]) == (ExitCode.INTERRUPTED, True)
