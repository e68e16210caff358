"""Lost packets of connections between brokers: the effect is measured, and ends with the heal."""

from __future__ import annotations

import pytest

from harness.base.errors import NoBiteError
from harness.cluster import packet_filter
from harness.cluster.broker_flows import process_of
from harness.cluster.cluster import Cluster
from harness.cluster.packet_filter import Flow
from harness.faults import inject
from harness.faults.flow_faults import LoseFlow, LoseFlows
from harness.faults.heal import heal
from harness.faults.intents import unhealed

pytestmark = [pytest.mark.cluster, pytest.mark.packets]


def test_packets_of_open_connections_are_lost_and_new_connections_work(cluster: Cluster) -> None:
    with inject(cluster, LoseFlows(connections=3), "kafka-1") as injection:
        assert 1 <= injection.bite["connections"] <= 3
        assert injection.bite["lost_packets"] >= 1
        assert injection.bite["from"] in (["kafka-2"], ["kafka-3"])
        intent = unhealed(cluster.state)
        assert [i.fault for i in intent] == ["lose_flows"]
        steps = [dict(step) for step in intent[0].undo["steps"]]
        receivers = [process_of(cluster, step["broker"]) for step in steps]
        flows = [
            Flow(step["source"], step["destination"], step["address"], receiver=receiver)
            for step, receiver in zip(steps, receivers, strict=True)
        ]
        assert all(map(packet_filter.is_dropped, flows))
        assert cluster.answers(1)

    assert not any(map(packet_filter.is_dropped, flows))
    assert unhealed(cluster.state) == []
    assert cluster.lasting_ailments() == []


def test_a_fault_that_loses_nothing_is_an_error(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoseFlows, "apply", lambda *_: None)

    with pytest.raises(NoBiteError), inject(cluster, LoseFlows(within_s=2.0), "kafka-2"):
        pytest.fail("a fault without effect must not reach the block")
    heal(cluster, lambda _: None)
    assert unhealed(cluster.state) == []


def test_without_root_the_fault_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_filter, "unavailable", lambda **_: "it needs root")

    with pytest.raises(NoBiteError, match="it needs root"), inject(cluster, LoseFlows(), "kafka-2"):
        pytest.fail("a fault that cannot act must not reach the block")


def test_a_connection_that_does_not_exist_is_an_error(cluster: Cluster) -> None:
    with (
        pytest.raises(NoBiteError, match="no connection has the ports 1 and 2"),
        inject(cluster, LoseFlow(source=1, destination=2), "kafka-1"),
    ):
        pytest.fail("a fault without a connection must not reach the block")
