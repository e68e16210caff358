"""The contract of an application: counts are of distinct outputs, whatever the number of witnesses."""

from __future__ import annotations

import msgspec
import pytest

from harness.evidence.app_list import AppEnd, AppList, AppStart
from harness.evidence.checkers.model import MOST_TOKENS, Example, OffsetRef
from harness.evidence.checkers.verdict import judge
from harness.evidence.contract_statement import PLACES, Deviation
from harness.evidence.token import token_of
from tests.planted.cases_contract import ALL, RUN, AppCase, Changed, of
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


def examples_of(case: AppCase) -> dict[str, Example]:
    """Return the first example of each anomaly, from a witness that stored the id of the run."""
    judged = Changed(case, "outputs", of(run=RUN)).judge()
    return {a.name: a.examples[0] for result in judged.results for a in result.anomalies}


def test_an_example_has_the_token_of_its_input_and_the_lines_of_its_send() -> None:
    found = examples_of(AppCase("p1a:0-9 p1b:0-4 p1b:4 . p1a:12-14 ."))
    twice, missing = found["processed_twice"], found["never_processed"]
    assert twice.tokens == [token_of(RUN, 1, 1, 4)]
    assert missing.tokens == [token_of(RUN, 1, 0, 15)]
    assert {line.client for example in (twice, missing) for line in example.lines} == {"p1"}


def test_an_example_of_many_inputs_has_the_first_tokens() -> None:
    missing = examples_of(AppCase("p1b:0-4"))["never_processed"]
    assert missing.tokens == [token_of(RUN, 1, 0, seq) for seq in range(MOST_TOKENS)]


@pytest.mark.parametrize(
    ("ends", "named"), [(("killed", "stopped"), "app-1"), (("stopped", "by a fault"), ""), ((), "")]
)
def test_stalled_inputs_name_the_instances_that_had_to_be_killed(
    ends: tuple[AppEnd, ...], named: str
) -> None:
    evidence = AppCase("p1a:0-9 p1b:0-4", consumed={"a": 10, "b": 5}).evidence()
    starts = [
        AppStart(instance=f"app-{number}", number=1, started=1, ended=end)
        for number, end in enumerate(ends, 1)
    ]
    evidence.app = AppList(run=RUN, clock="clock", starts=starts)
    (contract,) = (result for result in judge(evidence).results if result.property == "contract")
    (stalled,) = contract.anomalies
    assert stalled.name == "stalled"
    hung = f" ({named} did not end when asked to, as if a call hung, and had to be killed)" if named else ""
    assert stalled.examples[0].what.endswith(f"which stopped there{hung}")


def test_a_statement_that_names_an_output_has_its_offset_and_token() -> None:
    evidence = SqlCase(verb="holds").evidence()
    contract = evidence.expect.contract
    assert contract is not None
    statements = [msgspec.structs.replace(contract.statements[0], columns=list(PLACES))]
    contract = msgspec.structs.replace(contract, statements=statements)
    evidence.expect = msgspec.structs.replace(evidence.expect, contract=contract)
    token = token_of(RUN, 1, 0, 3)
    deviation = Deviation("differs", 2, 2, [[token, "1", "7"], [None, None, None]])
    evidence.observations[-1].meta.statements[0].found = [deviation]
    (anomaly,) = next(result for result in judge(evidence).results if result.property == "contract").anomalies
    named = {example.what: example for example in anomaly.examples}
    assert sorted((e.tokens, e.offsets) for e in named.values()) == [
        ([], []),
        ([token], [OffsetRef("out", 1, 7, 7)]),
    ]
