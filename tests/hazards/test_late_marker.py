"""Hazard of a late marker, with two client libraries: it ends records of the producer's next transaction.

The coordinator of a transaction sends its markers to the leaders of partitions (WriteTxnMarkers). The wire
tap between the brokers holds the first of these requests, and releases it during the next transaction. The
walkthrough also shows a control, in which the same frame arrives between the two transactions, and a cure.
The same marker on `__consumer_offsets` moves a group.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.base.errors import ExitCode
from harness.clients.client_spec import Discipline
from harness.cluster.cluster import Cluster
from harness.faults import HoldFrame, arm
from harness.walkthroughs import late_position_marker
from harness.walkthroughs.delayed_endtxn import CLIENTS
from harness.walkthroughs.endtxn_race import ANOMALIES, ENDS
from harness.walkthroughs.late_marker import CONTROL_TITLES, DAMAGE, REFUSED, TITLES
from harness.walkthroughs.late_request import Outcome
from tests.hazards.conftest import CHANGED, WalkedThrough, answer_of, check_attempts, run_walkthrough
from tests.hazards.own_client import DISCIPLINES, OwnClient, Result

pytestmark = [pytest.mark.cluster, pytest.mark.needs("internal_tap")]

FOUND_IN = (1, 2, 3, 4)
HARMLESS, REINIT = 5, 6
Note = Callable[..., None]


@pytest.fixture(scope="module")
def walked(started_with_internal_tap: Cluster, tmp_path_factory: pytest.TempPathFactory) -> WalkedThrough:
    """Run the walkthrough once, with one attempt per case; return its outcome and events."""
    folder = tmp_path_factory.mktemp("runs")
    return run_walkthrough(started_with_internal_tap, folder, "late-marker", walkthrough__tries="1")


@pytest.mark.parametrize("variant", ENDS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_late_marker_ends_records_of_the_next_transaction(
    walked: WalkedThrough, evidence: Note, client: str, variant: str
) -> None:
    tries = [t for s in FOUND_IN for t in walked.tries(s) if t["name"].startswith(f"{client}-{variant}-")]
    evidence(tries=tries)
    (attempt,) = tries
    assert set(attempt["found"]) == ANOMALIES[variant], f"{attempt['found']}: {CHANGED}"  # type: ignore[index]
    assert attempt["damage"] == DAMAGE[variant], f"eos audit finds {attempt['damage']}"  # type: ignore[index]
    # The coordinator decided what the client requested, and the client got no error.
    words = [end.capitalize() for end in ENDS[variant]]  # type: ignore[index]
    assert attempt["decided"] == [s for w in words for s in ("Ongoing", f"Prepare{w}", f"Complete{w}")]
    assert (attempt["error"], attempt["late_answer"]) == ("", "NONE"), CHANGED


@pytest.mark.parametrize(
    ("step", "answer"), [(HARMLESS, "NONE"), (REINIT, REFUSED)], ids=["between", "re-init"]
)
def test_no_attempt_shows_the_hazard_in_the_control_or_with_the_cure(
    walked: WalkedThrough, evidence: Note, step: int, answer: str
) -> None:
    tries = walked.tries(step)
    evidence(tries=tries)
    assert walked.missing(step) == ""
    assert len(tries) == 2 * len(CLIENTS)
    assert [(t["found"], t["damage"], t["late_answer"]) for t in tries] == [([], [], answer)] * len(tries)


def test_the_run_shows_every_step_and_ends_as_the_scenario_expects(walked: WalkedThrough) -> None:
    outcome = walked.outcome
    assert [walked.missing(step.number) for step in walked.steps] == [""] * len(TITLES)
    assert set(outcome.judgement.names()) == set().union(*ANOMALIES.values())
    assert outcome.expected, CHANGED
    assert outcome.exit_code is ExitCode.ANOMALY
    markers = walked.steps[0].evidence["markers"]
    assert next(row[3] for row in markers if row[2] == "request") == "held"
    assert all(row[0].endswith("txn-marker-sender") for row in markers)


@pytest.mark.soak
def test_twenty_of_twenty_attempts_give_the_same_result(
    started_with_internal_tap: Cluster, tmp_path: object, evidence: Note
) -> None:
    ran = run_walkthrough(started_with_internal_tap, tmp_path, "late-marker", walkthrough__tries="20")  # type: ignore[arg-type]
    evidence(claims=[c.observed for s in ran.steps for c in s.claims])
    assert [ran.missing(step.number) for step in ran.steps] == [""] * len(TITLES)
    assert len(ran.tries(1)) == len(ran.tries(2)) == 20


POSITIONS = [
    Outcome("NONE", position=0, damage=("records_lost",)),
    Outcome("NONE", position=4, damage=("aborted_readable",)),
    Outcome("NONE", position=4),
]
"""What each attempt of each step of `late-position-marker` must show."""


@pytest.mark.parametrize("tries", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_a_late_marker_moves_a_group(
    started_with_internal_tap: Cluster,
    tmp_path: Path,
    evidence: Note,
    request: pytest.FixtureRequest,
    tries: int,
) -> None:
    later = 1 if tries == 3 else request.config.getoption("repeats")
    settings = {"walkthrough__tries": str(tries), "walkthrough__control_tries": str(later)}
    ran = run_walkthrough(started_with_internal_tap, tmp_path, "late-position-marker", **settings)
    evidence(claims=[c.observed for s in ran.steps for c in s.claims])
    check_attempts(ran, late_position_marker.TITLES, POSITIONS, tries, later)


OF_DISCIPLINE: dict[Discipline, Result] = {
    "naive": Result("NONE", []),
    # The client gets the answer to its end at once, so that nothing is unclear.
    "reinit": Result("NONE", []),
    "always": Result(REFUSED, [b"B"], new_producers=1),
}


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_only_a_new_producer_before_every_transaction_protects_a_client_of_the_harness(
    internal_cluster: Cluster, tmp_path: Path, evidence: Note, discipline: Discipline
) -> None:
    client = OwnClient(internal_cluster, tmp_path, discipline, "DIRECT")
    fault = HoldFrame(
        api="WriteTxnMarkers", topic=client.topic, partition=0, drop_client=True, listener="INTERNAL"
    )
    with arm(internal_cluster, fault) as held:
        client.begin(b"A")
        client.abort()
        client.begin(b"B")
        answer = answer_of(held)
        client.commit()
    result = client.result(answer)
    evidence(result=result)
    assert result == OF_DISCIPLINE[discipline], CHANGED


@pytest.mark.soak
@pytest.mark.jdk
def test_transaction_version_2_refuses_the_late_marker_and_version_1_does_not(
    started_with_internal_tap: Cluster, tmp_path: object, evidence: Note
) -> None:
    ran = run_walkthrough(
        started_with_internal_tap,
        tmp_path,  # type: ignore[arg-type]
        "late-marker-control",
        walkthrough__tries="1",
    )
    evidence(claims=[c.observed for s in ran.steps for c in s.claims])
    assert [ran.missing(step.number) for step in ran.steps] == [""] * len(CONTROL_TITLES)
    assert {t["late_answer"] for step in (1, 3) for t in ran.tries(step)} == {REFUSED}
    assert [t["damage"] for step in (1, 3) for t in ran.tries(step)] == [[]] * 4
    assert [t["damage"] for t in ran.tries(2)] == [DAMAGE[v] for v in ("aC", "cA", "cC")]
    assert ran.outcome.expected, CHANGED
