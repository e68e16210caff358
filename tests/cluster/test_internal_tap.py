"""The wire tap between the brokers of a running cluster: what it sees, faults on it, and its repair."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.faults import HoldFrame, arm
from harness.faults.heal import heal
from harness.kafka.transactions import describe_transactions
from harness.tap.frame_lines import Frame, Line
from harness.tap.tap_client import ensure_tap, find_tap, stop_tap
from tests.frame_log_builder import logged

pytestmark = [pytest.mark.cluster, pytest.mark.needs("internal_tap")]

LIMIT_S = 20.0
_numbers = itertools.count(1)


@pytest.fixture
def topic(internal_cluster: Cluster) -> Iterator[str]:
    """Yield a topic of two partitions with three replicas each; broker i + 1 leads partition i."""
    name = f"internal{next(_numbers)}"
    internal_cluster.create_topic(name, [(1, 2, 3), (2, 3, 1)])
    yield name
    internal_cluster.delete_topics([name])


@pytest.fixture
def frames(internal_cluster: Cluster, tmp_path: Path) -> Iterator[Callable[[], list[Line]]]:
    """Yield a function that returns the frame log lines of the tap between brokers."""
    with logged(ensure_tap(internal_cluster, BrokerListener.INTERNAL), tmp_path) as read:
        yield read


@contextmanager
def begun(cluster: Cluster, topic: str, ident: str) -> Iterator[Any]:
    """Yield a producer with an open transaction that has a record in each partition of the topic."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap("DIRECT"), "transactional.id": ident})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, b"value", partition=partition)
    assert producer.flush(LIMIT_S) == 0
    yield producer
    producer.close()


def state_of(cluster: Cluster, ident: str) -> str:
    """Return the state that the coordinator reports for a transactional id."""
    (described,) = describe_transactions(cluster.admin, cluster.txn_coordinator(ident), [ident])
    return described.state


def copies(log: list[Line]) -> set[tuple[int | None, int]]:
    """Return each follower that has sent a Fetch, with the broker that received it."""
    return {
        (x.facts.replica, x.broker)
        for x in log
        if isinstance(x, Frame) and x.side == "request" and x.api == "Fetch" and x.facts
    }


def test_markers_questions_and_copies_of_brokers_are_logged_with_their_sender(
    internal_cluster: Cluster, topic: str, frames: Callable[[], list[Line]]
) -> None:
    ident = f"{topic}-t"
    with begun(internal_cluster, topic, ident) as producer:
        coordinator = internal_cluster.txn_coordinator(ident)
        producer.abort_transaction(LIMIT_S)
    wait_until(lambda: state_of(internal_cluster, ident) == "CompleteAbort", LIMIT_S, "the end")

    requests = [x for x in frames() if isinstance(x, Frame) and x.side == "request" and x.facts]
    markers = [x for x in requests if x.api == "WriteTxnMarkers"]
    assert {(x.broker, x.client_id) for x in markers} == {
        (leader, f"broker-{coordinator}-txn-marker-sender") for leader in (1, 2)
    }
    assert {m.decision for x in markers if x.facts for m in x.facts.markers} == {"abort"}
    questions = [x.facts.transactions[0] for x in requests if x.facts and x.api == "AddPartitionsToTxn"]
    assert {(q.transactional_id, q.verify_only) for q in questions} == {(ident, True)}
    # A follower without news sends a Fetch only twice a second.
    pairs = set(itertools.permutations((1, 2, 3), 2))
    wait_until(lambda: copies(frames()) == pairs, LIMIT_S, "a Fetch of every broker to every other one")
    assert not [x for x in frames() if isinstance(x, Frame) and x.undecoded]


def test_a_transaction_is_complete_only_when_its_held_marker_is_released(
    internal_cluster: Cluster, topic: str
) -> None:
    ident = f"{topic}-t"
    fault = HoldFrame(api="WriteTxnMarkers", topic=topic, partition=1, listener="INTERNAL")
    with begun(internal_cluster, topic, ident) as producer, arm(internal_cluster, fault) as held:
        producer.commit_transaction(LIMIT_S)
        held.wait("held")
        assert state_of(internal_cluster, ident) == "PrepareCommit"
        ends = internal_cluster.end_offsets(topic)
        # The commit was answered, but partition 1 has no marker yet.
        assert ends[1].last_stable < ends[1].high_watermark
        assert held.release() == 1
        wait_until(lambda: state_of(internal_cluster, ident) == "CompleteCommit", LIMIT_S, "the end")
    hit = held.bite["hits"][0]
    assert (hit["broker"], hit["did"], hit["answer"]) == (2, "released", "NONE")
    ends = internal_cluster.end_offsets(topic)
    assert ends[1].last_stable == ends[1].high_watermark


def test_heal_restarts_a_dead_tap_and_the_brokers_copy_again(internal_cluster: Cluster, topic: str) -> None:
    stop_tap(internal_cluster, BrokerListener.INTERNAL)
    assert find_tap(internal_cluster, BrokerListener.INTERNAL) is None

    lines: list[str] = []
    assert heal(internal_cluster, lines.append) == 1
    assert "INTERNAL does not answer" in lines[0]

    with begun(internal_cluster, topic, f"{topic}-t") as producer:
        producer.commit_transaction(LIMIT_S)
    assert heal(internal_cluster, lines.append) == 0
