"""The reference pages that are written from the code: they are current and complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.main import cli
from harness.faults.catalogue import fault_classes
from harness.scenario import load
from tools import command_reference, scenario_reference


def test_every_key_has_a_text_and_every_text_a_key() -> None:
    assert scenario_reference.missing_texts() == []


def test_the_page_is_what_the_code_gives() -> None:
    assert scenario_reference.FILE.read_text() == scenario_reference.reference(), (
        "run: python -m tools.scenario_reference"
    )


def test_the_page_has_every_fault() -> None:
    text = scenario_reference.FILE.read_text()
    assert [name for name in fault_classes() if f"### `{name}`" not in text] == []


def test_the_example_of_parameters_can_be_planned(tmp_path: Path) -> None:
    header = '[scenario]\nname = "x"\nshows = "y"\n[[workload]]\nkind = "transactional"\ntopic = "orders"\n'
    file = tmp_path / "x.toml"
    file.write_text(header + scenario_reference.FAULT_EXAMPLE.partition("```toml")[2].partition("```")[0])
    faults = load(file).fault
    assert [entry.fault for entry in faults] == ["jitter", "lose_response_frame"]
    assert load(file, {"fault.0.latency": "80ms"}).fault[0].parameters["latency_ms"] == 80


@pytest.mark.parametrize("name", command_reference.PAGES)
def test_the_pages_of_commands_and_formats_are_what_the_code_gives(name: str) -> None:
    page = command_reference.FOLDER / name

    assert page.read_text() == command_reference.PAGES[name](), "run: python -m tools.command_reference"


def test_the_page_of_commands_has_every_command_and_option() -> None:
    text = command_reference.cli_reference()

    assert [name for name in cli.commands if f"### `eos {name}`" not in text] == []
    assert text.count("`--seed N`") >= 2
