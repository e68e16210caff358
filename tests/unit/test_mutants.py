"""Mutants, each of which weakens one check: the text that a mutant replaces exists in its file.

The command `python -m tools.mutants` runs the tests on each mutant.
"""

from __future__ import annotations

import json

import pytest

from tools.mutants import KILLERS, ROOT, Failure, Mutant, Outcome, is_among, load


@pytest.mark.parametrize("mutant", load(), ids=lambda mutant: mutant.name)
def test_the_text_that_a_mutant_replaces_is_in_its_file(mutant: Mutant) -> None:
    assert mutant.old in (ROOT / mutant.file).read_text()
    assert mutant.old != mutant.new


def test_no_two_mutants_are_the_same() -> None:
    mutants = load()

    assert len({mutant.name for mutant in mutants}) == len(mutants)
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in mutants}) == len(mutants)


def test_every_recorded_killer_belongs_to_a_mutant_and_to_its_tests() -> None:
    mutants = {mutant.name: mutant for mutant in load()}
    killers: dict[str, str] = json.loads(KILLERS.read_text())

    assert killers.keys() <= mutants.keys()
    assert [name for name, killer in killers.items() if not is_among(killer, mutants[name])] == []


@pytest.mark.parametrize(
    ("failure", "excuse", "text", "survives"),
    [
        (Failure("tests/unit/test_a.py::test_b"), "", "killed   m", False),
        (None, "", "LIVES    m", True),
        (None, "it changes no verdict", "lives: it changes no verdict m", False),
        (Failure(""), "", "UNDECIDED m: no test failed within 300 s", True),
        (Failure("tests/unit/test_a.py"), "", "UNDECIDED m: tests/unit/test_a.py cannot be imported", True),
    ],
    ids=["killed", "alive", "excused", "a time-out", "no import"],
)
def test_only_a_test_that_failed_kills_a_mutant(
    failure: Failure | None, excuse: str, text: str, survives: bool
) -> None:
    outcome = Outcome(Mutant("m", "file", "old", "new", excuse), failure)
    assert (str(outcome), outcome.is_survivor) == (text, survives)
