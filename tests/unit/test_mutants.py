"""Mutants, each of which weakens one check: the text that a mutant replaces exists in its file.

The command `python -m tools.mutants` runs the tests on each mutant.
"""

from __future__ import annotations

import json

import pytest

from tools.mutants import KILLERS, ROOT, Mutant, load


@pytest.mark.parametrize("mutant", load(), ids=lambda mutant: mutant.name)
def test_the_text_that_a_mutant_replaces_is_in_its_file(mutant: Mutant) -> None:
    assert mutant.old in (ROOT / mutant.file).read_text()
    assert mutant.old != mutant.new


def test_no_two_mutants_are_the_same() -> None:
    mutants = load()

    assert len({mutant.name for mutant in mutants}) == len(mutants)
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in mutants}) == len(mutants)


def test_every_recorded_killer_belongs_to_a_mutant_and_to_its_tests() -> None:
    tests = {mutant.name: mutant.tests for mutant in load()}
    killers: dict[str, str] = json.loads(KILLERS.read_text())

    assert killers.keys() <= tests.keys()
    for name, killer in killers.items():
        file = killer.partition("::")[0]
        assert (ROOT / file).exists(), name
        assert any(file == test or file.startswith(f"{test}/") for test in tests[name]), name
