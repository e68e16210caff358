"""The note on the application's transactions: whether the run shows what it does after an abort."""

from __future__ import annotations

import pytest

from harness.evidence.app_list import AppList, AppStart
from harness.evidence.checkers import app_transactions
from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.checkers.verdict import judge
from harness.evidence.history import FaultLine
from harness.evidence.ledger.history_scan import At
from harness.evidence.log_audit import CoordinatorLog, LoggedBatch, LoggedState, PartitionLog
from harness.evidence.stored_logs import StoredLogs
from tests.planted.cases_contract import RUN, AppCase

LETTERS = {
    "o": "Ongoing",
    "C": "PrepareCommit",
    "c": "CompleteCommit",
    "A": "PrepareAbort",
    "a": "CompleteAbort",
    "e": "Empty",
}
SEEDER = AppCase().evidence().ledger.producers[1].producer.transactional_id or ""


def evidence_of(
    states: dict[str, str], restarts: int = 0, wrote: tuple[str, ...] = ("app-1", SEEDER)
) -> Evidence:
    """Return the evidence of a run in which each transactional id went through the states."""
    evidence = AppCase().evidence()
    ids = {name: number for number, name in enumerate([*states, *wrote])}
    logged = [
        LoggedState(offset, 0, name, ids[name], 0, 60_000, LETTERS[letter], ())
        for name, text in states.items()
        for offset, letter in enumerate(text)
    ]
    batches = [LoggedBatch(n, n, ids[name], 0, 0, True, None, 0) for n, name in enumerate(wrote)]
    evidence.logs = StoredLogs(
        run=RUN, partitions=[PartitionLog(("out", 0), 0, batches)], coordinators=[CoordinatorLog(logged)]
    )
    starts = [AppStart(instance="app-1", number=n + 1, started=n) for n in range(restarts + 1)]
    evidence.app = AppList(run=RUN, clock="clock", starts=starts)
    return evidence


@pytest.mark.parametrize(
    ("states", "restarts", "counted", "warned"),
    [
        pytest.param("eoCcoCc", 0, "2 committed, 0 aborted", True, id="none-aborted"),
        pytest.param("eoCcoAaoCc", 0, "2 committed, 1 aborted", False, id="went-on"),
        pytest.param("eoCcoAaoCc", 3, "2 committed, 1 aborted", False, id="went-on-in-spite-of-restarts"),
        pytest.param("eoCcoAaeoCc", 1, "2 committed, 1 aborted", True, id="a-new-instance"),
        pytest.param("eoCcoAaeoCc", 0, "2 committed, 1 aborted", False, id="new-epoch-without-a-restart"),
        pytest.param("eoAaeoAaeoCc", 1, "1 committed, 2 aborted", False, id="more-aborts-than-restarts"),
    ],
)
def test_a_run_without_an_abort_of_the_application_is_marked(
    states: str, restarts: int, counted: str, warned: bool
) -> None:
    (note,) = app_transactions.notes(evidence_of({"app-1": states, SEEDER: "eoAaoCc"}, restarts))
    assert note.startswith(f"transactions of the application: {counted}")
    assert ("does not show what the application does after an abort" in note) is warned


@pytest.mark.parametrize(("by", "warned"), [("the application", False), ("the coordinator", True)])
def test_an_abort_that_a_fault_measured_counts(by: str, warned: bool) -> None:
    evidence = evidence_of({"app-1": "eoCcoAaeoCc"}, restarts=1)
    client = evidence.ledger.clients[0]
    line = FaultLine(mono=1, wall=1, stage="bite", id="f1", fault="lose_outputs", measured={"by": by})
    client.rare.append(At(99, line))
    (note,) = app_transactions.notes(evidence)
    assert ("does not show what the application does after an abort" in note) is warned


def test_the_verdict_has_the_note() -> None:
    evidence = evidence_of({"app-1": "eoCc"})
    assert app_transactions.notes(evidence)[0] in judge(evidence).notes


@pytest.mark.parametrize(
    ("states", "wrote"),
    [
        pytest.param({SEEDER: "eoAaoCc"}, (SEEDER,), id="the-producer-of-the-inputs"),
        pytest.param({"foreign": "eoAaoCc"}, (), id="wrote-elsewhere"),
        pytest.param({"app-1": "e"}, ("app-1",), id="no-transaction"),
    ],
)
def test_others_are_not_counted(states: dict[str, str], wrote: tuple[str, ...]) -> None:
    assert app_transactions.notes(evidence_of(states, wrote=wrote)) == []


def test_without_logs_or_without_an_application_there_is_no_note() -> None:
    without_logs, without_contract = (evidence_of({"app-1": "eoCc"}) for _ in range(2))
    without_logs.logs = None
    without_contract.expect = Expect(witnesses=[])
    assert app_transactions.notes(without_logs) == []
    assert app_transactions.notes(without_contract) == []
