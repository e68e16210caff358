"""Ten producers under jitter, leader kills and lost answers: a scenario from end to end, counted by Spark."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from harness.base.errors import ExitCode
from harness.base.units import Duration, Span
from harness.cluster.cluster import Cluster
from harness.cluster.targets import Target
from harness.evidence.history import HistoryFile, Info
from harness.run import Outcome, make_run
from harness.scenario import FaultEntry, find, load
from harness.scenario.plan import draw
from tests.tapped import Evidence

pytestmark = [pytest.mark.cluster, pytest.mark.spark]


LOST_ANSWERS = FaultEntry(
    fault="lose_response", target=Target.parse("leader_of(orders, 0)"), at=Duration(0), lasts=Span(1, 1)
)
"""Fault that makes every producer send again. At a kill, a producer may have no batch in flight by chance."""


def execute(cluster: Cluster, root: Path, seed: int, duration: str) -> Outcome:
    scenario = load(find("ten-producers"), {"plan.duration": duration})
    scenario = msgspec.structs.replace(scenario, fault=[*scenario.fault, LOST_ANSWERS])
    return make_run(cluster, scenario, draw(scenario, seed), root).execute()


def resent(directory: Path) -> dict[str, int]:
    """Return the number of records that each producer sent again, according to its history."""
    found = {}
    for path in sorted((directory / "history").glob("idempotent-*.jsonl")):
        resent = [
            x for _, x in HistoryFile(path).read() if isinstance(x, Info) and x.f == "resent" and x.error
        ]
        assert len(resent) == 1, path.name
        match = re.match(r"(\d+) records", resent[0].error.message)  # type: ignore[union-attr]
        assert match
        found[path.stem] = int(match[1])
    return found


@pytest.mark.parametrize(
    ("seed", "duration"),
    [(1, "20s"), *(pytest.param(seed, "60s", marks=pytest.mark.soak) for seed in range(2, 22))],
)
def test_ten_producers_are_exactly_once(
    cluster: Cluster, tmp_path: Path, evidence: Evidence, seed: int, duration: str
) -> None:
    outcome = execute(cluster, tmp_path, seed, duration)
    again = resent(outcome.directory)
    compared = {r.property: r.compared for r in outcome.judgement.results}
    evidence(seed=seed, verdict=outcome.judgement.verdict, resent=again, compared=compared)
    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    assert len(again) == 10
    assert min(again.values()) > 0
