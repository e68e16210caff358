"""Start, reuse, refusal and removal of clusters, even after the harness was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.base.errors import RefusedError
from harness.base.waits import wait_until
from harness.cluster import lifecycle
from harness.cluster.cluster import Cluster
from harness.cluster.state_directory import ClusterRecord, State
from harness.faults import Jitter, inject
from harness.faults.intents import open_journal, unhealed

pytestmark = pytest.mark.cluster

# A Python script that injects the given fault, as the harness does, and then waits until the test kills it.
INJECTOR = """
import sys, threading
from pathlib import Path
from harness.cluster.lifecycle import attach
from harness.cluster.state_directory import State
from harness import faults
with faults.inject(attach(State(Path(sys.argv[1]))), eval("faults." + sys.argv[2]), sys.argv[3]):
    print("injected", flush=True)
    threading.Event().wait()
"""

FAULTS = [
    ("Jitter(latency_ms=100)", "all"),
    # Run Down only in a soak, because Jitter already covers faults that use Toxiproxy.
    pytest.param("Down()", "kafka-1", marks=pytest.mark.soak),
    ("Kill()", "kafka-2"),
    ("Pause()", "kafka-3"),
    pytest.param("Partition()", "kafka-1", marks=pytest.mark.needs("partition")),
]


def eos(*arguments: str, state: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("eos")), *arguments, "--state", str(state)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(("fault", "target"), FAULTS)
def test_heal_cleans_up_after_a_harness_that_was_killed_during_a_fault(
    cluster: Cluster, fault: str, target: str
) -> None:
    command = [sys.executable, "-c", INJECTOR, str(cluster.state.path), fault, target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as injector:
        assert injector.stdout is not None
        assert injector.stdout.readline() == "injected\n"
        injector.send_signal(signal.SIGKILL)
    # A cut between idle brokers changes the cluster's health only after a while. So for the fault Partition,
    # a closed link is sufficient proof.
    assert cluster.ailments() or cluster.links.open_to("kafka-1", ["kafka-2"]) == {"kafka-2": False}
    assert len(unhealed(cluster.state)) == 1
    assert "not healed" in eos("doctor", state=cluster.state.path).stdout

    healed = eos("heal", state=cluster.state.path)

    assert healed.returncode == 0, healed.stderr
    assert "healthy" in healed.stderr
    assert cluster.lasting_ailments() == []
    assert unhealed(cluster.state) == []
    assert "nothing to heal" in eos("heal", state=cluster.state.path).stderr


def test_a_second_up_starts_nothing(cluster: Cluster) -> None:
    """Compare the process ids before and after a second `eos up`, but do not check its duration.

    `make bench-startup` measures the duration on an idle machine.
    """
    before = {name: node.status().pid for name, node in cluster.nodes.items()}

    again = eos("up", "--backend", cluster.record.backend, state=cluster.state.path)

    assert again.returncode == 0, again.stderr
    assert "already up after" in again.stderr
    assert {name: node.status().pid for name, node in cluster.nodes.items()} == before


def test_another_kind_of_cluster_is_refused(cluster: Cluster) -> None:
    other = {"compose": "process", "process": "compose"}[cluster.record.backend]

    refused = eos("up", "--backend", other, state=cluster.state.path)

    assert refused.returncode == 5
    assert "another kind" in refused.stderr
    assert "hint: run `eos down` first" in refused.stderr


def test_a_second_command_at_the_same_time_is_refused(cluster: Cluster) -> None:
    with (
        cluster.state.locked("down"),
        pytest.raises(RefusedError, match=r"`eos down` \(process \d+\) is changing"),
    ):
        lifecycle.up(cluster.state, cluster.record.backend, "quick", lambda _: None)


def test_status_shows_nodes_roles_and_ailments(cluster: Cluster) -> None:
    shown = eos("status", state=cluster.state.path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("running") == 7
    assert "active controller" in shown.stdout

    cluster.toxiproxy.set_enabled("proxied-2", enabled=False)
    ailing = eos("status", state=cluster.state.path)
    cluster.toxiproxy.set_enabled("proxied-2", enabled=True)

    assert ailing.returncode == 2
    assert "problem: proxy proxied-2 is down" in ailing.stdout


def test_logs_of_a_node(cluster: Cluster) -> None:
    shown = eos("logs", "kafka-1", "--lines", "20", state=cluster.state.path).stdout
    assert len(shown.splitlines()) == 20
    assert "INFO" in shown
    unknown = eos("logs", "kafka-9", state=cluster.state.path)
    assert unknown.returncode == 4
    assert "the nodes are" in unknown.stderr


def cycle(state: State, backend: str) -> None:
    """Start a cluster, check it, remove it, and check that nothing is left."""
    cluster, started = lifecycle.up(state, backend, "quick", lambda _: None)  # type: ignore[arg-type]
    try:
        assert started
        assert cluster.lasting_ailments() == []
    finally:
        assert lifecycle.down(state)
    assert cluster.backend.leftovers() == []
    assert sorted(path.name for path in state.path.iterdir()) == ["lock"]


def test_a_second_cluster_leaves_nothing_after_its_removal(cluster: Cluster, tmp_path: Path) -> None:
    cycle(State(tmp_path / "second"), cluster.record.backend)
    assert cluster.lasting_ailments() == []


@pytest.mark.soak
def test_fifteen_cycles_leave_nothing(cluster: Cluster, tmp_path: Path) -> None:
    for _ in range(15):
        cycle(State(tmp_path / "second"), cluster.record.backend)


def test_up_removes_an_earlier_start_that_was_killed(cluster: Cluster, tmp_path: Path) -> None:
    state = State(tmp_path / "second")
    record = cut_short(state, cluster.record.backend)
    assert not record.whole
    assert "was interrupted" in eos("doctor", state=state.path).stdout

    assert eos("down", state=state.path).returncode == 0

    assert lifecycle.make_backend(state, record).leftovers() == []


def cut_short(state: State, backend: str) -> ClusterRecord:
    """Kill `eos up` after it has started some nodes; return the ClusterRecord from the state directory."""
    command = [str(Path(sys.executable).with_name("eos")), "up", "--backend", backend]
    with subprocess.Popen([*command, "--state", str(state.path)], stderr=subprocess.DEVNULL) as starting:
        wait_until(lambda: _something_runs(state), 60, "the start to have started something")
        os.kill(starting.pid, signal.SIGKILL)
    record = state.load()
    assert record is not None
    return record


def _something_runs(state: State) -> bool:
    record = state.load()
    return record is not None and len(lifecycle.make_backend(state, record).leftovers()) > 3


def test_commands_without_a_cluster_are_refused_with_a_hint(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for command in (["status"], ["heal"], ["logs", "kafka-1"]):
        refused = eos(*command, state=nowhere)
        assert refused.returncode == 5
        assert "hint: `eos up` starts one" in refused.stderr
    assert eos("down", state=nowhere).returncode == 0


def test_faults_of_a_dead_toxiproxy_are_healed(cluster: Cluster) -> None:
    injection = inject(cluster, Jitter(latency_ms=100), "kafka-1").start()
    cluster.node("toxiproxy").kill()
    assert cluster.look() == ["toxiproxy is exited (137)"]

    healed = eos("heal", state=cluster.state.path)

    assert healed.returncode == 0, healed.stderr
    assert "toxiproxy is exited: starting it" in healed.stderr
    assert cluster.lasting_ailments() == []
    injection.heal()


def test_an_intent_that_cannot_be_undone_does_not_block_others(cluster: Cluster) -> None:
    strange = {"steps": [{"do": "restore_clock"}]}
    with open_journal(cluster.state) as journal:
        ident = journal.fault_intent("clock", "kafka-1", ["kafka-1"], params={}, undo=strange)
    try:
        cluster.toxiproxy.set_enabled("proxied-2", enabled=False)
        cluster.node("kafka-3").pause()
        failed = eos("heal", state=cluster.state.path)
    finally:
        with open_journal(cluster.state) as journal:
            journal.fault_healed(ident, {})

    assert failed.returncode == 2
    assert "clock on kafka-1 could not be undone" in failed.stderr
    assert "an intent contains the undo verb 'restore_clock'" in failed.stderr
    assert "nothing to heal" in eos("heal", state=cluster.state.path).stderr


def test_containers_without_an_engine_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    state = State(tmp_path / "second")
    command = [str(Path(sys.executable).with_name("eos")), "up", "--backend", "compose"]
    nowhere = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/missing.sock"}

    failed = subprocess.run(
        [*command, "--state", str(state.path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=nowhere,
    )

    assert failed.returncode == 5
    assert "error: no Docker engine answers" in failed.stderr
    assert "hint: start the engine" in failed.stderr
    assert not state.path.exists()


def test_down_by_force_needs_no_record(cluster: Cluster, tmp_path: Path) -> None:
    state = State(tmp_path / "second")
    record = cut_short(state, cluster.record.backend)
    (state.path / "cluster.json").write_text("{damaged")
    refused = eos("down", state=state.path)
    assert refused.returncode == 4
    assert "`eos down --force`" in refused.stderr

    forced = eos("down", "--force", state=state.path)

    assert forced.returncode == 0, forced.stderr
    assert "removed" in forced.stderr
    assert lifecycle.make_backend(state, record).leftovers() == []
    assert "there is no cluster to remove" in eos("down", "--force", state=state.path).stderr
    assert cluster.lasting_ailments() == []
