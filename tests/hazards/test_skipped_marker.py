"""The skipped marker: a commit is acknowledged, but its records in one partition stay unreadable.

If a partition has no leader when a transaction ends, the coordinator does not write the marker for this
partition. The transaction then stays open there until an operator ends it (docs/hazards.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from harness.base.errors import ExitCode
from harness.cli.inspect_commands import hanging
from harness.cluster.cluster import Cluster
from harness.walkthroughs.skipped_marker import ONE_LIBRARY
from tests.hazards.conftest import CHANGED, WalkedThrough, run_walkthrough

pytestmark = pytest.mark.cluster
TITLES = ONE_LIBRARY.titles


@pytest.fixture(scope="module")
def walked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalkedThrough]:
    """Run the walkthrough once. Delete its topic at the end, because it contains a hanging transaction."""
    ran = run_walkthrough(cluster, tmp_path_factory.mktemp("runs"), "skipped-marker")
    yield ran
    cluster.delete_topics([ran.topic])


@pytest.mark.parametrize("step", range(1, len(TITLES) + 1), ids=TITLES)
def test_each_step_has_its_evidence(walked: WalkedThrough, evidence: Callable[..., None], step: int) -> None:
    evidence(claims=[c.observed for c in walked.steps[step - 1].claims])
    assert walked.missing(step) == ""


def test_the_run_finds_the_hanging_transaction(walked: WalkedThrough, evidence: Callable[..., None]) -> None:
    judgement = walked.outcome.judgement
    evidence(verdict=judgement.verdict, anomalies=sorted(set(judgement.names())))
    assert {"hanging_transaction", "torn_transaction", "lost"} == set(judgement.names())
    assert walked.outcome.expected, CHANGED
    assert walked.outcome.exit_code is ExitCode.ANOMALY


def test_the_hanging_command_lists_the_remaining_transaction(
    walked: WalkedThrough, cluster: Cluster, evidence: Callable[..., None]
) -> None:
    bootstrap = cluster.bootstrap("DIRECT")
    result = CliRunner().invoke(hanging, ["--bootstrap", bootstrap, "--topic", walked.topic])
    evidence(output=result.output)
    assert result.exit_code == ExitCode.ANOMALY, result.output
    shown, way_out, count = result.output.splitlines()
    assert shown.startswith(f"{walked.topic}-2: open since offset 0")
    assert "reports double" in shown
    assert "as CompleteCommit" in shown
    assert "to free it: it was committed, and an abort would lose its records" in way_out
    assert "kafka-transactions" not in way_out
    assert count == "1 hanging in 1 topic"
