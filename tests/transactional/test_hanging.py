"""Transactions that nobody ends: found by what brokers and coordinators know, and freed in the right way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.model import Expect
from harness.kafka import transactions as by_hand
from harness.kafka.brokers import setting
from harness.kafka.errors import error_name
from harness.kafka.hanging_transactions import BlockingTransaction, OpenTransaction, write_marker
from tests.broker_requests import change_settings
from tests.rig import said_of, text
from tests.tapped import Evidence
from tests.transactional.bench import Bench

pytestmark = pytest.mark.cluster

VERIFICATION = "transaction.partition.verification.enable"
TIMEOUT_MS = 2_000
"""The longest that a transaction of the run itself may last: with 15 s more, what is stuck is hanging."""
BOUNDED = Expect(transaction_timeout_ms=TIMEOUT_MS)
WATCHED_S = 15 + TIMEOUT_MS / 1000 + 0.5


@pytest.fixture
def unverified(cluster: Cluster) -> Iterator[int]:
    """Broker 2 does not ask whether a transaction is open: how versions before 3.6 came to hang."""
    change_settings(cluster.admin, 2, {VERIFICATION: "false"})
    wait_until(lambda: setting(cluster.admin, 2, VERIFICATION) == "false", 10, "no verification")
    yield 2
    change_settings(cluster.admin, 2, {VERIFICATION: None})
    wait_until(lambda: setting(cluster.admin, 2, VERIFICATION) == "true", 10, "verification to be back")


def test_what_is_left_open_and_what_hangs(
    cluster: Cluster, bench: Bench, unverified: int, evidence: Evidence
) -> None:
    """Both hold readers back; only one has somebody who can still end it."""
    topic = bench.topic("t")
    left, hung = (topic, 0), (topic, unverified - 1)
    own = bench.told(topic, transaction_timeout_ms=TIMEOUT_MS)
    assert own.init().said == "ok"
    stranger = bench.take(f"{bench.name}-left", timeout_ms=600_000)
    assert by_hand.add_partitions(cluster.admin, stranger, [left]) == 0
    assert bench.produce(stranger, left).code == 0
    late = bench.take(f"{bench.name}-hung", timeout_ms=600_000)
    assert by_hand.add_partitions(cluster.admin, late, [hung]) == 0
    assert bench.produce(late, hung).code == 0
    assert by_hand.end(cluster.admin, late, commit=False) == 0
    wait_until(lambda: not held(bench, hung), 10, "the marker")
    assert bench.produce(late, hung, 1).code == 0  # after the end of its transaction: this one hangs
    assert own.whole({0: 5, 1: 5, 2: 5}).said == "ok"

    bench.ended()
    visible = {p: len(values) for p, values in bench.read(topic).items()}
    everything = {p: len(values) for p, values in bench.read(topic, "read_uncommitted").items()}
    bench.watch(WATCHED_S)
    found = {each.open.partition_id: each for each in bench.open(topic)}
    judged = bench.judge(expect=BOUNDED)
    assert sorted(found) == [left, hung]
    assert [found[place].hangs for place in (left, hung)] == [False, True]
    owner = found[left].last
    assert owner is not None
    assert owner.transactional_id == stranger.transactional_id
    assert (found[left].open.producer_id, found[left].open.first_offset) == (stranger.producer_id, 0)
    assert (found[hung].open.producer_id, found[hung].open.first_offset) == (late.producer_id, 2)
    assert all(each.open.age_s > WATCHED_S for each in found.values())
    assert (visible, everything) == ({0: 0, 1: 0, 2: 5}, {0: 6, 1: 7, 2: 5})
    assert judged.names() == ["hanging_transaction"], text(judged)
    said = said_of(judged, "hanging_transaction")
    assert [any(f"{topic}-{p}:" in line for line in said) for p in (0, 1, 2)] == [True, True, False]

    bench.take(stranger.transactional_id)
    wait_until(lambda: not held(bench, left), 10, "what was left open to be aborted by the next init")
    bench.take(late.transactional_id)
    assert held(bench, hung), "an init frees what hangs"
    at = found[hung].open
    refused = abort_marker(cluster, at, -1)
    freed = abort_marker(cluster, at, at.coordinator_epoch)
    wait_until(lambda: not held(bench, hung), 10, "the abort marker to free what hung")
    bench.watch()
    after = bench.judge(expect=BOUNDED)
    answers = {"coordinator epoch -1": refused, "the right one": freed}
    evidence(open=list(found.values()), said=said, admin_abort=answers, after=after.verdict)
    assert refused == "TRANSACTION_COORDINATOR_FENCED"
    assert freed == "NONE"
    assert (after.verdict, after.names()) == ("valid", []), text(after)


def held(bench: Bench, place: PartitionId) -> list[BlockingTransaction]:
    return [each for each in bench.open(place[0]) if each.open.partition_id == place]


def abort_marker(cluster: Cluster, at: OpenTransaction, coordinator_epoch: int) -> str:
    """What an operator sends to a partition, past the coordinator."""
    leader = cluster.leader_of(*at.partition_id)
    return write_marker(cluster.admin, leader, at, commit=False, coordinator_epoch=coordinator_epoch)


def test_with_verification_a_late_batch_opens_nothing(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    """The control: the same late batch on a broker that asks the coordinator first."""
    topic = bench.topic("t")
    who = bench.take()
    assert by_hand.add_partitions(cluster.admin, who, [(topic, 0)]) == 0
    assert bench.produce(who, (topic, 0)).code == 0
    assert by_hand.end(cluster.admin, who, commit=False) == 0
    wait_until(lambda: not held(bench, (topic, 0)), 10, "the marker")
    # Until its coordinator has finished, the leader says NOT_ENOUGH_REPLICAS, which a producer tries again.
    bench.ended(who.transactional_id)
    late = bench.produce(who, (topic, 0), 1)
    evidence(late=late)
    assert error_name(late.code) == "INVALID_TXN_STATE"
    assert bench.open(topic) == []


def test_an_admin_abort_of_a_live_transaction_loses_what_is_then_committed(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    """Its coordinator is not told: it says ok to the commit of records that were aborted behind its back."""
    topic = bench.topic("t")
    live = bench.told(topic)
    assert live.init().said == "ok"
    live.begin()
    assert live.send(0, 3).said == "ok"
    (live_there,) = bench.open(topic)
    marked = abort_marker(cluster, live_there.open, live_there.open.coordinator_epoch)
    known = bench.known()
    second = live.send(0, 2)
    committed = live.commit()
    bench.ended()
    judged = bench.judge()
    visible = len(bench.read(topic)[0])
    evidence(
        marker=marked,
        coordinator=known.state,
        second=second,
        committed=committed,
        visible_of_5=visible,
        found=judged.names(),
        said=said_of(judged, "lost"),
    )
    assert (marked, known.state) == ("NONE", "Ongoing")
    assert (second.said, committed.said) == ("ok", "ok")
    assert visible == 2
    assert {"lost", "torn_transaction"} <= set(judged.names()), text(judged)


def test_the_next_init_ends_a_live_transaction_well(bench: Bench, evidence: Evidence) -> None:
    """What to do instead: nothing is torn, and the producer that was live is told."""
    topic = bench.topic("t")
    live = bench.told(topic)
    assert live.init().said == "ok"
    live.begin()
    assert live.send(0, 3).said == "ok"
    successor = bench.told(topic)
    assert successor.init().said == "ok"
    refused = live.commit()
    assert successor.whole({0: 2}).said == "ok"
    bench.ended()
    judged = bench.judge()
    evidence(refused=refused, verdict=judged.verdict)
    assert refused.said != "ok"
    assert len(bench.read(topic)[0]) == 2
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
