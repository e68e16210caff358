"""The commands of the documentation that need a cluster, run as they are printed.

The commands of a page run in the order of the page, in one folder, as a reader would type them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from harness.base.errors import ExitCode
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.record import LaneEncoder
from harness.scenario import find, load
from tests.doc_commands import CLUSTER, OWN, ROOT, SOAK, commands_to_run

pytestmark = pytest.mark.cluster

BIN = Path(sys.executable).parent
RECORDS = 1000


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the reader works: it has the examples and the virtual environment."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("examples", "Makefile"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(BIN.parent)
    (folder / "eos-harness").symlink_to(ROOT)  # where a job in continuous integration has it
    return folder


@pytest.fixture
def orders(cluster: Cluster) -> Iterator[None]:
    """Make the topic that the pages name, with records that carry an identity."""
    name = "orders"
    cluster.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap(BrokerListener.DIRECT), "linger.ms": 20})
    for value in LaneEncoder("readers1", 1, 0).batch(0, RECORDS, 1, "c"):
        producer.produce(name, value, partition=0)
    assert producer.flush(60) == 0
    yield
    cluster.delete_topics([name])


def run(text: str, cluster: Cluster, desk: Path, limit: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a command line of a page in a shell; the reader's address replaces HOST:PORT."""
    return subprocess.run(
        ["/bin/sh", "-c", text.replace("HOST:PORT", cluster.bootstrap(BrokerListener.DIRECT).split(",")[0])],
        cwd=desk,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "EOS_STATE": str(cluster.state.path)},
    )


def expected_code(words: list[str]) -> int:
    """Return the exit code that the scenario of an `eos run` promises."""
    scenario = load(find(words[2])) if not words[2].endswith(".toml") else None
    invalid = scenario is not None and scenario.scenario.expect == "invalid"
    mistake = any(word.startswith("app.env.MISTAKE") for word in words)
    cure = any(word.endswith("idempotence=true") for word in words)
    harmed = (invalid and not cure) or mistake
    return ExitCode.ANOMALY if harmed and "--expected" not in words else ExitCode.VALID


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("text", commands_to_run(CLUSTER))
def test_a_short_command_runs_as_printed(cluster: Cluster, desk: Path, text: str) -> None:
    done = run(text, cluster, desk)

    assert "Traceback" not in done.stderr
    if text.startswith("eos verify"):
        assert f"{RECORDS} records in 1 lanes" in done.stdout
    if text.startswith("eos hanging"):
        (found, topics), *_ = re.findall(r"^(\d+) hanging in (\d+) topics?", done.stdout, re.MULTILINE)
        assert int(topics) > 0
        assert done.returncode == (ExitCode.ANOMALY if int(found) else ExitCode.VALID)
    elif text.startswith("eos audit"):
        assert "orders" in done.stdout or "compared" in done.stdout, done.stdout
    else:
        assert done.returncode == ExitCode.VALID, done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("text", commands_to_run(SOAK))
def test_a_long_command_runs_as_printed(cluster: Cluster, desk: Path, text: str) -> None:
    words = text.split()
    if "mine.toml" in words and not (desk / "mine.toml").exists():
        assert run("eos new mine.toml", cluster, desk).returncode == 0
    if words[:2] == ["eos", "shrink"]:
        assert run("eos run without-idempotence", cluster, desk).returncode == ExitCode.ANOMALY

    done = run(text, cluster, desk, limit=3600)

    wanted = expected_code(words) if words[1] == "run" else ExitCode.VALID
    assert done.returncode == wanted, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.soak
@pytest.mark.parametrize("text", commands_to_run(OWN))
def test_a_command_with_a_cluster_of_its_own_runs_as_printed(desk: Path, tmp_path: Path, text: str) -> None:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "EOS_STATE": str(tmp_path / "state")}
    folder = ROOT if text.startswith("make") else desk

    done = subprocess.run(
        ["/bin/sh", "-c", text],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        env=environment,
    )

    assert done.returncode == ExitCode.VALID, done.stdout[-2000:] + done.stderr[-2000:]
