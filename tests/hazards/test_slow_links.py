"""The delayed EndTxn by chance: twenty producers, slow connections, nothing aimed at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.tap.late import broken_of
from harness.testing import Ran

pytestmark = [pytest.mark.cluster, pytest.mark.soak]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_chance_finds_it_too(
    run_scenario: Callable[..., Ran], evidence: Callable[..., None], seed: int
) -> None:
    ran = run_scenario("slow-links", seed=seed)
    broken, transactions = broken_of(ran.directory)
    late = [one for one in broken if one.late]
    others = [one for one in broken if not one.late]
    evidence(seed=seed, transactions=transactions, late=len(late), others=others, examples=late[:3])
    evidence(seed=seed, names=sorted(set(ran.judgement.names())))
    assert late, "nothing of what went wrong is the work of a late EndTxn: has it been fixed?"
    assert all(one.overtaken for one in late), "each has an EndTxn before it that was overtaken by its retry"


def test_without_slow_links_nothing_breaks(
    run_scenario: Callable[..., Ran], tmp_path: Path, cluster: Cluster, evidence: Callable[..., None]
) -> None:
    quiet = tmp_path / "quiet.toml"
    text = (Path(__file__).parents[2] / "harness/scenarios/slow-links.toml").read_text()
    head = text.split("[[fault]]")[0].replace('"invalid"', '"valid"').replace('["torn_transaction"]', "[]")
    quiet.write_text(head)
    ran = run_scenario(quiet, seed=1)
    broken, transactions = broken_of(ran.directory)
    evidence(transactions=transactions, broken=broken, cluster=cluster.state.path.name)
    assert ran.verdict == "valid"
    assert broken == []
