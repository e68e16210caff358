"""An application under test: the correct one is valid while it is killed, and wrong lines are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.base.errors import ExitCode
from harness.base.process_trees import find_tree
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
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


def run_faults(cluster: Cluster, folder: Path, faults: str, **changes: str) -> Outcome:
    """Run the example with these faults, written as lines of TOML, and with the plain consumer alone."""
    text = EXAMPLE.read_text().partition("[plan]")[0]
    (folder / "app.py").write_text(EXAMPLE.with_name("app.py").read_text())
    (folder / "faults.toml").write_text(f"{text}[plan]\nsteady = '3s'\nduration = '4s'\n{faults}")
    scenario = load(folder / "faults.toml", {"verify.witnesses": '["reader"]'} | changes)
    return make_run(cluster, scenario, draw(scenario, 3), folder).execute()


def bites(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """Return what each fault of a run measured, by its name."""
    lines = (outcome.directory / "events.jsonl").read_text().splitlines()
    return {e["fault"]: e["bite"] for e in map(json.loads, lines) if e["event"] == "injected"}


def test_faults_on_an_application_bite_and_leave_it_valid(cluster: Cluster, tmp_path: Path) -> None:
    outcome = run_faults(
        cluster,
        tmp_path,
        """
        [[fault]]
        fault = "mute_client"
        target = "app(app-1)"
        at = "0s"
        lasts = "1s"
        [[fault]]
        fault = "scale_app"
        to = 3
        target = "app(*)"
        at = "1s"
        lasts = "1s"
        [[fault]]
        fault = "pause_app"
        target = "app(*)"
        pause = "300ms"
        at = "2s"
        lasts = "2s"
        """,
    )

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    measured = bites(outcome)
    assert measured["mute_client"]["session_ms"] == 6000
    assert measured["mute_client"]["muted"] == ["app-1"]
    assert measured["mute_client"]["removed_members"] == 1
    assert measured["scale_app"]["instances"] == ["app-1", "app-2", "app-3"]
    assert set(measured) == {"mute_client", "scale_app", "pause_app"}


@pytest.mark.soak
@pytest.mark.parametrize("past", ["session", "transaction"])
def test_an_application_is_frozen_until_a_coordinator_gives_it_up(
    cluster: Cluster, tmp_path: Path, past: str
) -> None:
    outcome = run_faults(
        cluster,
        tmp_path,
        f"""
        [[fault]]
        fault = "freeze_app"
        target = "app(*)"
        past = "{past}"
        at = "0s"
        lasts = "1s"
        [[fault]]
        fault = "jitter"
        target = "all"
        latency = "30ms"
        throughout = true
        [[fault]]
        fault = "roll_app"
        target = "app(*)"
        at = "1s"
        lasts = "1s"
        """,
    )

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    measured = bites(outcome)
    assert measured["freeze_app"]["aborted" if past == "transaction" else "removed_members"]
    assert measured["roll_app"]["restarted"] == ["app-1", "app-2"]


def test_an_application_that_bypasses_the_proxies_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    direct = cluster.bootstrap(BrokerListener.DIRECT)
    outcome = run_example(cluster, tmp_path, **{"app.env.BOOTSTRAP": direct, "app.env.UNUSED": "{bootstrap}"})

    assert outcome.exit_code is ExitCode.REFUSED
    events = (outcome.directory / "events.jsonl").read_text()
    assert any(f"is connected to {address} " in events for address in direct.split(","))
