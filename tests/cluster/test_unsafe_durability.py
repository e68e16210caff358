"""With unsafe settings, the brokers lose acknowledged records, and the checkers report the loss."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from harness.base.waits import wait_until
from harness.clients.client_spec import IdempotentSpec
from harness.cluster.cluster import Cluster
from harness.faults import Kill, Stop, inject
from harness.testing.plugin import Ran
from tests.client_case import ClientCase, text
from tests.tapped import Evidence

pytestmark = pytest.mark.cluster


@pytest.mark.needs("partition")
def test_a_leader_that_is_cut_off_loses_records_with_acks_1(
    run_scenario: Callable[..., Ran], evidence: Evidence
) -> None:
    ran = run_scenario("unsafe-durability", verify__witnesses='["reader"]')

    evidence(verdict=ran.verdict, anomalies=ran.judgement.names())
    assert (ran.verdict, ran.judgement.names()) == ("invalid", ["lost"]), text(ran.judgement)


def test_a_leader_without_followers_loses_records_with_acks_all(
    case: ClientCase, cluster: Cluster, evidence: Evidence
) -> None:
    """The settings let a lone leader acknowledge records, and let a broker without them become the leader."""
    topic = case.topic("t", [[1, 2, 3]], min_insync_replicas="1", unclean_leader_election_enable="true")
    client = case.start(IdempotentSpec, topic=topic, partitions=1, rate=1000)
    wait_until(lambda: client.progress().acknowledged > 100, 30, "the first records")
    with ExitStack() as faults:
        for broker in (2, 3):
            faults.enter_context(inject(cluster, Stop(), f"kafka-{broker}"))
        wait_until(lambda: cluster.partition(topic, 0).isr == (1,), 30, "the leader to be alone")
        together = client.progress().acknowledged
        wait_until(
            lambda: client.progress().acknowledged > together + 100, 30, "records that no replica copies"
        )
        assert client.stop() == 0
        acknowledged = client.progress().acknowledged
        faults.enter_context(inject(cluster, Kill(), "kafka-1"))
        for broker in (2, 3):
            cluster.node(broker).start()
        wait_until(
            lambda: cluster.partition(topic, 0).leader in (2, 3), 60, "an election of one that has less"
        )
        # Metadata may name the new leader before that broker accepts requests.
        ends = wait_until(lambda: cluster.end_offsets(topic), 30, "the new leader to answer")
        left = ends[0].high_watermark

    judged = case.judge()
    evidence(acknowledged=acknowledged, together=together, left=left, verdict=judged.verdict)
    assert left < acknowledged
    assert judged.names() == ["lost"], text(judged)
