"""Contracts in SQL, run by the plain reader: each case has exactly the deviations that it names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.evidence.bit_words import sequences_in
from harness.evidence.contract_statement import as_cell, paths_of
from harness.evidence.observation import Meta, Observation, Window
from harness.evidence.record_fields import fields_of
from harness.evidence.statement_rows import RequiredError, required_rows
from harness.witness.contract_tables import ContractTables
from tests.contract_cases import (
    CASES,
    CONSERVE,
    INPUTS,
    REFERENCE,
    RUN,
    SqlCase,
    contract_of,
    records_of,
    token,
)


def observed(case: SqlCase, folder: Path) -> list[Observation]:
    tables = ContractTables(contract_of(case, folder), RUN)
    for topic, partition, offset, key, value in records_of(case):
        tables.add((topic, partition), offset, key, value)
    meta = Meta(witness="reader", kind="reference", windows=[Window("t", 0, 0, 9, 9, 9)], complete=True)
    found = tables.results(meta)
    tables.close()
    return found


def compare(case: SqlCase, views: list[Observation]) -> None:
    """Compare what an engine found with the case."""
    results = {result.verb: result for result in views[0].meta.statements}
    if case.error:
        assert [case.error in result.error for result in results.values()] == [True]
        return
    assert {verb: result.error for verb, result in results.items()} == dict.fromkeys(case.found, "")
    found = {verb: [(d.kind, d.weight) for d in result.found] for verb, result in results.items()}
    assert found == case.found
    assert all(result.compared for result in results.values())
    assert all(len(d.examples) == min(5, d.rows) for r in results.values() for d in r.found)
    if case.required is not None:
        (view,) = views[1:]
        assert view.meta.complete, view.meta.detail
        counts = [0] * len(case.required)
        for row in view.origins:
            for seq in sequences_in(int(row["word"]), row["bits"].tolist()):
                counts[seq] += 1
        assert counts == case.required
        (words,) = view.words[["producer", "lane", "word", "n"]].tolist()
        assert (words, int(view.words["bits"][0, 0])) == ((0, 0, 0, len(INPUTS)), 0b1111)
        assert (view.meta.records, view.meta.twice.compared) == (len(INPUTS), sum(case.required))


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_the_deviations_that_it_names(name: str, tmp_path: Path) -> None:
    compare(CASES[name], observed(CASES[name], tmp_path))


def test_an_example_names_what_is_demanded_and_written(tmp_path: Path) -> None:
    (view,) = observed(CASES["is last, counted twice"], tmp_path)
    (deviation,) = view.meta.statements[0].found
    assert deviation.examples == [["1", "2", "3", "16", "21"]]


@pytest.mark.parametrize(
    "case", [SqlCase(CONSERVE, []), SqlCase(REFERENCE, [], calm=([], []))], ids=["conserve", "reference"]
)
def test_without_any_output_nothing_was_compared(case: SqlCase, tmp_path: Path) -> None:
    (view,) = observed(case, tmp_path)
    assert [result.compared for result in view.meta.statements] == [0] * len(view.meta.statements)
    assert view.meta.statements


def test_a_contract_promises_to_list_the_inputs_with_a_number(tmp_path: Path) -> None:
    (query,) = contract_of(CASES["each by SQL"], tmp_path).required
    assert query.numbered


@pytest.mark.parametrize("number", ["x", None, -1, 1.5, 1001])
def test_a_wrong_number_of_outputs_is_an_error(number: object) -> None:
    with pytest.raises(RequiredError, match="not a number from 0 to 1000"):
        required_rows([(token(0), 1), (token(1), number)])


def test_outputs_required_are_bit_words() -> None:
    rows = required_rows([(token(3), 2.0), (token(300), True), (None, 5), (token(4), 0)])
    assert rows[["part", "word", "n"]].tolist() == [(0, 0, 1), (0, 1, 1), (1, 0, 1)]
    assert rows["bits"][0, 0] == np.uint64(8)
    assert not len(required_rows([]))


@pytest.mark.parametrize(
    ("value", "columns", "fields"),
    [
        (b'{"a":1,"b":{"c":"x","d":{"e":true}},"f":[1,2],"g":null}', [], "a b_c b_d_e f g"),
        (b"[1]", [], ""),
        (b"no", [], ""),
        (None, [], ""),
        (b'1,"a,b",2,3', ["x", "y", "z"], "x y z"),
    ],
)
def test_fields_of_a_value(value: bytes | None, columns: list[str], fields: str) -> None:
    assert " ".join(fields_of(value, columns)) == fields


def test_a_name_may_mean_several_paths() -> None:
    assert paths_of("a_b_c") == [["a_b_c"], ["a", "b_c"], ["a", "b", "c"], ["a_b", "c"]]


def test_the_same_number_has_the_same_text() -> None:
    assert [as_cell(x) for x in (5, 5.0, True, 0.1 + 0.2, None, "x")] == ["5", "5", "1", "0.3", None, "x"]
