"""The contract of an application: counts are of distinct outputs, whatever the number of witnesses."""

from __future__ import annotations

import pytest

from tests.planted.cases_contract import ALL, AppCase, Changed, of
from tests.planted.cases_statements import SqlCase


@pytest.mark.parametrize(
    ("case", "name", "counted"),
    [
        pytest.param(AppCase(ALL, "p1a:0-9 p1b:0-4"), "processed_twice", 15, id="copies-elsewhere"),
        pytest.param(AppCase("p1a:0-9 p1b:0-4"), "never_processed", 4, id="missing"),
        pytest.param(
            AppCase("p1a:0-9 p1b:0-4", each=(2, 2), order="none"), "never_processed", 19, id="one-of-two"
        ),
        pytest.param(
            AppCase("p1a:0-9 p1b:0-4", other="p1a:0-9 p1b:0-4", witnesses=("reader", "spark")),
            "never_processed",
            4,
            id="two-witnesses",
        ),
    ],
)
def test_counts_are_exact(case: AppCase, name: str, counted: int) -> None:
    found = {a.name: a.count for result in case.judge().results for a in result.anomalies}
    assert found == {name: counted}


@pytest.mark.parametrize(
    ("case", "notes"),
    [
        pytest.param(AppCase(), "content besides the token", id="no-content"),
        pytest.param(AppCase(order="none"), "content besides the token; order", id="no-order"),
        pytest.param(
            AppCase(each=(0, 1)), "content besides the token; outputs that each = 0..1 permits", id="may"
        ),
        pytest.param(SqlCase(verb="holds"), "order", id="holds"),
        pytest.param(
            SqlCase(verb="is", tokens=False),
            "single outputs without effect on an aggregate; values that were repaired later, and order",
            id="last",
        ),
        pytest.param(
            SqlCase(verb="is every", tokens=False),
            "single outputs without effect on an aggregate",
            id="every",
        ),
    ],
)
def test_the_notes_list_what_a_contract_does_not_check(case: AppCase, notes: str) -> None:
    assert f"the contract of out does not check: {notes}" in case.judge().notes


@pytest.mark.parametrize(
    ("case", "note"),
    [
        pytest.param(AppCase(source="http"), "only the harness's HTTP sink saw the calls of out", id="http"),
        pytest.param(AppCase(source="command"), "only the command of out printed its rows", id="command"),
        pytest.param(
            AppCase(source="jdbc", other=ALL, witnesses=("reader",)), "only one witness read out", id="jdbc"
        ),
    ],
)
def test_the_notes_name_outputs_that_one_witness_saw(case: AppCase, note: str) -> None:
    assert any(text.startswith(note) for text in case.judge().notes)


@pytest.mark.parametrize(
    "case", [AppCase(), AppCase(source="jdbc", other=ALL, witnesses=("reader", "spark-batch"))]
)
def test_two_witnesses_need_no_note(case: AppCase) -> None:
    assert not [note for note in case.judge().notes if note.startswith("only")]


def test_a_complete_contract_has_no_note() -> None:
    assert not [
        note for note in SqlCase(verb="expect", order="partition").judge().notes if "contract" in note
    ]


def test_calm_runs_that_differ_are_the_reason_of_an_unknown_verdict() -> None:
    judgement = SqlCase(verb="calm", found=[("differs", 2)]).judge()
    reasons = [reason for result in judgement.results for reason in result.reasons]
    assert any("out: two calm runs differ in x, for 2 outputs" in reason for reason in reasons), reasons
    assert judgement.names() == []


def test_a_contract_without_inputs_is_unknown_by_itself() -> None:
    case = Changed(SqlCase(group="", consumed=None, tokens=False), "all", of(complete=False))
    (contract,) = [result for result in case.judge().results if result.property == "contract"]
    assert contract.verdict == "unknown"
    assert contract.reasons == ["no witness read the inputs t completely"]
