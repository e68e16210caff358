"""Frame faults in scenarios: they are found by name, turned into rules, and refused if no frame can match."""

from __future__ import annotations

from typing import Any

import pytest

from harness.base.errors import UsageError
from harness.cluster.targets import Target
from harness.faults.catalogue import fault_class
from harness.faults.frame_faults import DelayFrame, DuplicateFrame, HoldFrame
from harness.scenario import FaultEntry, make_fault
from harness.tap.rules import Rule


@pytest.mark.parametrize(
    ("name", "parameters", "rule"),
    [
        (
            "lose_response_frame",
            {"api": "Produce", "topic": "a", "partition": 1},
            {"verb": "lose_response", "topic": "a", "partition": 1},
        ),
        (
            "lose_request_frame",
            {"api": "Produce", "then": "silence"},
            {"verb": "lose_request", "then": "silence"},
        ),
        (
            "hold_frame",
            {"api": "Produce", "drop_client": True, "until": "EndTxn"},
            {"verb": "hold", "drop_client": True, "until": "EndTxn"},
        ),
        (
            "delay_frame",
            {"api": "Produce", "delay_ms": 500, "nth": 3},
            {"verb": "delay", "seconds": 0.5, "nth": 3},
        ),
        ("duplicate_frame", {"api": "Produce"}, {"verb": "duplicate", "side": "response"}),
        ("cut_after_frame", {"api": "Produce", "client_id": "c"}, {"verb": "cut_after", "client_id": "c"}),
    ],
)
def test_a_fault_entry_becomes_a_rule(name: str, parameters: dict[str, Any], rule: dict[str, Any]) -> None:
    entry = FaultEntry(fault=name, target=Target.parse("all"), parameters=parameters)
    assert fault_class(name).name == name
    assert make_fault(entry).rule((1, 2), "r") == Rule(id="r", api="Produce", brokers=(1, 2), **rule)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (HoldFrame, {"api": "EndTransaction"}),
        (HoldFrame, {"api": "EndTxn", "until": "Commit"}),
        (HoldFrame, {"api": "EndTxn", "nth": 0}),
        (DelayFrame, {"api": "EndTxn", "delay_ms": 0}),
        (DuplicateFrame, {"api": "Produce", "partition": 0}),
    ],
)
def test_a_rule_that_no_frame_can_match_is_refused(kind: Any, parameters: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        kind(**parameters)
