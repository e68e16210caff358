"""The times that the liveness checker starts from, and the properties that a run's evidence selects."""

from __future__ import annotations

from typing import Any

import pytest

from harness.evidence.checkers.liveness import last_heals
from harness.evidence.checkers.model import Expect
from harness.evidence.checkers.verdict import properties_of
from harness.evidence.history import FaultLine
from harness.evidence.ledger import Ledger, Scan
from harness.evidence.ledger.history_scan import At
from tests.planted.cases_systems import SHARED
from tests.planted.tiny import Tiny


def journal(name: str, *stages: tuple[str, int]) -> Scan:
    """Return the scan of a history with the stages of one fault, each with its time."""
    lines: list[Any] = [FaultLine(stage=stage, id=name, mono=mono, wall=0) for stage, mono in stages]  # type: ignore[arg-type]
    return Scan(name, rare=[At(number, line) for number, line in enumerate(lines, 2)])


def test_the_last_heal_is_the_latest_of_all_histories() -> None:
    late = journal("faults-1", ("intent", 1), ("healed", 90))
    early = journal("faults-2", ("intent", 2), ("healed", 50))
    assert last_heals(Ledger(clients=[late, early])) == {"": 90}
    assert last_heals(Ledger(clients=[early, late])) == {"": 90}
    assert last_heals(Ledger()) == {}


def test_a_fault_that_is_active_in_any_history_leaves_no_last_heals() -> None:
    healed = journal("faults-1", ("intent", 1), ("healed", 90))
    assert last_heals(Ledger(clients=[journal("faults-2", ("intent", 2)), healed])) is None


@pytest.mark.parametrize(("settings", "is_checked"), [(SHARED, True), ({}, False)], ids=["shared", "own"])
def test_fencing_is_checked_if_producers_share_an_id_even_without_the_raw_log(
    settings: dict[str, dict[str, Any]], is_checked: bool
) -> None:
    evidence = Tiny("p1 commit ok a:0-1\n p2 commit ok a:0-1", {"a": "p1:0-1 p2:0-1"}, settings).evidence()
    for view in evidence.observations:
        view.meta.epochs.compared = 0
    assert ("fencing" in properties_of(evidence)) is is_checked


def test_the_steps_of_a_walkthrough_are_checked_if_the_run_promised_them() -> None:
    evidence = Tiny("p1 commit ok a:0-1", {"a": "p1:0-1"}).evidence()
    assert "walkthrough" not in properties_of(evidence)
    evidence.expect = Expect(walkthrough_steps=1)
    assert "walkthrough" in properties_of(evidence)
