"""An application under test: the correct one is valid while it is killed, and wrong lines are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import ExitCode
from harness.base.process_trees import find_tree
from harness.cluster.cluster import Cluster
from harness.evidence.app_list import AppList
from harness.evidence.run_directory import RunDirectory
from harness.run import make_run
from harness.run.run import Outcome
from harness.scenario import load
from harness.scenario.plan import draw

pytestmark = pytest.mark.cluster
EXAMPLE = Path(__file__).parents[2] / "examples" / "orders" / "orders.toml"
MISTAKES = {
    "no-rewind": "never_processed",
    "reads-uncommitted": "aborted_read",
    "output-outside": "processed_twice",
    "drops-orders": "never_processed",
}


def run_example(cluster: Cluster, folder: Path, mistake: str = "", **changes: str) -> Outcome:
    short = {"verify.witnesses": '["reader"]', "plan.duration": "8s", "app.env.MISTAKE": mistake}
    # The cluster's node tests kill brokers. Here, nearly every fault is on the application.
    scenario = load(EXAMPLE, short | {"fault.1.weight": "0.0001"} | changes)
    return make_run(cluster, scenario, draw(scenario, 3), folder).execute()


def test_a_correct_application_is_valid_for_all_witnesses(cluster: Cluster, tmp_path: Path) -> None:
    outcome = run_example(
        cluster, tmp_path, **{"verify.witnesses": '["spark", "reader", "raw-log"]', "fault.1.weight": "1.0"}
    )

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    compared = {result.property: result.compared for result in outcome.judgement.results}
    assert compared["contract"] == compared["exactly_once"] > 500
    starts = RunDirectory.open(outcome.directory).read("app.json", AppList).starts
    # "killed": a call of the application's client library may take longer than the time to stop.
    assert {start.ended for start in starts} <= {"stopped", "killed", "by a fault", "by itself"}
    assert not find_tree(f"{cluster.state.apps}/")
    assert {file.name for file in (outcome.directory / "logs").iterdir()} >= {"app-1.log", "app-2.log"}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_line_is_found_by_name(cluster: Cluster, tmp_path: Path, mistake: str) -> None:
    outcome = run_example(cluster, tmp_path, mistake)

    assert outcome.exit_code is ExitCode.ANOMALY, outcome.judgement
    (contract,) = (result for result in outcome.judgement.results if result.anomalies)
    assert contract.property == "contract"
    assert MISTAKES[mistake] in [anomaly.name for anomaly in contract.anomalies]


def test_an_application_that_exits_at_once_is_described(cluster: Cluster, tmp_path: Path) -> None:
    changes = {"app.command.1": "no-such-file.py", "app.most_restarts": "2 in 60s"}
    outcome = run_example(cluster, tmp_path, **changes)

    assert outcome.exit_code is ExitCode.UNKNOWN, outcome.judgement
    reasons = [reason for result in outcome.judgement.results for reason in result.reasons]
    assert any("the application does not run: app-1 ended with exit code 2" in reason for reason in reasons)
    assert any("no-such-file.py" in reason for reason in reasons)
