"""What the cases under faults share: open transactions, coordinators in their places, what these noted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.walkthroughs.transaction_evidence import CoordinatorHome, coordinator_home, states
from tests.transactional.bench import Bench
from tests.transactional.scripted_producer import OK, ScriptedProducer

DONE = ["PrepareCommit", "CompleteCommit"]


class Laps:
    """How long the parts of a case took, in seconds since it began."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.seen: dict[str, float] = {}

    def __call__(self, name: str) -> float:
        """Note that something is over by now."""
        self.seen[name] = round(time.monotonic() - self._started, 1)
        return self.seen[name]


def lead(cluster: Cluster, topic: str, ident: str, broker: int) -> CoordinatorHome:
    """Let a broker coordinate a group or a transactional id."""
    cluster.move_leader(topic, coordinator_home(cluster, topic, ident).partition, broker)
    found = coordinator_home(cluster, topic, ident)
    kind = "transaction" if topic == TRANSACTION_TOPIC else "group"
    wait_until(lambda: cluster.admin.coordinator(kind, ident) == broker, 10, f"broker {broker} to coordinate")
    return found


@contextmanager
def decided_by(cluster: Cluster, ident: str, brokers: list[int]) -> Iterator[CoordinatorHome]:
    """Let only these brokers, the first of them as coordinator, hold the decisions about an id."""
    partition = coordinator_home(cluster, TRANSACTION_TOPIC, ident).partition
    before = cluster.partition(TRANSACTION_TOPIC, partition).replicas
    cluster.reassign(TRANSACTION_TOPIC, {partition: brokers})
    try:
        yield lead(cluster, TRANSACTION_TOPIC, ident, brokers[0])
    finally:
        cluster.reassign(TRANSACTION_TOPIC, {partition: before})


def decisions(cluster: Cluster, ident: str, since: int, until: int | None = None) -> list[str]:
    """What a coordinator decided about an id, and what it finished, in order; `until` as its own clock says.

    A log can be read later: where a session is running out meanwhile, there is no time to.
    """
    noted = (s for s in states(cluster, ident, since) if until is None or s.wall < until)
    return [s.what for s in noted if s.what.startswith(("Prepare", "Complete"))]


def wait_decisions(cluster: Cluster, ident: str, since: int, wanted: list[str]) -> list[str]:
    """The decisions, once the last of them is the last that is wanted."""

    def there() -> list[str]:
        found = decisions(cluster, ident, since)
        return found if len(found) >= len(wanted) and found[-1] == wanted[-1] else []

    return wait_until(there, 40, f"{ident} to be {wanted[-1]}")


def epochs(marks: list[CoordinatorEntry]) -> list[int]:
    """The coordinator epochs of some markers, each once."""
    return sorted({mark.coordinator_epoch for mark in marks})


def opened(bench: Bench, topic: str, lanes: dict[int, int], **fields: object) -> ScriptedProducer:
    """A producer with a transaction open, whose records are delivered."""
    told = bench.told(topic, **fields)  # type: ignore[arg-type]
    assert told.init().said == OK
    assert told.begin().said == OK
    for lane, count in lanes.items():
        assert told.send(lane, count).said == OK
    return told


def wake(cluster: Cluster, bench: Bench, topic: str, ident: str) -> None:
    """Let the coordinator of an id send markers for another one.

    What it could not note for want of replicas it tries again when it has markers to send, or after 30 s.
    """
    other = f"{ident}-wake"
    lead(cluster, TRANSACTION_TOPIC, other, cluster.txn_coordinator(ident))
    assert opened(bench, topic, {0: 1}, transactional_id=other).commit().said == OK


def visible(bench: Bench, topic: str) -> dict[int, int]:
    return {partition: len(values) for partition, values in bench.read(topic).items()}
