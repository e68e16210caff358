"""What the contract of an application can find: how each key finds each anomaly, and what no key finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from harness.evidence.checkers.app_statements import is_permitted
from harness.evidence.checkers.model import AppContract, OutputContract

FINDABLE: Final = (
    "never_processed",
    "processed_twice",
    "phantom",
    "aborted_read",
    "reordered",
    "wrong_output",
    "aggregate_drift",
)
"""Anomalies that a contract can find. `stalled` is what `never_processed` is for an input not passed over."""

YES: Final = "yes"
NO: Final = "-"

COVERAGE: Final[dict[str, dict[str, str]]] = {
    "each": {"never_processed": YES, "processed_twice": YES, "phantom": YES, "aborted_read": YES},
    "order": {"reordered": YES},
    "holds": {"wrong_output": YES},
    "is": {
        "never_processed": "a whole key; else as aggregate_drift",
        "processed_twice": "as aggregate_drift",
        "phantom": "a whole key; else as aggregate_drift",
        "aborted_read": "as aggregate_drift",
        "reordered": "a key in several partitions",
        "wrong_output": "as aggregate_drift",
        "aggregate_drift": "at the end",
    },
    "is every": {
        "never_processed": "a whole key; else as aggregate_drift",
        "processed_twice": "as aggregate_drift",
        "phantom": "a whole key; else as aggregate_drift",
        "aborted_read": "as aggregate_drift",
        "reordered": "a key in several partitions",
        "wrong_output": "as aggregate_drift",
        "aggregate_drift": "also if it was repaired later",
    },
    "conserve": dict.fromkeys(
        ("never_processed", "processed_twice", "phantom", "aborted_read", "wrong_output", "aggregate_drift"),
        "as aggregate_drift, in the sum",
    ),
    "unique": {"processed_twice": "outputs with the same values"},
    "expect": {
        "never_processed": YES,
        "processed_twice": YES,
        "phantom": "as wrong_output",
        "aborted_read": "as wrong_output",
        "wrong_output": YES,
        "aggregate_drift": "as wrong_output",
    },
    "ids": {"never_processed": YES, "processed_twice": YES, "phantom": YES, "aborted_read": "as phantom"},
    "reference": {"never_processed": YES, "processed_twice": YES, "wrong_output": YES},
}
"""How each key of an output finds each anomaly. A key does not find an anomaly that it does not list.

An aggregate shows only what changes its value: a repeated input changes a sum, but no maximum.
"""

NOWHERE: Final = (
    "whether an output and the position of its input are in one transaction, if the final outputs are right",
    "effects of the application outside the declared outputs",
)
"""What no key of a contract checks."""


def coverage(contract: AppContract) -> list[tuple[str, ...]]:
    """Return a row for each anomaly in FINDABLE: its name, and how the contract of each output finds it."""
    return [(name, *(_cell(contract, output, name) for output in contract.outputs)) for name in FINDABLE]


def not_checked(contract: AppContract) -> list[str]:
    """Return what the contract of each output does not check, as one sentence per output."""
    found = []
    for output in contract.outputs:
        if missing := list(_missing(output, _statement_verbs(contract, output))):
            found.append(f"the contract of {output.topic} does not check: {'; '.join(missing)}")
    return found


def _missing(output: OutputContract, verbs: Sequence[str]) -> Iterator[str]:
    if output.tokens and not {"holds", "expect", "reference"} & {*verbs}:
        yield "content besides the token"
    if output.tokens and output.order == "none":
        yield "order"
    if "ids" in verbs:
        yield "content besides the tokens, and order"
        return
    if not output.tokens and {*verbs} == {"unique"}:
        yield "which inputs have outputs, content, and order"
        return
    if not output.tokens and "expect" not in verbs:
        yield "single outputs without effect on an aggregate"
    if not output.tokens and "is every" not in verbs:
        yield "values that were repaired later, and order"
    if output.tokens and not output.required and (output.most is None or output.most > output.least):
        yield f"outputs that each = {output.least}..{output.most or ''} permits"


def _statement_verbs(contract: AppContract, output: OutputContract) -> list[str]:
    return [statement.verb for statement in contract.statements if statement.output == output.topic]


def _verbs(contract: AppContract, output: OutputContract) -> list[str]:
    own = [*(["each"] if output.tokens else []), *(["order"] if output.order != "none" else [])]
    return list(dict.fromkeys([*own, *_statement_verbs(contract, output)]))


def _cell(contract: AppContract, output: OutputContract, anomaly: str) -> str:
    """Return how the keys of an output find an anomaly; a key that finds it by name comes first."""
    found = [
        (how, verb)
        for verb in _verbs(contract, output)
        if (how := COVERAGE.get(verb, {}).get(anomaly)) and not _is_open(output, verb, anomaly)
    ]
    if not found:
        return NO
    how, verb = min(found, key=lambda pair: pair[0] != YES)
    text = verb if how == YES else f"{verb}: {how}"
    return f"{text} (permitted)" if is_permitted(contract, anomaly) else text


def _is_open(output: OutputContract, verb: str, anomaly: str) -> bool:
    """Return whether `each` permits any number of outputs on this side."""
    if verb != "each" or output.required:
        return False
    return (anomaly == "never_processed" and output.least == 0) or (
        anomaly == "processed_twice" and output.most is None
    )
