"""How much a run writes: reckoned before it starts, counted while it runs; upper bounds, both of them."""

from __future__ import annotations

import time
from typing import Final

from harness.clients.client import MOST_BEHIND_S
from harness.cluster.external.external_cluster import ExternalCluster
from harness.evidence.record import ORIGIN_WIDTH, WIDTH
from harness.scenario import Scenario, Workload

OVERHEAD: Final = 80
"""Of a batch of one record: 61 bytes of its header, up to 19 of the record's; a marker has 78 in all."""
LINGER_S: Final = 0.5
"""A pipeline's transaction ends after so long, however few its inputs were."""


def record_bytes(workload: Workload) -> int:
    """The most that one record takes in one log."""
    return WIDTH + ORIGIN_WIDTH + int(workload.payload) + OVERHEAD


def record_bytes_of(scenario: Scenario) -> dict[str, int]:
    """The most that a record of each topic takes; a marker counts as one."""
    found: dict[str, int] = {}
    for workload in scenario.workload:
        for topic in _written(workload):
            found[topic] = max(found.get(topic, 0), record_bytes(workload))
    return found


def bytes_per_second(scenario: Scenario) -> float:
    """What its clients write, at the pace that they are given."""
    sizes = record_bytes_of(scenario)
    return sum(rate * sizes[topic] for topic, rate in _rates(scenario).items())


def _rates(scenario: Scenario) -> dict[str, float]:
    """Records and markers a second, by topic; a pipeline writes what the producers of its source do."""
    producers = [w for w in scenario.workload if w.kind in ("idempotent", "transactional")]
    found: dict[str, float] = {}
    for w in scenario.workload:
        sources = [w] if w in producers else [p for p in producers if p.topic == w.source]
        rate = float(sum(source.clients * source.rate for source in sources))
        for topic in _written(w):
            found[topic] = found.get(topic, 0.0) + rate + _markers(w, rate)
    return found


def _markers(workload: Workload, rate: float) -> float:
    """Markers a second of one topic: of each transaction one in each partition that has a record of it."""
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
    """Counts what a run has stored and how fast it writes, by where its topics end."""

    def __init__(self, cluster: ExternalCluster, scenario: Scenario) -> None:
        self.stored = 0
        self.fastest = 0.0
        self._cluster = cluster
        self._sizes = record_bytes_of(scenario)
        self._written = 0
        self._at = time.monotonic()

    def look(self) -> str:
        """Count, and say why it is too much; empty if it is not."""
        there = {p.topic for p in self._cluster.admin.metadata(None).partitions} & set(self._sizes)
        written = sum(
            end.high_watermark * self._sizes[topic]
            for topic in there
            for end in self._cluster.end_offsets(topic).values()
        )
        now = time.monotonic()  # once all are told: what came while they were asked has its time too
        gained, took = written - self._written, now - self._at
        self._written, self._at = written, now
        self.stored = written * self._cluster.replication
        self.fastest = max(self.fastest, gained / took)
        limits = self._cluster.file.limits
        if self.stored > limits.storage:
            return f"up to {self.stored} B are stored: limits.storage is {limits.storage}"
        # After an outage a producer makes up for so long at once, and for no more. A pipeline has no pace: it
        # takes all that its source got meanwhile, and what it writes then counts like everything else.
        if gained > limits.bytes_per_second * (took + MOST_BEHIND_S):
            rate = f"up to {gained / took:.0f} B/s for {took:.1f} s"
            return f"{rate} were written: limits.bytes_per_second is {limits.bytes_per_second}"
        return ""
