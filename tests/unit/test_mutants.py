"""Mutants, each of which weakens one check: the text that a mutant replaces exists in its file.

The command `python -m tools.mutants` runs the tests on each mutant.
"""

from __future__ import annotations

import pytest

from tools.mutants import ROOT, Mutant, load


@pytest.mark.parametrize("mutant", load(), ids=lambda mutant: mutant.name)
def test_the_text_that_a_mutant_replaces_is_in_its_file(mutant: Mutant) -> None:
    assert mutant.old in (ROOT / mutant.file).read_text()
    assert mutant.old != mutant.new
