"""The systems under test in apps/: each case ends as apps/systems.toml demands."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.run import make_run
from harness.scenario import load
from harness.scenario.plan import draw
from tools import systems
from tools.systems import Case, SystemRun, case_of, read_cases, run_of

pytestmark = pytest.mark.cluster

KILLS = """
[plan]
steady = "2s"
duration = "5s"

[[fault]]
fault = "kill_app"
target = "app(*-1)"
at = "1s"
lasts = "1s"

[[fault]]
fault = "kill_app"
target = "app(*-2)"
at = "1700ms"
lasts = "1s"
"""
"""A short plan, which is the same for all cases of a system.

Both instances are killed before the group notices the first kill. A rebalance would make Streams commit,
and a kill directly after a commit makes no total wrong.
"""
RARE_COMMITS = {"app.env.COMMIT_INTERVAL_MS": '"4000"'}


def run_case(cluster: Cluster, case: Case, folder: Path, seed: int, **changes: str) -> SystemRun:
    """Run a case with its own plan, and return what would be recorded."""
    scenario = load(systems.APPS / case.scenario, case.changes | changes)
    outcome = make_run(cluster, scenario, draw(scenario, seed), folder).execute()
    return run_of(case, outcome.directory)[0]


def run_short(cluster: Cluster, case: Case, folder: Path) -> SystemRun:
    """Run a case with the short plan, and with the plain consumer as the only witness of the topics."""
    path = systems.APPS / case.scenario
    text = path.read_text().partition("[plan]")[0]
    file = folder / path.name
    file.write_text(text.replace("[app]\n", f'[app]\ndirectory = "{path.parent}"\n') + KILLS)
    scenario = load(file, case.changes | RARE_COMMITS | {"verify.witnesses": '["reader"]'})
    outcome = make_run(cluster, scenario, draw(scenario, 1), folder).execute()
    return run_of(case, outcome.directory)[0]


@pytest.mark.parametrize("name", ["streams/exactly_once_v2", "streams/at_least_once"])
def test_a_system_ends_as_its_case_demands(cluster: Cluster, tmp_path: Path, name: str) -> None:
    line = run_short(cluster, case_of(name), tmp_path)

    assert case_of(name).missing(line) == [], (line.verdict, line.anomalies, line.reasons)
    assert line.faults == {"kill_app app(*-1)": 1, "kill_app app(*-2)": 1}
    assert line.versions
    assert line.inputs > 500


@pytest.mark.soak
@pytest.mark.parametrize("seed", systems.SEEDS)
@pytest.mark.parametrize("case", read_cases(), ids=lambda case: case.name)
def test_every_case_ends_as_demanded_with_every_seed(
    cluster: Cluster, tmp_path: Path, case: Case, seed: int
) -> None:
    line = run_case(cluster, case, tmp_path, seed)

    assert case.missing(line) == [], (line.verdict, line.anomalies, line.reasons)
