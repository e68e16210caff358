"""Hazards of late requests of clients: positions, partitions, and a reused sequence.

    TxnOffsetCommit       a late one moves a group back, and no client gets an error
    AddPartitionsToTxn    a late one opens a transaction that its client did not begin; the time-out of this
                          transaction fences the client
    Produce               if its answer is lost and the application aborts, librdkafka gives its sequence to
                          the next transaction, whose record is acknowledged, committed and lost

Each walkthrough also shows controls, which differ in one step and have no damage. `eos audit` finds each
hazard in the logs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.walkthroughs.late_marker import DAMAGE
from harness.walkthroughs.late_requests import (
    EPOCH_REFUSED,
    FENCED,
    FIRST,
    LOST,
    MARKER_TITLES,
    OFFSET_TITLES,
    PARTITION_TITLES,
    SECOND,
    SEQUENCE_TITLES,
    WENT_BACK,
    Outcome,
)
from tests.hazards.conftest import CHANGED, run_walkthrough

pytestmark = pytest.mark.cluster

Note = Callable[..., None]
TRIES = [1, pytest.param(20, marks=pytest.mark.soak)]
WHOLE = Outcome()
EXPECTED = {
    "late-offset-commit": [
        WENT_BACK,
        Outcome("INVALID_TXN_STATE", position=SECOND),
        Outcome(EPOCH_REFUSED, position=SECOND),
        Outcome(position=FIRST, damage=("position_went_back",)),
    ],
    "late-position-marker": [
        Outcome("NONE", position=0, damage=tuple(DAMAGE["aC"])),
        Outcome("NONE", position=SECOND, damage=tuple(DAMAGE["cA"])),
        Outcome("NONE", position=SECOND),
    ],
    "late-partition": [FENCED, WHOLE, Outcome(EPOCH_REFUSED)],
    "reused-sequence": [LOST, WHOLE, WHOLE, WHOLE, LOST],
}
"""What each attempt of each step must show. Only the first step shows the hazard."""
TITLES = {
    "late-offset-commit": OFFSET_TITLES,
    "late-position-marker": MARKER_TITLES,
    "late-partition": PARTITION_TITLES,
    "reused-sequence": SEQUENCE_TITLES,
}
assert FIRST < SECOND, "the late position is the earlier one"


def walk(cluster: Cluster, folder: Path, scenario: str, tries: int, evidence: Note) -> None:
    """Run a walkthrough, and check every attempt of every step."""
    walked = run_walkthrough(cluster, folder, scenario, walkthrough__tries=str(tries))
    evidence(claims=[claim.observed for step in walked.steps for claim in step.claims])
    assert [step.title for step in walked.steps] == list(TITLES[scenario])
    for number, expected in enumerate(EXPECTED[scenario], 1):
        attempts = walked.tries(number)
        assert len(attempts) == tries
        for attempt in attempts:
            error = attempt["error"].split(":")[0]
            seen = (attempt["late_answer"], error, attempt["position"], attempt["found"], attempt["damage"])
            wanted = (expected.late_answer, expected.error, expected.position)
            assert seen == (*wanted, [*expected.found], [*expected.damage]), f"{attempt}: {CHANGED}"
    assert walked.outcome.expected, CHANGED


@pytest.mark.parametrize("tries", TRIES)
def test_a_late_offset_commit_moves_a_group_back(
    cluster: Cluster, tmp_path: Path, evidence: Note, tries: int
) -> None:
    walk(cluster, tmp_path, "late-offset-commit", tries, evidence)


@pytest.mark.needs("internal_tap")
@pytest.mark.parametrize("tries", TRIES)
def test_a_late_marker_moves_a_group(
    started_with_internal_tap: Cluster, tmp_path: Path, evidence: Note, tries: int
) -> None:
    walk(started_with_internal_tap, tmp_path, "late-position-marker", tries, evidence)


@pytest.mark.parametrize("tries", TRIES)
def test_a_late_request_for_partitions_opens_a_transaction_that_fences_its_client(
    cluster: Cluster, tmp_path: Path, evidence: Note, tries: int
) -> None:
    walk(cluster, tmp_path, "late-partition", tries, evidence)


@pytest.mark.parametrize("tries", TRIES)
def test_an_abort_without_an_answer_gives_its_sequence_to_the_next_transaction(
    cluster: Cluster, tmp_path: Path, evidence: Note, tries: int
) -> None:
    walk(cluster, tmp_path, "reused-sequence", tries, evidence)
