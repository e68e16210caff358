"""Planted cases: the checkers must find the anomaly of each case, and nothing in a near miss.

A planted case is a tiny history and log that contains a known error (tiny.py). A near miss looks like an
error but is none.
"""

from __future__ import annotations

import importlib
import pkgutil

import msgspec
import pytest

from harness.evidence.checkers.model import ANOMALIES, Verdict
from harness.evidence.checkers.verdict import CHECKED_BY, judge
from tests import planted
from tests.planted import cases_records
from tests.planted.tiny import Tiny

MODULES = [
    importlib.import_module(f"tests.planted.{module.name}")
    for module in pkgutil.iter_modules(planted.__path__)
    if module.name.startswith("cases_")
]
"""Every module of cases. It may define CAUGHT, NEAR_MISSES (each by anomaly, then by label) and UNKNOWN."""

CAUGHT: list[tuple[str, str, Tiny, set[str] | None]] = [
    (name, label, *(case if isinstance(case, tuple) else (case, None)))
    for module in MODULES
    for name, cases in getattr(module, "CAUGHT", {}).items()
    for label, case in cases.items()
]
"""Name of the anomaly, label, case, and all names that the verdict must contain; None permits COMPANIONS."""

NEAR: list[tuple[str, str, Tiny]] = [
    (name, label, case)
    for module in MODULES
    for name, cases in getattr(module, "NEAR_MISSES", {}).items()
    for label, case in cases.items()
]
UNKNOWN: dict[str, Tiny] = {
    label: case for module in MODULES for label, case in getattr(module, "UNKNOWN", {}).items()
}
COMPANIONS = {"torn_transaction", "aborted_read", "log_truncated"}
"""Anomalies that the checkers may report for a case besides the one that the case is named after.

One fact can cause two anomalies: a transaction that lost a record is also torn, and if a log went back, the
records at its end are lost.
"""


def ids(cases: list[tuple[str, str, Tiny, set[str] | None]] | list[tuple[str, str, Tiny]]) -> list[str]:
    return [f"{case[0]}: {case[1]}" for case in cases]


@pytest.mark.parametrize(("name", "label", "case", "names"), CAUGHT, ids=ids(CAUGHT))
def test_a_planted_anomaly_is_reported(name: str, label: str, case: Tiny, names: set[str] | None) -> None:
    judgement = case.judge()
    found = set(judgement.names())

    assert name in found, f"{label}: {judgement.encode().decode()}"
    if names is None:
        assert found - (COMPANIONS - {name}) == {name}
    else:
        # A log that went back is reported besides what it lost.
        assert names <= found <= names | {"log_truncated"}
    assert judgement.verdict is Verdict.INVALID
    for result in judgement.results:
        assert all(result.property in CHECKED_BY[anomaly.name] for anomaly in result.anomalies)
    anomaly = next(a for result in judgement.results for a in result.anomalies if a.name == name)
    assert anomaly.count >= 1
    assert anomaly.examples
    assert all(
        example.what and (example.lines or example.offsets or example.witness) for example in anomaly.examples
    )


@pytest.mark.parametrize(("name", "label", "case"), NEAR, ids=ids(NEAR))
def test_a_near_miss_is_valid(name: str, label: str, case: Tiny) -> None:
    judgement = case.judge()

    assert judgement.names() == [], f"{name}, {label}: {judgement.encode().decode()}"
    assert judgement.verdict is Verdict.VALID, judgement.encode().decode()
    assert all(result.compared > 0 for result in judgement.results)


@pytest.mark.parametrize("name", cases_records.PERMITTED)
def test_deviations_that_kafka_permits_are_listed_but_no_anomaly(name: str) -> None:
    judgement = cases_records.PERMITTED[name].judge()

    assert judgement.verdict is Verdict.VALID
    assert name in {one.name for result in judgement.results for one in result.permitted}


@pytest.mark.parametrize("name", cases_records.PERMITTED)
def test_a_run_that_demands_exactly_once_counts_permitted_deviations(name: str) -> None:
    evidence = cases_records.PERMITTED[name].evidence()
    evidence.expect = msgspec.structs.replace(evidence.expect, hold_to="exactly_once")

    judgement = judge(evidence)

    assert judgement.verdict is Verdict.INVALID
    assert name in judgement.names()
    assert any("Kafka permits this" in reason for result in judgement.results for reason in result.reasons)


@pytest.mark.parametrize("label", UNKNOWN)
def test_insufficient_evidence_is_unknown(label: str) -> None:
    judgement = UNKNOWN[label].judge()

    assert judgement.verdict is Verdict.UNKNOWN, judgement.encode().decode()
    assert any(result.reasons for result in judgement.results)


@pytest.mark.parametrize("name", ANOMALIES)
def test_every_anomaly_has_three_cases_and_three_near_misses(name: str) -> None:
    assert len([case for case in CAUGHT if case[0] == name]) >= 3
    assert len([case for case in NEAR if case[0] == name]) >= 3


def test_the_same_evidence_gives_the_same_bytes() -> None:
    for _, _, case, _ in CAUGHT:
        assert case.judge().encode() == case.judge().encode()
