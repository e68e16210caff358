"""An older version of Kafka: a run is valid, and what this version lacks is left out or refused.

The oldest cluster is always one of plain processes, whatever the back end of the session: only its version
matters. Clusters with mixed versions have the back end of the session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.base.errors import CapabilityError, ExitCode, NoBiteError, RefusedError
from harness.base.waits import wait_until
from harness.cluster import lifecycle
from harness.cluster.cluster import Cluster
from harness.cluster.state_directory import BackendName, State
from harness.faults import inject
from harness.faults.rolling_upgrade import RollingUpgrade, restart_with
from harness.kafka import features
from harness.kafka.errors import KafkaAnswerError
from harness.run import make_run
from harness.scenario import find, load
from harness.scenario.plan import draw
from harness.testing.plugin import backend
from harness.walkthroughs.matrix.cases import find_cases
from harness.walkthroughs.matrix.libraries import find_libraries
from harness.walkthroughs.matrix.sweep import Sweep

pytestmark = pytest.mark.cluster

OLDEST = "3.9.2"
METADATA = "metadata.version"


@contextmanager
def cluster_of(version: str, folder: Path, on: BackendName = "process") -> Iterator[Cluster]:
    """Yield a cluster of a version of Kafka, and remove it after the block."""
    state = State(folder / "state")
    try:
        yield lifecycle.up(state, on, "quick", print, kafka=version)[0]
    finally:
        lifecycle.down(state)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(OLDEST, tmp_path_factory.mktemp("older")) as cluster:
        yield cluster


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


# Cheap to provide: one is among the harness's own packages, the other one is a download of a megabyte.
FOREIGN_CLIENTS = ("kafka-python", "aiokafka")
QUICK_CASES = ("commit and abort", "zombie", "lost commit", "late abort")


def test_foreign_clients_keep_exactly_once_there_except_after_a_late_abort(
    older: Cluster, tmp_path: Path
) -> None:
    libraries = find_libraries(FOREIGN_CLIENTS)
    attempts = list(Sweep(older, 1, tmp_path, print).attempts(libraries, find_cases(QUICK_CASES)))

    # A broker without transaction version 2 cannot refuse the late abort, whatever the client is.
    expected = {case: "exposed" if case == "late abort" else "holds" for case in QUICK_CASES}
    for library in libraries:
        own = [attempt for attempt in attempts if attempt.library == library.name]
        assert {attempt.case: attempt.mark for attempt in own} == expected, own
    assert {(attempt.kafka, attempt.transaction_version) for attempt in attempts} == {(OLDEST, 0)}
    assert all(attempt.requests["EndTxn"] < 5 for attempt in attempts)


EARLIER, LATER = "4.2.1", "4.3.1"


@pytest.fixture(scope="module")
def earlier(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(EARLIER, tmp_path_factory.mktemp("earlier"), backend(pytestconfig)) as cluster:
        yield cluster


def logged_versions(cluster: Cluster, node: str) -> list[str]:
    """Return the version that a node has logged at each of its starts."""
    return re.findall(r"Kafka version: (\S+)", cluster.node(node).log(100_000))


@pytest.mark.soak
@pytest.mark.parametrize("node", ["controller-13", "kafka-1"])
def test_a_node_runs_the_other_version_during_the_fault_only(earlier: Cluster, node: str) -> None:
    before = logged_versions(earlier, node)
    assert before[-1] == EARLIER
    with inject(earlier, RollingUpgrade(version=LATER), node):
        assert logged_versions(earlier, node) == [*before, LATER]
    assert logged_versions(earlier, node) == [*before, LATER, EARLIER]
    assert earlier.ailments() == []


@pytest.mark.soak
def test_an_upgrade_that_does_nothing_is_an_error(earlier: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RollingUpgrade, "apply", lambda *_: None)
    with pytest.raises(NoBiteError), inject(earlier, RollingUpgrade(version=LATER), "kafka-1"):
        pytest.fail("a fault without effect must not reach the block")
    with pytest.raises(NoBiteError, match=rf"runs Kafka {re.escape(EARLIER)} already"):
        inject(earlier, RollingUpgrade(version=EARLIER), "kafka-1").start()


@pytest.mark.soak
def test_nodes_are_upgraded_one_by_one_under_load_and_go_back(earlier: Cluster, tmp_path: Path) -> None:
    nodes = [node.name for node in [*earlier.brokers, *earlier.controllers]]
    before = {node: logged_versions(earlier, node) for node in nodes}
    scenario = load(find("rolling-upgrade"))
    outcome = make_run(earlier, scenario, draw(scenario, 7), tmp_path / "runs").execute()

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    for node in nodes:
        assert logged_versions(earlier, node) == [*before[node], LATER, EARLIER], node


@pytest.mark.soak
def test_after_the_upgrade_of_the_features_there_is_no_way_back(earlier: Cluster, tmp_path: Path) -> None:
    before = features.levels(earlier.admin)[METADATA]
    for node in [*earlier.controllers, *earlier.brokers]:
        restart_with(earlier, node.name, LATER)
    assert features.levels(earlier.admin)[METADATA] == before
    highest = features.supported(earlier.admin, 1)[METADATA]
    assert highest > before
    features.change(earlier.admin, METADATA, now=before, level=highest)
    wait_until(
        lambda: features.levels(earlier.admin)[METADATA] == highest, 20, "the new level of the metadata"
    )

    changes = {"plan.duration": "8s", "plan.steady": "1s", "verify.witnesses": '["reader", "raw-log"]'}
    scenario = load(find("leader-kills"), changes)
    outcome = make_run(earlier, scenario, draw(scenario, 7), tmp_path / "runs").execute()
    assert outcome.exit_code is ExitCode.VALID, outcome.judgement

    with pytest.raises(KafkaAnswerError):
        features.change(earlier.admin, METADATA, now=highest, level=before)
    assert features.levels(earlier.admin)[METADATA] == highest
