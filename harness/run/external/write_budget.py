"""Write budget of a run: an estimate before the run and a measurement during it. Both are upper bounds."""

from __future__ import annotations

import time
from typing import Final

from harness.clients.client import MOST_BEHIND_S
from harness.cluster.external.external_cluster import ExternalCluster
from harness.evidence.record import ORIGIN_WIDTH, WIDTH
from harness.scenario import Scenario, Workload

OVERHEAD: Final = 80
"""Maximum overhead in bytes of a batch with one record: 61 for the batch header and up to 19 for the
record's fields. A transaction marker takes 78 bytes, so this maximum covers it too.
"""
LINGER_S: Final = 0.5
"""A pipeline ends a transaction after this many seconds, even if it has read few inputs."""


def record_bytes(workload: Workload) -> int:
    """Return the maximum size in bytes of one record in the log of one replica."""
    return WIDTH + ORIGIN_WIDTH + int(workload.payload) + OVERHEAD


def record_bytes_of(scenario: Scenario) -> dict[str, int]:
    """Return the maximum size in bytes of a record in each topic. A transaction marker counts as a record."""
    found: dict[str, int] = {}
    for workload in scenario.workload:
        for topic in _written(workload):
            found[topic] = max(found.get(topic, 0), record_bytes(workload))
    return found


def bytes_per_second(scenario: Scenario) -> float:
    """Return the bytes per second that all clients together write at their configured rate."""
    sizes = record_bytes_of(scenario)
    return sum(rate * sizes[topic] for topic, rate in _rates(scenario).items())


def _rates(scenario: Scenario) -> dict[str, float]:
    """Return the number of records and transaction markers per second in each topic.

    A pipeline writes as many records as it reads.
    """
    producers = [w for w in scenario.workload if w.kind in ("idempotent", "transactional")]
    found: dict[str, float] = {}
    for w in scenario.workload:
        sources = [w] if w in producers else [p for p in producers if p.topic == w.source]
        rate = float(sum(source.clients * source.rate for source in sources))
        for topic in _written(w):
            found[topic] = found.get(topic, 0.0) + rate + _markers(w, rate)
    return found


def _markers(workload: Workload, rate: float) -> float:
    """Return the number of transaction markers per second that a workload causes in a topic.

    For each transaction, the coordinator writes one marker to each partition to which the transaction wrote.
    """
    if workload.kind == "idempotent" or rate == 0:
        return 0.0
    records = sum(workload.transaction) / 2
    if workload.kind == "pipeline":
        records = max(1.0, min(records, rate / workload.clients * LINGER_S))
    return rate / records * min(workload.partitions, records)


def _written(workload: Workload) -> list[str]:
    topics = (workload.topic, workload.changelog) if workload.kind != "reader" else ()
    return [topic for topic in topics if topic]


class Meter:
    """Meter of a run's writes: it derives bytes and rate from the end offsets of the run's topics."""

    def __init__(self, cluster: ExternalCluster, scenario: Scenario) -> None:
        self.stored = 0
        self.fastest = 0.0
        self._cluster = cluster
        self._sizes = record_bytes_of(scenario)
        self._written = 0
        self._at = time.monotonic()

    def look(self) -> str:
        """Measure now. Return a text about the limit that is exceeded, or an empty string."""
        there = {p.topic for p in self._cluster.admin.metadata(None).partitions} & set(self._sizes)
        written = sum(
            end.high_watermark * self._sizes[topic]
            for topic in there
            for end in self._cluster.end_offsets(topic).values()
        )
        # Read the clock after the requests. The end offsets include writes during the requests, so the
        # measured time must include the requests too.
        now = time.monotonic()
        gained, took = written - self._written, now - self._at
        self._written, self._at = written, now
        self.stored = written * self._cluster.replication
        self.fastest = max(self.fastest, gained / took)
        limits = self._cluster.file.limits
        if self.stored > limits.storage:
            return f"up to {self.stored} B are stored: limits.storage is {limits.storage}"
        # After an outage, a producer sends its delayed records at once, but at most those of the last
        # MOST_BEHIND_S seconds. The limit allows for these records. A pipeline has no rate limit: after an
        # outage it reads everything that its input topic received in the meantime. The limit makes no further
        # allowance for the pipeline's writes.
        if gained > limits.bytes_per_second * (took + MOST_BEHIND_S):
            rate = f"up to {gained / took:.0f} B/s for {took:.1f} s"
            return f"{rate} were written: limits.bytes_per_second is {limits.bytes_per_second}"
        return ""
