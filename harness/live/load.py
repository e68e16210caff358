"""How much a run would write: reckoned before it starts, as if every record were a batch of its own."""

from __future__ import annotations

from typing import Final

from harness.record import ORIGIN_WIDTH, WIDTH
from harness.scenario import Scenario, Workload

OVERHEAD: Final = 80
"""Of a batch of one record: 61 bytes of its header, up to 19 of the record's; a marker has 78 in all."""


def record_bytes(workload: Workload) -> int:
    """The most that one record takes in one log."""
    return WIDTH + ORIGIN_WIDTH + int(workload.payload) + OVERHEAD


def record_bytes_of(scenario: Scenario) -> dict[str, int]:
    """The most that a record of each topic takes."""
    found: dict[str, int] = {}
    for workload in scenario.workload:
        if workload.kind != "reader":
            found[workload.topic] = max(found.get(workload.topic, 0), record_bytes(workload))
    return found


def bytes_per_second(scenario: Scenario) -> float:
    """What its clients write, at the pace that they are given."""
    rates: dict[str, float] = {}
    for workload in scenario.workload:
        if workload.kind in ("idempotent", "transactional"):
            rates[workload.topic] = rates.get(workload.topic, 0) + workload.clients * workload.rate
    pipelines = {w.topic: rates.get(w.source, 0) for w in scenario.workload if w.kind == "pipeline"}
    sizes = record_bytes_of(scenario)
    return sum(rate * sizes[topic] for topic, rate in (rates | pipelines).items())
