"""Node faults: the back end confirms each fault, the cluster reacts, and the healed node serves again."""

from __future__ import annotations

import pytest

from harness.base.errors import NoBiteError
from harness.cluster.cluster import Cluster
from harness.cluster.layout import node_name
from harness.cluster.nodes import Condition
from harness.faults import Fault, Kill, Pause, Restart, Stop, inject
from harness.faults.intents import unhealed
from harness.kafka.connection import answers

pytestmark = pytest.mark.cluster

# Kafka's default session time-out of a broker is 9 s. With this default, a takeover would take longer than
# TAKEOVER_LIMIT_S, even if the broker sent its last heartbeat 2 s before the kill. This harness sets the
# time-out to 3 s, so its takeovers stay below the limit. `make bench-startup` measures the takeover on a
# quiet machine.
TAKEOVER_LIMIT_S = 9.0 - 2.0


def test_a_killed_leader_is_replaced_before_kafkas_default_session_ends(cluster: Cluster, topic: str) -> None:
    with inject(cluster, Kill(), f"leader_of({topic}, 0)") as injection:
        killed = injection.names[0]
        assert injection.bite["exit_code"] == {killed: 137}
        assert injection.bite["moved_from"] == killed
        assert injection.bite["moved_after_s"] < TAKEOVER_LIMIT_S
        assert cluster.node(killed).status().condition is Condition.EXITED

    assert cluster.node(killed).status().condition is Condition.RUNNING
    assert len(cluster.partition(topic, 0).isr) == 3


def test_a_paused_transaction_coordinator_is_replaced_and_comes_back(cluster: Cluster) -> None:
    with inject(cluster, Pause(), "txn_coordinator(some-id)") as injection:
        paused = injection.names[0]
        assert injection.bite["state"] == {paused: "paused"}
        assert node_name(cluster.txn_coordinator("some-id")) != paused
        assert not answers("127.0.0.1", cluster.ports.direct(cluster.node(paused).node_id), timeout=0.5)

    assert answers("127.0.0.1", cluster.ports.direct(cluster.node(paused).node_id), timeout=5)


def test_a_stopped_broker_hands_over_its_partitions_at_once(cluster: Cluster, topic: str) -> None:
    with inject(cluster, Stop(), f"leader_of({topic}, 1)") as injection:
        # The stopping broker hands over its partitions itself. So the takeover does not wait until the
        # broker's session times out.
        assert injection.bite["exit_code"][injection.names[0]] in (0, 143)
        assert cluster.leader_of(topic, 1) != cluster.node(injection.names[0]).node_id


@pytest.mark.parametrize("hard", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["clean", "hard"])
def test_a_restarted_broker_is_another_process_and_serves(cluster: Cluster, hard: bool) -> None:
    before = cluster.node("kafka-3").status().pid

    with inject(cluster, Restart(hard=hard), "kafka-3") as injection:
        assert injection.bite["exit_code"]["kafka-3"] in ((137,) if hard else (0, 143))

    assert cluster.node("kafka-3").status().pid != before


def test_a_killed_active_controller_is_replaced(cluster: Cluster) -> None:
    epoch = cluster.admin.quorum().epoch

    with inject(cluster, Kill(), "active_controller") as injection:
        killed = injection.names[0]
        assert injection.bite["moved_to"] != killed
        # On a busy machine a third controller may be active by now, but never the killed one.
        assert node_name(cluster.active_controller()) != killed
        assert cluster.admin.quorum().epoch > epoch


def test_with_two_controllers_paused_nothing_can_be_created(cluster: Cluster) -> None:
    with inject(cluster, Pause(), "controllers(majority)") as injection:
        assert len(injection.names) == 2
        with pytest.raises(OSError, match=r"timed out|REQUEST_TIMED_OUT|RequestTimedOut"):
            cluster.admin.create_topic("never", [[1, 2, 3]])


@pytest.mark.soak  # soak only, because tests of producers and transactions also kill all brokers
def test_all_brokers_killed_come_back(cluster: Cluster, topic: str) -> None:
    with inject(cluster, Kill(), "all") as injection:
        assert injection.bite["exit_code"] == dict.fromkeys(["kafka-1", "kafka-2", "kafka-3"], 137)

    assert [len(cluster.partition(topic, p).isr) for p in range(3)] == [3, 3, 3]


@pytest.mark.soak
def test_every_node_can_be_killed_and_started_repeatedly(cluster: Cluster) -> None:
    for name in [*(n.name for n in cluster.brokers), *(n.name for n in cluster.controllers)]:
        for _ in range(3):
            with inject(cluster, Kill(), name):
                pass


@pytest.mark.parametrize("fault", [Kill(), Pause(), Stop(), Restart()], ids=lambda fault: fault.name)
def test_a_node_fault_that_does_nothing_is_an_error(
    cluster: Cluster, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(fault), "apply", lambda *_: None)

    with pytest.raises(NoBiteError), inject(cluster, fault, "kafka-1"):
        pytest.fail("a fault without effect must not reach the block")

    assert unhealed(cluster.state) == []


def test_a_fault_on_a_node_that_is_down_already_is_an_error(cluster: Cluster) -> None:
    with inject(cluster, Kill(), "controller-13"), pytest.raises(NoBiteError, match="is exited"):
        inject(cluster, Kill(), "controller-13").start()
