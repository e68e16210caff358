"""The delayed EndTxn by chance: twenty producers on slow connections, without an aimed fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.report.late_endtxn_audit import Broken, broken_of
from harness.report.proportions import in_a_thousand
from harness.testing.plugin import Ran
from tests.hazards.conftest import CHANGED

pytestmark = [pytest.mark.cluster, pytest.mark.soak]


MOST_RUNS = 8
"""Most runs; the first run that shows the hazard ends the search."""


def test_slow_links_cause_a_late_endtxn_by_chance(
    run_scenario: Callable[..., Ran], evidence: Callable[..., None]
) -> None:
    found: list[Broken] = []
    transactions = 0
    for seed in range(1, MOST_RUNS + 1):
        broken, judged = broken_of(run_scenario("slow-links", seed=seed).directory)
        found += broken
        transactions += judged
        if any(one.late for one in found):
            break
    late = [one for one in found if one.late]
    evidence(
        runs=seed,
        late=in_a_thousand(len(late), transactions),
        broken=[one.text for one in found],
        other=in_a_thousand(len(found) - len(late), transactions),
    )
    assert late, f"no late EndTxn in {seed} runs: {CHANGED}"


def test_without_slow_links_no_transaction_breaks(
    run_scenario: Callable[..., Ran], tmp_path: Path, cluster: Cluster, evidence: Callable[..., None]
) -> None:
    quiet = tmp_path / "quiet.toml"
    text = (Path(__file__).parents[2] / "harness/scenario/shipped/slow-links.toml").read_text()
    head = text.split("[[fault]]")[0].replace('"invalid"', '"valid"').replace('["torn_transaction"]', "[]")
    quiet.write_text(head)
    ran = run_scenario(quiet, seed=1)
    broken, transactions = broken_of(ran.directory)
    evidence(transactions=transactions, broken=broken, cluster=cluster.state.path.name)
    assert ran.verdict == "valid"
    assert broken == []
