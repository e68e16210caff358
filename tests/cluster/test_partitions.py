"""Cuts between nodes: the named links are closed; all other links and the listeners for clients stay open."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from harness.base.errors import NoBiteError, UsageError
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.faults import Down, Partition, inject
from harness.faults.intents import unhealed
from harness.kafka.connection import answers

pytestmark = [pytest.mark.cluster, pytest.mark.needs("partition")]

CUTS = [
    pytest.param("brokers", "both", ["kafka-1 <-> kafka-2", "kafka-1 <-> kafka-3"], id="peers-both"),
    pytest.param("brokers", "in", ["kafka-1 <- kafka-2", "kafka-1 <- kafka-3"], id="peers-in"),
    pytest.param("brokers", "out", ["kafka-1 -> kafka-2", "kafka-1 -> kafka-3"], id="peers-out"),
    pytest.param(
        "controllers", "out", [f"kafka-1 -> controller-{i}" for i in (11, 12, 13)], id="controllers-out"
    ),
    pytest.param(
        "controllers", "both", [f"kafka-1 <-> controller-{i}" for i in (11, 12, 13)], id="controllers-both"
    ),
]


@pytest.mark.parametrize(("cut_from", "direction", "unreachable"), CUTS)
def test_a_cut_closes_the_named_links_and_no_other(
    cluster: Cluster, cut_from: str, direction: str, unreachable: list[str]
) -> None:
    # `inject` itself makes further checks, and raises an error if one fails: new connections in the direction
    # of the cut must fail. The opposite direction and the listeners for clients and for the observer must
    # work.
    fault = Partition(cut_from=cut_from, direction=direction)  # type: ignore[arg-type]

    with inject(cluster, fault, "kafka-1") as injection:
        assert injection.bite["unreachable"] == unreachable
        assert answers("127.0.0.1", cluster.ports.direct(1), timeout=5)
        assert answers("127.0.0.1", cluster.ports.proxied(1), timeout=5)
        assert cluster.links.open_to("kafka-2", ["kafka-3"]) == {"kafka-3": True}

    assert cluster.lasting_ailments() == []


def test_a_broker_cut_from_its_peers_leaves_the_isr(cluster: Cluster, topic: str) -> None:
    # Partition 0 has the replicas 1, 2, 3. After an earlier cut, broker 2 may lead it instead of broker 1.
    # Broker 3 cannot lead it while one of the other two serves.
    with inject(cluster, Partition("brokers"), "kafka-3"):
        # A follower that has every record stays in the ISR even if it is silent. So write a record that this
        # follower lacks.
        producer = Producer({"bootstrap.servers": cluster.bootstrap("DIRECT")})
        producer.produce(topic, b"one more", partition=0)
        producer.poll(0.1)
        wait_until(lambda: 3 not in cluster.partition(topic, 0).isr, 20, "broker 3 to leave the ISR")
        assert producer.flush(20) == 0


def test_a_broker_cut_from_the_controllers_is_fenced(cluster: Cluster, topic: str) -> None:
    with inject(cluster, Partition("controllers"), "kafka-1"):
        wait_until(
            lambda: cluster.admin.metadata([topic], broker=2).partitions[0].leader in (2, 3),
            15,
            "broker 1 to lose its partition",
        )


def test_clients_can_be_cut_while_brokers_reach_each_other(cluster: Cluster, topic: str) -> None:
    with inject(cluster, Down(), "kafka-1"):
        assert cluster.links.open_to("kafka-1", ["kafka-2"]) == {"kafka-2": True}
        assert cluster.leader_of(topic, 0) == 1


def test_the_active_controller_can_be_cut_off(cluster: Cluster) -> None:
    with inject(cluster, Partition("all"), "active_controller") as injection:
        cut = injection.names[0]
        wait_until(
            lambda: cluster.admin.quorum().leader != cluster.node(cut).node_id,
            15,
            "another active controller",
        )


def test_a_cut_that_does_nothing_is_an_error(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "apply", lambda *_: None)

    with pytest.raises(NoBiteError, match="still passes"), inject(cluster, Partition(), "kafka-1"):
        pytest.fail("a fault without effect must not reach the block")

    assert unhealed(cluster.state) == []


def test_a_cut_of_links_that_do_not_exist_is_refused(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="controllers open no connections"):
        inject(cluster, Partition("controllers", "in"), "kafka-1").start()
