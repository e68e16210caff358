"""The baseline latency of a link: a short load peak must not raise it, but another active fault must."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from harness.cluster.cluster import Cluster
from harness.faults import Jitter, link_faults
from harness.faults.link_probe import Link

BUSY, QUIET, TOXIC = 60.0, 1.0, 55.0


@pytest.mark.parametrize(
    ("rounds", "taken", "asked"),
    [([QUIET], QUIET, 1), ([BUSY, BUSY, QUIET], QUIET, 3), ([BUSY, TOXIC, BUSY, TOXIC], TOXIC, 4)],
    ids=["quiet", "busy for a while", "another fault is there"],
)
def test_the_baseline_is_the_least_of_a_few_rounds(
    monkeypatch: pytest.MonkeyPatch, rounds: list[float], taken: float, asked: int
) -> None:
    left = list(rounds)

    def slower(_: object, __: Link, count: int) -> list[float]:
        return [left.pop(0)] * count

    monkeypatch.setattr(link_faults, "_slower_ms", slower)
    baseline = cast("Callable[..., float]", Jitter(latency_ms=50, jitter_ms=40)._baseline)
    assert baseline(cast("Cluster", None), cast("Link", None)) == taken
    assert len(rounds) - len(left) == asked
