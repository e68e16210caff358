"""A late EndTxn by chance: twenty producers on slow connections, and no fault that targets an EndTxn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.report.late_endtxn_audit import BrokenTransaction, find_broken_transactions
from harness.report.proportions import format_per_thousand
from harness.testing.plugin import Ran
from tests.hazards.conftest import CHANGED

pytestmark = [pytest.mark.cluster, pytest.mark.soak]


MOST_RUNS = 8
"""Maximum number of runs. The slow links must break a transaction in at least one of them."""


def test_slow_links_alone_lead_to_a_late_endtxn(
    run_scenario: Callable[..., Ran], evidence: Callable[..., None]
) -> None:
    broken: list[BrokenTransaction] = []
    transactions = 0
    for seed in range(1, MOST_RUNS + 1):
        of_run, compared = find_broken_transactions(run_scenario("slow-links", seed=seed).directory)
        broken += of_run
        transactions += compared
        if any(transaction.late_endtxn for transaction in broken):
            break
    late = [transaction for transaction in broken if transaction.late_endtxn]
    evidence(
        runs=seed,
        late=format_per_thousand(len(late), transactions),
        broken=[transaction.text for transaction in broken],
        other=format_per_thousand(len(broken) - len(late), transactions),
    )
    assert late, f"no transaction of {seed} runs was broken by a late EndTxn: {CHANGED}"


def test_without_slow_links_no_transaction_breaks(
    run_scenario: Callable[..., Ran], tmp_path: Path, cluster: Cluster, evidence: Callable[..., None]
) -> None:
    quiet = tmp_path / "quiet.toml"
    text = (Path(__file__).parents[2] / "harness/scenario/shipped/slow-links.toml").read_text()
    head = text.split("[[fault]]")[0].replace('"invalid"', '"valid"').replace('["torn_transaction"]', "[]")
    quiet.write_text(head)
    ran = run_scenario(quiet, seed=1)
    broken, transactions = find_broken_transactions(ran.directory)
    evidence(transactions=transactions, broken=broken, cluster=cluster.state.path.name)
    assert ran.verdict == "valid"
    assert broken == []
