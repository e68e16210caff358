"""Hazards by chance: no fault is aimed at a request, and the evidence distinguishes the causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from harness.report.late_endtxn_audit import find_broken_transactions
from harness.report.proportions import format_per_thousand
from harness.testing.plugin import Ran
from tests.hazards.conftest import CHANGED

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

MOST_RUNS = 6
"""Maximum number of runs. The hazard must break a transaction in at least one of them."""


def count(run: Callable[[int], Ran], wanted: str) -> tuple[Counter[str], dict[str, Any]]:
    """Repeat a run until a transaction breaks by the wanted cause. Return the causes, and the evidence."""
    causes: Counter[str] = Counter()
    transactions = 0
    for seed in range(1, MOST_RUNS + 1):
        broken, compared = find_broken_transactions(run(seed).directory)
        causes.update(transaction.cause for transaction in broken)
        transactions += compared
        if causes[wanted]:
            break
    rates = {cause: format_per_thousand(found, transactions) for cause, found in sorted(causes.items())}
    return causes, {"runs": seed, "transactions": transactions, **rates}


def test_leader_kills_under_impatient_producers_reuse_a_sequence(
    run_scenario: Callable[..., Ran], evidence: Callable[..., None]
) -> None:
    causes, rates = count(lambda seed: run_scenario("impatient-aborts", seed=seed), "reused sequence")
    evidence(**rates)
    assert causes["reused sequence"], f"no acknowledged record was lost: {CHANGED}"
    assert set(causes) == {"reused sequence"}


def test_patient_producers_lose_nothing_by_the_same_kills(
    run_scenario: Callable[..., Ran], evidence: Callable[..., None]
) -> None:
    ran = run_scenario("impatient-aborts", seed=1, workload__0__delivery_limit="0s")
    broken, compared = find_broken_transactions(ran.directory)
    evidence(transactions=compared, broken=[transaction.text for transaction in broken])
    assert broken == []
    assert compared > 0


@pytest.mark.packets
def test_lost_packets_between_brokers_make_markers_late(
    run_scenario: Callable[..., Ran], evidence: Callable[..., None]
) -> None:
    causes, rates = count(lambda seed: run_scenario("lost-flows", seed=seed), "late marker")
    evidence(**rates)
    assert causes["late marker"], f"no marker was late: {CHANGED}"
    assert set(causes) == {"late marker"}


@pytest.mark.packets
def test_a_new_producer_after_unclear_ends_does_not_keep_markers_from_being_late(
    run_scenario: Callable[..., Ran], evidence: Callable[..., None]
) -> None:
    """The client gets the answer to its end at once. A marker that commits too early counts as well."""
    for seed in range(1, MOST_RUNS + 1):
        ran = run_scenario("lost-flows", seed=seed, workload__0__end_discipline="reinit")
        if "undecided_marker" in ran.judgement.names():
            break
    broken, compared = find_broken_transactions(ran.directory)
    evidence(runs=seed, transactions=compared, broken=[transaction.text for transaction in broken])
    assert "undecided_marker" in ran.judgement.names(), f"no marker was late: {CHANGED}"


@pytest.mark.packets
def test_a_new_producer_before_every_transaction_loses_nothing_by_late_markers(
    run_scenario: Callable[..., Ran], evidence: Callable[..., None]
) -> None:
    ran = run_scenario("lost-flows", seed=1, workload__0__end_discipline="always")
    broken, compared = find_broken_transactions(ran.directory)
    evidence(transactions=compared, broken=[transaction.text for transaction in broken])
    assert broken == []
    assert compared > 0
    assert ran.verdict == "valid"
