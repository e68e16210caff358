"""A transaction ends while its partition has three replicas but no leader, and its coordinator is alive.

Two replicas are in sync, and their brokers are killed. The third broker was frozen and has resumed, but its
replica is not eligible as leader. This broker is the coordinator, because the test places the coordinator's
partition on it alone.
"""

from __future__ import annotations

import time

import pytest

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.faults import Kill, Pause, inject
from harness.kafka.hanging_transactions import write_marker
from harness.walkthroughs.skipped_marker import wait_leaderless
from harness.walkthroughs.transaction_evidence import markers
from tests.client_case import text
from tests.tapped import Evidence
from tests.transactional.transactional_case import TransactionalCase
from tests.transactional.under_faults import DONE, decided_by, opened, visible, wait_decisions

pytestmark = [pytest.mark.cluster, pytest.mark.timing]

FINDS_ITS_WAY_BACK = {"metadata.recovery.strategy": "rebootstrap"}
"""Client setting that allows the client to bootstrap again.

The next metadata does not contain the frozen broker, and the other two brokers are killed. So the client has
no broker left. Clients of a run do not use this setting, because it resets their counters.
"""


@pytest.mark.soak  # soak only, because tests/hazards covers this with one replica
def test_a_marker_is_skipped_on_a_partition_with_three_replicas_and_no_leader(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    topic, since = case.topic("t", [[1, 2, 3]]), time.time_ns()
    place, ident = (topic, 0), case.transactional_id
    with decided_by(cluster, ident, [3]):
        producer = opened(case, topic, {0: 3}, settings=FINDS_ITS_WAY_BACK)
        pid = case.describe().producer_id
        faults = [inject(cluster, Pause(), "kafka-3").start()]
        try:
            wait_until(lambda: set(cluster.partition(*place).isr) == {1, 2}, 30, "broker 3 to be missed")
            faults += [inject(cluster, Kill(), f"kafka-{broker}").start() for broker in (1, 2)]
            # Resume broker 3 without a health check, because its replica has no leader to follow.
            cluster.node(3).resume()
            wait_leaderless(cluster, place, [3])
            replicas = cluster.partition(*place)
            ended = producer.commit()
            noted = wait_decisions(cluster, ident, since, DONE)
            # Start both brokers before waiting for either: each one serves only after the partition's last
            # leader is back.
            for broker in (1, 2):
                cluster.node(broker).start()
        finally:
            for fault in faults[::-1]:
                fault.heal()
    leader, end = cluster.leader_of(*place), cluster.end_offsets(topic)[0]
    marks, seen, hanging = (
        markers(cluster, [place], since, pid),
        visible(case, topic),
        case.open_transactions(),
    )
    freed = [
        write_marker(
            cluster.admin, leader, one.open, commit=True, coordinator_epoch=one.open.coordinator_epoch
        )
        for one in hanging
    ]
    judged, after = case.judge(), visible(case, topic)
    evidence(
        replicas=replicas,
        ended=ended,
        decisions=noted,
        markers=marks,
        end=end,
        seen=seen,
        hanging=[(one.hangs, one.last and one.last.state) for one in hanging],
        freed=freed,
        after=after,
        verdict=judged.verdict,
    )
    assert replicas.leader < 0
    assert ended.ok
    assert noted == DONE
    assert marks == []
    assert seen == {0: 0}
    assert (end.last_stable, end.high_watermark) == (0, 3)
    assert [one.hangs for one in hanging] == [True]
    assert freed == ["NONE"]
    assert after == {0: 3}
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
