"""Walkthroughs without a cluster: claims, missing evidence, the scenario file, the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import UsageError
from harness.evidence.checkers import step_coverage
from harness.evidence.checkers.model import Evidence, Expect, Verdict
from harness.evidence.ledger import Ledger
from harness.evidence.run_directory import RunDirectory, RunInfo
from harness.evidence.step_report import FILE, WalkthroughStep
from harness.kafka.log.batches import Batch
from harness.scenario import load, shipped
from harness.walkthroughs.catalogue import WALKTHROUGHS
from harness.walkthroughs.walkthrough_page import document
from harness.witness.raw_log import cause_of


def step(number: int, *, seen: bool = True) -> WalkthroughStep:
    made = WalkthroughStep(number=number, title=f"step {number}")
    made.prove("a producer has an id", "id 7" if seen else "nothing", seen)
    return made


def judged(steps: list[WalkthroughStep], promised: int = 2) -> tuple[Verdict, list[str]]:
    result = step_coverage.check(Evidence(Ledger(), [], Expect(walkthrough_steps=promised), steps))
    return result.verdict, result.reasons


def test_a_walkthrough_with_all_its_evidence_is_valid() -> None:
    other = step(2)
    other.compare("the answer is an error", "it is none", False)  # a deviation does not change the verdict
    assert judged([step(1), other]) == (Verdict.VALID, [])


def test_a_step_whose_evidence_is_missing_is_unknown() -> None:
    assert judged([step(1), step(2, seen=False)]) == (
        Verdict.UNKNOWN,
        ["step 2: a producer has an id: nothing"],
    )


def test_a_step_that_was_not_carried_out_is_unknown() -> None:
    assert judged([step(1)]) == (Verdict.UNKNOWN, ["step 2 was not carried out"])


def test_a_step_that_observed_nothing_is_unknown() -> None:
    assert judged([step(1), WalkthroughStep(number=2, title="empty")])[0] is Verdict.UNKNOWN


@pytest.mark.parametrize("name", WALKTHROUGHS)
def test_a_shipped_scenario_runs_each_walkthrough(name: str) -> None:
    parts = [scenario.walkthrough for scenario in map(load, shipped()) if scenario.walkthrough is not None]
    assert name in {part.steps for part in parts}
    assert len(WALKTHROUGHS[name].titles) > 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ('steps = "idempotant"', "did you mean idempotent"),
        ('steps = "idempotent"\n[[workload]]\nkind = "idempotent"', "a walkthrough has its own"),
        ('steps = "idempotent"\n[[fault]]\nfault = "kill"\ntarget = "one"', "a walkthrough has its own"),
        ('steps = "idempotent"\nbatch = 3', "there is no such key"),
        ('steps = "transactional"\nsource = "payments"', "name both"),
    ],
)
def test_an_error_in_a_walkthrough_names_its_line(tmp_path: Path, changed: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'[scenario]\nname = "mine"\nshows = "s"\n[walkthrough]\n{changed}\n')
    with pytest.raises(UsageError) as refused:
        load(path)
    assert message in str(refused.value)
    assert f"{path}:" in refused.value.message


def test_the_former_name_of_the_table_gets_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "old.toml"
    path.write_text('[scenario]\nname = "old"\nshows = "s"\n[flow]\nsteps = "idempotent"\n')
    with pytest.raises(UsageError) as refused:
        load(path)
    assert f"{path}:4: flow: this table has a new name" in refused.value.message
    assert "[walkthrough]" in str(refused.value)
    with pytest.raises(UsageError, match="this table has a new name"):
        load(shipped()[0], {"flow.tries": "3"})


def test_the_page_has_the_claims_and_the_evidence(tmp_path: Path) -> None:
    run = RunDirectory.create(
        tmp_path, RunInfo(run="abc12345", scenario="idempotent-walkthrough", seed=1, started="t")
    )
    with pytest.raises(UsageError, match="is not the run of a walkthrough"):
        document(run.path)
    made = step(1)
    made.compare("it is an error", "a | b", False)
    made.show(blocks=[[0, 3]])
    run.write(FILE, [made])
    text = document(run.path)
    assert "| 1 | a producer has an id | id 7 | same |" in text
    assert "| 1 | it is an error | a \\| b | different |" in text
    assert '"blocks": [[0, 3]]' in text


def batch(offset: int, pid: int, sequence: int, epoch: int = 0) -> Batch:
    return Batch(offset, offset, pid, epoch, sequence, False, None, ((offset, b"v"),))


@pytest.mark.parametrize(
    ("first", "again", "cause"),
    [
        (batch(0, -1, -1), batch(1, -1, -1), "no producer id"),
        (batch(0, 7, 0), batch(1, 8, 0), "new producer id: 7 wrote it first, 8 again"),
        (batch(0, 7, 0), batch(1, 7, 0, epoch=1), "in epoch 0, again in epoch 1"),
        (batch(0, 7, 3), batch(9, 7, 3), "the broker no longer kept the first"),
        (batch(0, 7, 3), batch(9, 7, 5), "the application sent it again"),
    ],
)
def test_the_cause_of_a_copy_follows_from_its_two_batches(first: Batch, again: Batch, cause: str) -> None:
    assert cause in cause_of(first, again)
