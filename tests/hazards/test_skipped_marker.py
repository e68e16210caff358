"""The skipped marker: an acknowledged commit, a partition that nobody can read, and what frees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from harness.base.errors import ExitCode
from harness.cli.inspect import hanging
from harness.cluster.cluster import Cluster
from harness.walkthroughs.skipped_marker import TITLES
from tests.hazards.conftest import WalkedThrough, run_flow

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def flow(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalkedThrough]:
    """One run of the flow; what hangs in its topic at the end is removed with it."""
    ran = run_flow(cluster, tmp_path_factory.mktemp("runs"), "skipped-marker")
    yield ran
    cluster.delete_topics([ran.topic])


@pytest.mark.parametrize("step", range(1, len(TITLES) + 1), ids=TITLES)
def test_each_step_has_seen_what_it_tells(
    flow: WalkedThrough, evidence: Callable[..., None], step: int
) -> None:
    evidence(claims=[c.observed for c in flow.steps[step - 1].claims])
    assert flow.missing(step) == ""


def test_the_run_names_what_hangs(flow: WalkedThrough, evidence: Callable[..., None]) -> None:
    judgement = flow.outcome.judgement
    evidence(verdict=judgement.verdict, anomalies=sorted(set(judgement.names())))
    assert {"hanging_transaction", "torn_transaction", "lost"} == set(judgement.names())
    assert flow.outcome.expected
    assert flow.outcome.exit_code is ExitCode.ANOMALY


def test_one_command_shows_what_is_left(
    flow: WalkedThrough, cluster: Cluster, evidence: Callable[..., None]
) -> None:
    bootstrap = cluster.bootstrap("DIRECT")
    said = CliRunner().invoke(hanging, ["--bootstrap", bootstrap, "--topic", flow.topic])
    evidence(said=said.output)
    assert said.exit_code == ExitCode.ANOMALY, said.output
    shown, count = said.output.splitlines()
    assert shown.startswith(f"{flow.topic}-2: open from offset 0 on")
    assert "says of double" in shown
    assert "CompleteCommit" in shown
    assert count == "1 hanging in 1 topics"
