"""The observation of each proposal (KIP) on a cluster, and one that differs."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from harness.base.errors import ExitCode
from harness.cli.main import cli
from harness.cluster.cluster import Cluster
from harness.faults import FeatureLevel, inject
from harness.provision.java import jdk_problem
from harness.walkthroughs.kips import KIPS, observe

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

WITH_JAVA = {679, 691, 1319}


@pytest.mark.parametrize("number", KIPS)
def test_every_answer_is_the_expected_one(number: int, cluster: Cluster) -> None:
    if number in WITH_JAVA:
        assert jdk_problem() is None
    seen = observe(KIPS[number], cluster)

    assert seen
    assert [line for line in seen if not line.same] == []


def test_a_different_answer_is_shown_and_is_exit_code_1(cluster: Cluster) -> None:
    command = ["kip", "890", "--json", "--state", str(cluster.state.path)]
    with inject(cluster, FeatureLevel(level=1), "all"):
        done = CliRunner().invoke(cli, command)

    assert done.exit_code == ExitCode.ANOMALY, done.output
    different = [line["what"] for line in json.loads(done.stdout)["seen"] if not line["same"]]
    assert different[0] == "transaction.version"
