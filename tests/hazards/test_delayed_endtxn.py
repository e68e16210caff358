"""The delayed EndTxn: found in every variant, by each client and each way, and gone with each cure."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.base.errors import ExitCode
from harness.base.events import PhaseEvent
from harness.cluster.cluster import Cluster
from harness.walkthroughs.delayed_endtxn import CLIENTS, TITLES
from harness.walkthroughs.endtxn_race import ENDS, NAMED
from harness.walkthroughs.walkthrough_page import NAME, document
from tests.hazards.conftest import CHANGED, WalkedThrough, run_flow

pytestmark = pytest.mark.cluster

FOUND_IN = (1, 2, 3, 4)
BY_PROXIES, REINIT, STANDBY = 5, 6, 7
Note = Callable[..., None]


@pytest.fixture(scope="module")
def flow(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> WalkedThrough:
    """One run of the flow, one try of each kind."""
    return run_flow(cluster, tmp_path_factory.mktemp("runs"), "delayed-endtxn", flow__tries="1")


@pytest.mark.parametrize("variant", ENDS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("way", ["tap", "proxies"])
def test_the_late_end_decides_the_next_transaction(
    flow: WalkedThrough, evidence: Note, client: str, variant: str, way: str
) -> None:
    steps = (BY_PROXIES,) if way == "proxies" else FOUND_IN
    tries = [t for s in steps for t in flow.tries(s) if t["name"].startswith(f"{client}-{variant}-")]
    evidence(way=way, tries=tries)
    assert len(tries) == 1
    for one in tries:
        assert set(one["found"]) == NAMED[variant], f"{one['name']} has shown {one['found']}: {CHANGED}"  # type: ignore[index]
        first, second = (_decided(end) for end in ENDS[variant])  # type: ignore[index]
        assert one["decided"] == first + first + second, f"{one['name']}: {one['decided']}: {CHANGED}"
        assert one["error"] == "", f"{one['name']} was refused, and its application told: {CHANGED}"
        assert one["late_answer"] == ("NONE" if way == "tap" else "")


@pytest.mark.parametrize("step", [REINIT, STANDBY], ids=["re-init", "standby"])
def test_the_cure_holds(flow: WalkedThrough, evidence: Note, step: int) -> None:
    tries = flow.tries(step)
    evidence(tries=[{k: t[k] for k in ("name", "late_answer", "cure_ms", "found")} for t in tries])
    assert not flow.steps[step - 1].missing
    assert len(tries) == 2 * len(CLIENTS)
    assert [t["found"] for t in tries] == [[]] * len(tries)


def test_the_run_tells_the_story_and_ends_as_it_was_announced(flow: WalkedThrough, evidence: Note) -> None:
    outcome = flow.outcome
    names = set(outcome.judgement.names())
    evidence(verdict=outcome.judgement.verdict, anomalies=sorted(names))
    assert [flow.missing(step.number) for step in flow.steps] == [""] * len(TITLES)
    assert names == set().union(*NAMED.values())
    assert outcome.expected
    assert outcome.exit_code is ExitCode.ANOMALY
    narrated = [
        event for event in flow.told if isinstance(event, PhaseEvent) and event.name.startswith("step")
    ]
    assert [event.detail.splitlines()[0] for event in narrated] == list(TITLES)
    page = (outcome.directory / NAME).read_text()
    assert page == document(outcome.directory)
    for proof in (
        "(held)",
        "(retry of",
        "released: EndTxn ABORT",
        "is PrepareAbort",
        "history/confluent-kafka-aC-1",
    ):
        assert proof in page


@pytest.mark.soak
def test_twenty_of_twenty(cluster: Cluster, tmp_path: object, evidence: Note) -> None:
    ran = run_flow(cluster, tmp_path, "delayed-endtxn", flow__tries="20")  # type: ignore[arg-type]
    evidence(claims=[c.observed for s in ran.steps for c in s.claims])
    assert [ran.missing(step.number) for step in ran.steps] == [""] * len(TITLES)
    assert len(ran.tries(1)) == len(ran.tries(2)) == 20


def _decided(end: str) -> list[str]:
    word = end.capitalize()
    return ["Ongoing", f"Prepare{word}", f"Complete{word}"]
