"""The page that describes scenario files: it is current and complete."""

from __future__ import annotations

from harness.faults.catalogue import fault_classes
from tools import scenario_reference


def test_every_key_has_a_text_and_every_text_a_key() -> None:
    assert scenario_reference.missing_texts() == []


def test_the_page_is_what_the_code_gives() -> None:
    assert scenario_reference.FILE.read_text() == scenario_reference.reference(), (
        "run: python -m tools.scenario_reference"
    )


def test_the_page_has_every_fault() -> None:
    text = scenario_reference.FILE.read_text()
    assert [name for name in fault_classes() if f"### `{name}`" not in text] == []
