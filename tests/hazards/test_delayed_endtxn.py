"""Hazard of a late EndTxn, with two client libraries: it ends the producer's next transaction.

A late EndTxn belongs to a transaction that has already ended (docs/hazards.md). The walkthrough delays the
EndTxn in two ways: in the wire tap, and in two proxies in series. Each variant combines a commit or abort of
that transaction with a commit or abort of the next one. The walkthrough also shows two cures, which prevent
the hazard: a new producer with the same transactional id, and a standby producer with another one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.base.errors import ExitCode
from harness.base.events import PhaseEvent
from harness.cluster.cluster import Cluster
from harness.walkthroughs.delayed_endtxn import CLIENTS, TITLES
from harness.walkthroughs.endtxn_race import ANOMALIES, ENDS
from harness.walkthroughs.walkthrough_page import NAME, document
from tests.hazards.conftest import CHANGED, WalkedThrough, run_walkthrough

pytestmark = pytest.mark.cluster

FOUND_IN = (1, 2, 3, 4)
BY_PROXIES, REINIT, STANDBY = 5, 6, 7
Note = Callable[..., None]


@pytest.fixture(scope="module")
def walked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> WalkedThrough:
    """Run the walkthrough once, with one attempt per case; return its outcome and events."""
    return run_walkthrough(cluster, tmp_path_factory.mktemp("runs"), "delayed-endtxn", walkthrough__tries="1")


@pytest.mark.parametrize("variant", ENDS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("way", ["tap", "proxies"])
def test_a_late_endtxn_ends_the_next_transaction(
    walked: WalkedThrough, evidence: Note, client: str, variant: str, way: str
) -> None:
    steps = (BY_PROXIES,) if way == "proxies" else FOUND_IN
    tries = [t for s in steps for t in walked.tries(s) if t["name"].startswith(f"{client}-{variant}-")]
    evidence(way=way, tries=tries)
    assert len(tries) == 1
    for attempt in tries:
        assert set(attempt["found"]) == ANOMALIES[variant], (
            f"{attempt['name']} has shown {attempt['found']}: {CHANGED}"
        )  # type: ignore[index]
        first, second = (_decided(end) for end in ENDS[variant])  # type: ignore[index]
        assert attempt["decided"] == first + first + second, (
            f"{attempt['name']}: {attempt['decided']}: {CHANGED}"
        )
        assert attempt["error"] == "", (
            f"{attempt['name']} was refused, and its application got the error: {CHANGED}"
        )
        assert attempt["late_answer"] == ("NONE" if way == "tap" else "")


@pytest.mark.parametrize("step", [REINIT, STANDBY], ids=["re-init", "standby"])
def test_no_attempt_shows_the_hazard_with_a_cure(walked: WalkedThrough, evidence: Note, step: int) -> None:
    tries = walked.tries(step)
    evidence(tries=[{k: t[k] for k in ("name", "late_answer", "cure_ms", "found")} for t in tries])
    assert walked.missing(step) == ""
    assert len(tries) == 2 * len(CLIENTS)
    assert [t["found"] for t in tries] == [[]] * len(tries)


def test_the_run_shows_every_step_and_ends_as_the_scenario_expects(
    walked: WalkedThrough, evidence: Note
) -> None:
    outcome = walked.outcome
    names = set(outcome.judgement.names())
    evidence(verdict=outcome.judgement.verdict, anomalies=sorted(names))
    assert [walked.missing(step.number) for step in walked.steps] == [""] * len(TITLES)
    assert names == set().union(*ANOMALIES.values())
    assert outcome.expected, CHANGED
    assert outcome.exit_code is ExitCode.ANOMALY
    step_events = [
        event for event in walked.events if isinstance(event, PhaseEvent) and event.name.startswith("step")
    ]
    assert [event.detail.splitlines()[0] for event in step_events] == list(TITLES)
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
def test_twenty_of_twenty_attempts_give_the_same_result(
    cluster: Cluster, tmp_path: object, evidence: Note
) -> None:
    ran = run_walkthrough(cluster, tmp_path, "delayed-endtxn", walkthrough__tries="20")  # type: ignore[arg-type]
    evidence(claims=[c.observed for s in ran.steps for c in s.claims])
    assert [ran.missing(step.number) for step in ran.steps] == [""] * len(TITLES)
    assert len(ran.tries(1)) == len(ran.tries(2)) == 20


def _decided(end: str) -> list[str]:
    word = end.capitalize()
    return ["Ongoing", f"Prepare{word}", f"Complete{word}"]
