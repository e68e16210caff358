"""Calm runs before a run: their scenario, and the rows that they leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import HarnessError
from harness.evidence.token import token_of
from harness.run.reference_run import calm_scenario, reference_row
from harness.run.row_collection import references
from harness.scenario import load
from harness.scenario.plan import draw

TOY = Path(__file__).parents[1] / "toy" / "toy.toml"


def test_a_calm_run_has_the_inputs_of_the_run_and_no_fault() -> None:
    scenario = load(TOY, {"output.0.reference": '["total"]'})
    calm = calm_scenario(scenario)
    assert calm.input == scenario.input
    assert calm.app == scenario.app
    assert not draw(calm, 1).injections
    assert calm.plan.steady == scenario.plan.steady + scenario.plan.duration
    rules = {part.topic: part.each_rule for part in calm.output}
    assert {topic: (rule.least, rule.most) for topic, rule in rules.items()} == {
        "invoices": (0, None),
        "totals": (0, None),
    }
    names = [
        f"{name}{ending}" for name in ("orders", "invoices") for ending in (".reference", ".reference-2")
    ]
    assert references(scenario) == names
    assert references(load(TOY)) == []


def test_a_row_of_a_calm_run_has_the_tokens_of_the_run() -> None:
    calm, run = (token_of(name, 1, 2, 3) for name in ("calm1234", "r7k2m9qa"))
    value = f'{{"for":"{calm}","upper":"{calm.upper()}","other":"calm1234"}}'.encode()
    row = reference_row(value, "calm1234", "r7k2m9qa", "invoices")
    assert row == f'{{"for":"{run}","upper":"{run.upper()}","other":"calm1234"}}'.encode()


@pytest.mark.parametrize("value", [b"", b"x", b"[1]", b"\xff"])
def test_a_value_that_is_no_object_is_no_reference(value: bytes) -> None:
    with pytest.raises(HarnessError, match="is no JSON object"):
        reference_row(value, "calm1234", "r7k2m9qa", "invoices")
