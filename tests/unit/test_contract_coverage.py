"""The matrix of what a contract can find is the one that the report and the documentation show."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.evidence.checkers.app_statements import NAMES
from harness.evidence.checkers.contract_coverage import COVERAGE, FINDABLE, NO, YES, coverage, not_checked
from harness.evidence.checkers.model import ANOMALIES, AppContract, OutputContract
from harness.report import page
from harness.run.run_names import Names, rename_scenario
from harness.scenario import load
from harness.scenario.contract_sql import app_contract

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "application.md"
LABELS = {
    "each": "`each`",
    "order": "`order`",
    "holds": "`holds`",
    "is": "`is`",
    "is every": '`is`, `seen = "every"`',
    "conserve": "`conserve`",
    "unique": "`unique`",
    "expect": "`expect`",
    "ids": "`ids`",
    "reference": "`reference`",
}


def contract_of_toy() -> AppContract:
    scenario = load(ROOT / "tests" / "toy" / "toy.toml")
    contract = app_contract(rename_scenario(scenario, Names("", "r7k2m9qa").scoped))
    assert contract is not None
    return contract


def rows(*outputs: OutputContract, guarantee: str = "exactly once") -> dict[str, tuple[str, ...]]:
    contract = AppContract(inputs=["orders"], outputs=list(outputs))
    contract.guarantee = guarantee  # type: ignore[assignment]
    return {name: cells for name, *rest in coverage(contract) if (cells := tuple(rest))}


def test_the_documentation_contains_the_matrix() -> None:
    lines = [
        f"| | {' | '.join(f'`{name}`' for name in FINDABLE)} |",
        "| --- |" + " --- |" * len(FINDABLE),
        *(
            f"| {LABELS[key]} | {' | '.join(COVERAGE[key].get(name, '') for name in FINDABLE)} |"
            for key in COVERAGE
        ),
    ]
    assert "\n".join(lines) in DOCS.read_text()


def test_the_matrix_has_a_row_for_each_key_and_no_unknown_anomaly() -> None:
    assert {verb for verb, _ in NAMES} <= set(COVERAGE)
    assert {name for found in COVERAGE.values() for name in found} <= set(FINDABLE) <= set(ANOMALIES)


@pytest.mark.parametrize(("verb", "kind"), NAMES)
def test_what_a_statement_reports_is_in_its_row(verb: str, kind: str) -> None:
    assert COVERAGE[verb][NAMES[verb, kind]] != NO


def test_each_output_names_the_key_that_finds_an_anomaly() -> None:
    invoices, totals = zip(*(cells[1:] for cells in coverage(contract_of_toy())), strict=True)
    assert dict(zip(FINDABLE, invoices, strict=True)) == {
        "never_processed": "each",
        "processed_twice": "each",
        "phantom": "each",
        "aborted_read": "each",
        "reordered": "order",
        "wrong_output": "holds",
        "aggregate_drift": NO,
    }
    shown = dict(zip(FINDABLE, totals, strict=True))
    assert shown["aggregate_drift"] == "is: at the end"
    assert shown["never_processed"] == "is: a whole key; else as aggregate_drift"
    assert YES not in totals


def test_a_number_of_outputs_that_each_leaves_open_finds_nothing() -> None:
    at_most_one, at_least_one = (OutputContract(topic="o", least=n, most=m) for n, m in ((0, 1), (1, None)))
    assert rows(at_most_one)["never_processed"] == (NO,)
    assert rows(at_most_one)["processed_twice"] == ("each",)
    assert rows(at_least_one)["processed_twice"] == (NO,)
    by_query = OutputContract(topic="o", least=0, most=1000, required=True)
    assert rows(by_query)["never_processed"] == ("each",)


def test_what_the_guarantee_permits_is_marked() -> None:
    found = rows(OutputContract(topic="o"), guarantee="at least once")
    assert found["processed_twice"] == ("each (permitted)",)
    assert found["never_processed"] == ("each",)


def test_what_is_not_checked_is_listed() -> None:
    contract = AppContract(inputs=["i"], outputs=[OutputContract(topic="o", least=0)])
    assert not_checked(contract) == [
        "the contract of o does not check: content besides the token; order; outputs that each = 0..1 permits"
    ]


def test_the_report_has_the_matrix_and_what_is_not_checked() -> None:
    shown = page.contract_section(contract_of_toy())
    for text in ("What the contract can find", "is: at the end", "no contract checks effects of the"):
        assert text in shown
    assert page.contract_section(None) == ""
