"""Helpers for tests under faults: open transactions, placement of coordinators, the transaction log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness.base.waits import wait_until
from harness.clients.scripted.transactional_producer import TransactionalProducer
from harness.cluster.cluster import Cluster
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.walkthroughs.transaction_evidence import CoordinatorHome, coordinator_home, states
from tests.transactional.transactional_case import TransactionalCase

DONE = ["PrepareCommit", "CompleteCommit"]


class Laps:
    """Stopwatch of a test: the seconds from its start to the end of each named phase."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.seen: dict[str, float] = {}

    def __call__(self, name: str) -> float:
        """Record the end of the phase with this name; return the seconds since the stopwatch was started."""
        self.seen[name] = round(time.monotonic() - self._started, 1)
        return self.seen[name]


def lead(cluster: Cluster, topic: str, ident: str, broker: int) -> CoordinatorHome:
    """Make a broker the coordinator of a group or a transactional id."""
    cluster.move_leader(topic, coordinator_home(cluster, topic, ident).partition, broker)
    found = coordinator_home(cluster, topic, ident)
    kind = "transaction" if topic == TRANSACTION_TOPIC else "group"
    wait_until(lambda: cluster.admin.coordinator(kind, ident) == broker, 10, f"broker {broker} to coordinate")
    return found


@contextmanager
def decided_by(cluster: Cluster, ident: str, brokers: list[int]) -> Iterator[CoordinatorHome]:
    """Place the transaction log's partition of an id on these brokers alone; the first is the coordinator."""
    partition = coordinator_home(cluster, TRANSACTION_TOPIC, ident).partition
    before = cluster.partition(TRANSACTION_TOPIC, partition).replicas
    cluster.reassign(TRANSACTION_TOPIC, {partition: brokers})
    try:
        yield lead(cluster, TRANSACTION_TOPIC, ident, brokers[0])
    finally:
        cluster.reassign(TRANSACTION_TOPIC, {partition: before})


def decisions(cluster: Cluster, ident: str, since: int, until: int | None = None) -> list[str]:
    """Return the Prepare and Complete states that coordinators logged for a transactional id, in order.

    `until` is a time of the coordinator's clock: later entries are left out. With it, a test can read the log
    later and still get the state at that time. A test should not read the log between two faults, because
    reading may take longer than a broker's session lasts.
    """
    noted = (s for s in states(cluster, ident, since) if until is None or s.wall < until)
    return [s.what for s in noted if s.what.startswith(("Prepare", "Complete"))]


def wait_decisions(cluster: Cluster, ident: str, since: int, wanted: list[str]) -> list[str]:
    """Wait for at least `len(wanted)` logged decisions of which the last is `wanted[-1]`; return them."""

    def reached() -> list[str]:
        found = decisions(cluster, ident, since)
        return found if len(found) >= len(wanted) and found[-1] == wanted[-1] else []

    return wait_until(reached, 40, f"{ident} to be {wanted[-1]}")


def epochs(marks: list[CoordinatorEntry]) -> list[int]:
    """Return the distinct coordinator epochs of these markers, in ascending order."""
    return sorted({mark.coordinator_epoch for mark in marks})


def opened(
    case: TransactionalCase, topic: str, lanes: dict[int, int], **fields: object
) -> TransactionalProducer:
    """Return a producer whose transaction is open and has delivered records in each of the lanes."""
    producer = case.producer(topic, **fields)  # type: ignore[arg-type]
    assert producer.init().ok
    assert producer.begin().ok
    for lane, count in lanes.items():
        assert producer.send(lane, count).ok
    return producer


def wake(cluster: Cluster, case: TransactionalCase, topic: str, ident: str) -> None:
    """Commit a transaction of another id on the coordinator of `ident`, so that it sends markers.

    A coordinator that could not log the completion of a transaction retries this when it sends other markers,
    or after 30 s.
    """
    other = f"{ident}-wake"
    lead(cluster, TRANSACTION_TOPIC, other, cluster.txn_coordinator(ident))
    assert opened(case, topic, {0: 1}, transactional_id=other).commit().ok


def visible(case: TransactionalCase, topic: str) -> dict[int, int]:
    return {partition: len(values) for partition, values in case.read(topic).items()}
