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
    # only an instance that was frozen past its session can write with an old generation; if it had begun to
    # write before, the other instance would wait for its transaction when it restores the totals
    "no-metadata": """
[[fault]]
fault = "hold_frame"
target = "all"
api = "AddPartitionsToTxn"
transactional_id = "app-1"
throughout = true

[[fault]]
fault = "freeze_app"
target = "app(app-1)"
past = "session"
at = "0s"
lasts = "20s"
""",
    # only a partition without a leader makes a send fail
    "swallows-errors": """
[[fault]]
fault = "kill"
target = "leader_of(invoices, 0)"
lasts = ["4s", "5s"]
""",
}
"""The plan's faults for a mistake that the other faults do not bring to light."""
SEEDS = range(1, 6)
SHORT = {"plan.steady": "1s", "plan.duration": "3s", "plan.gap": "500ms"}


def run_toy(cluster: Cluster, folder: Path, seed: int, faults: str = "", **changes: str) -> Outcome:
    file = TOY
    if faults:
        folder.mkdir(exist_ok=True)
        file = folder / "toy.toml"
        file.write_text(TOY.read_text().split("[[fault]]")[0] + SPECIAL_FAULTS[faults])
        changes |= {"app.directory": str(TOY.parent), "app.env.TRANSACTION_MS": '"60000"'}
    scenario = load(file, {"verify.witnesses": '["reader"]'} | changes)
    return make_run(cluster, scenario, draw(scenario, seed), folder / "run").execute()


def found_by_contract(outcome: Outcome, output: str = "") -> set[str]:
    """Return the anomalies of the contract; those with an example that names this output, if one is given."""
    anomalies = [a for r in outcome.judgement.results if r.property == "contract" for a in r.anomalies]
    return {a.name for a in anomalies if not output or any(f"{output}." in e.what for e in a.examples)}


def test_the_correct_toy_is_valid_for_all_witnesses(cluster: Cluster, tmp_path: Path) -> None:
    outcome = run_toy(cluster, tmp_path, 1, **{"verify.witnesses": ALL_WITNESSES, "plan.duration": "6s"})

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    (contract,) = (r for r in outcome.judgement.results if r.property == "contract")
    assert contract.compared > 500


@pytest.mark.parametrize(
    "mistakes", [("filter-too-wide", "state-not-restored"), ("id-dropped",), ("no-rewind",)], ids=" ".join
)
def test_a_mistake_is_found_by_name(cluster: Cluster, tmp_path: Path, mistakes: tuple[str, ...]) -> None:
    """Two mistakes are in one run, because each of them shows in an output that the other does not affect."""
    changes = SHORT | {"app.env.MISTAKE": f'"{" ".join(mistakes)}"', "fault.1.weight": "0.0001"}
    outcome = run_toy(cluster, tmp_path, 1, **changes)

    assert outcome.exit_code is ExitCode.ANOMALY, outcome.judgement
    for mistake in mistakes:
        output = "totals" if mistake == "state-not-restored" else "invoices"
        assert QUICK[mistake] in found_by_contract(outcome, output), outcome.judgement


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("faults", ["", *SPECIAL_FAULTS])
def test_the_correct_toy_is_valid_for_every_seed(
    cluster: Cluster, tmp_path: Path, faults: str, seed: int
) -> None:
    outcome = run_toy(cluster, tmp_path, seed, faults, **{"plan.duration": "30s"})

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement


@pytest.mark.soak
@pytest.mark.parametrize("mistake", QUICK | SLOW)
def test_every_mistake_is_found_in_one_of_the_same_seeds(
    cluster: Cluster, tmp_path: Path, mistake: str
) -> None:
    changes = {"app.env.MISTAKE": mistake, "plan.duration": "30s"}
    faults = mistake if mistake in SPECIAL_FAULTS else ""
    found: set[str] = set()
    for seed in SEEDS:
        found |= found_by_contract(run_toy(cluster, tmp_path / str(seed), seed, faults, **changes))
        if (QUICK | SLOW)[mistake] in found:
            return
    pytest.fail(f"{mistake}: found only {found}")
