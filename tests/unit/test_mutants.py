"""Each curated mutant fits the file that it changes; `python -m tools.mutants` runs the mutants."""

from __future__ import annotations

import pytest

from tools.mutants import ROOT, Mutant, load


@pytest.mark.parametrize("mutant", load(), ids=lambda mutant: mutant.name)
def test_the_text_that_a_mutant_replaces_is_in_its_file(mutant: Mutant) -> None:
    assert mutant.old in (ROOT / mutant.file).read_text()
    assert mutant.old != mutant.new
