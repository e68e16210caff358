"""A toy application with a filter and totals: the correct one is valid, every mistake is found by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import ExitCode
from harness.cluster.cluster import Cluster
from harness.run import make_run
from harness.run.run import Outcome
from harness.scenario import load
from harness.scenario.plan import draw

pytestmark = pytest.mark.cluster
TOY = Path(__file__).parents[1] / "toy" / "toy.toml"
ALL_WITNESSES = '["spark", "reader", "raw-log"]'
QUICK = {
    "filter-too-wide": "never_processed",
    "state-not-restored": "aggregate_drift",
    "id-dropped": "phantom",
    "no-rewind": "never_processed",
}
SLOW = {
    "positions-first": "never_processed",
    "no-metadata": "processed_twice",
    "outside": "processed_twice",
    "sends-again": "wrong_output",
    "counts-twice": "aggregate_drift",
    "swallows-errors": "never_processed",
}
SPECIAL_FAULTS = {
    # only an instance that was frozen past its session can write with an old generation
    "no-metadata": {"fault.0.fault": "freeze_app", "fault.0.lasts": '["8s", "9s"]'},
    # only a partition without a leader makes a send fail
    "swallows-errors": {"fault.1.weight": "9.0"},
}
"""Changes of the plan's faults for a mistake that the other faults do not bring to light."""
SEEDS = range(1, 6)


def run_toy(cluster: Cluster, folder: Path, seed: int, **changes: str) -> Outcome:
    scenario = load(TOY, {"verify.witnesses": '["reader"]'} | changes)
    return make_run(cluster, scenario, draw(scenario, seed), folder).execute()


def found_by_contract(outcome: Outcome) -> set[str]:
    return {a.name for r in outcome.judgement.results if r.property == "contract" for a in r.anomalies}


def test_the_correct_toy_is_valid_for_all_witnesses(cluster: Cluster, tmp_path: Path) -> None:
    outcome = run_toy(cluster, tmp_path, 1, **{"verify.witnesses": ALL_WITNESSES})

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    (contract,) = (r for r in outcome.judgement.results if r.property == "contract")
    assert contract.compared > 500


@pytest.mark.parametrize("mistake", QUICK)
def test_a_mistake_is_found_by_name(cluster: Cluster, tmp_path: Path, mistake: str) -> None:
    changes = {"app.env.MISTAKE": mistake, "plan.duration": "6s", "fault.1.weight": "0.0001"}
    outcome = run_toy(cluster, tmp_path, 1, **changes)

    assert outcome.exit_code is ExitCode.ANOMALY, outcome.judgement
    assert QUICK[mistake] in found_by_contract(outcome), outcome.judgement


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("faults", ["", *SPECIAL_FAULTS])
def test_the_correct_toy_is_valid_for_every_seed(
    cluster: Cluster, tmp_path: Path, faults: str, seed: int
) -> None:
    changes = {"plan.duration": "30s"} | SPECIAL_FAULTS.get(faults, {})
    outcome = run_toy(cluster, tmp_path, seed, **changes)

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement


@pytest.mark.soak
@pytest.mark.parametrize("mistake", QUICK | SLOW)
def test_every_mistake_is_found_in_one_of_the_same_seeds(
    cluster: Cluster, tmp_path: Path, mistake: str
) -> None:
    found: set[str] = set()
    for seed in SEEDS:
        changes = {"app.env.MISTAKE": mistake, "plan.duration": "30s"} | SPECIAL_FAULTS.get(mistake, {})
        found |= found_by_contract(run_toy(cluster, tmp_path / str(seed), seed, **changes))
        if (QUICK | SLOW)[mistake] in found:
            return
    pytest.fail(f"{mistake}: found only {found}")
