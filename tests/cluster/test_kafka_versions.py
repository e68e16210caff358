"""An older version of Kafka: a run is valid, and what this version lacks is left out or refused.

The cluster is always one of plain processes, whatever the back end of the session: only its version matters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.base.errors import CapabilityError, ExitCode, RefusedError
from harness.cluster import lifecycle
from harness.cluster.cluster import Cluster
from harness.cluster.state_directory import State
from harness.kafka import features
from harness.run import make_run
from harness.scenario import find, load
from harness.scenario.plan import draw

pytestmark = pytest.mark.cluster

OLDEST = "3.9.2"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    state = State(tmp_path_factory.mktemp("older") / "state")
    try:
        yield lifecycle.up(state, "process", "quick", print, kafka=OLDEST)[0]
    finally:
        lifecycle.down(state)


def test_every_node_runs_this_version_and_lacks_what_the_table_declares(older: Cluster) -> None:
    for node in [*older.brokers, *older.controllers]:
        assert f"Kafka version: {OLDEST}" in node.log(5000), node.name
    assert features.TRANSACTION_VERSION not in features.levels(older.admin)
    properties = (older.state.nodes / "kafka-1" / "server.properties").read_text()
    assert "transaction.state.log.min.isr=2" in properties
    assert "share.coordinator" not in properties


def test_a_run_on_an_older_version_is_valid_and_names_it(older: Cluster, tmp_path: Path) -> None:
    changes = {"plan.duration": "8s", "plan.steady": "1s", "verify.witnesses": '["reader", "raw-log"]'}
    scenario = load(find("leader-kills"), changes)
    outcome = make_run(older, scenario, draw(scenario, 7), tmp_path).execute()

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    summary = json.loads((outcome.directory / "summary.json").read_bytes())
    assert summary["kafka"] == OLDEST
    assert summary["properties"]["exactly_once"]["compared"] > 1000
    assert f"Kafka {OLDEST}" in (outcome.directory / "report.html").read_text()
    assert f"--kafka {OLDEST}" in (outcome.directory / "events.jsonl").read_text()


def test_a_scenario_that_needs_more_is_refused_before_anything_is_started(
    older: Cluster, tmp_path: Path
) -> None:
    scenario = load(find("delayed-endtxn-control"))
    with pytest.raises(CapabilityError, match=r"endtxn_control .* needs transaction\.version"):
        make_run(older, scenario, draw(scenario, 1), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_running_cluster_is_not_used_for_another_version(older: Cluster) -> None:
    with pytest.raises(RefusedError, match=f"a cluster with Kafka {OLDEST} runs in"):
        lifecycle.up(older.state, "process", "quick", print, kafka="4.1.2")
    assert lifecycle.up(older.state, "process", "quick", print)[1] is False
