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
from harness.walkthroughs import late_offset_commit, late_partition, late_position_marker, reused_sequence
from harness.walkthroughs.late_request import Outcome
from tests.hazards.conftest import CHANGED, run_walkthrough

pytestmark = pytest.mark.cluster

Note = Callable[..., None]
TRIES = [3, pytest.param(20, marks=pytest.mark.soak)]
"""Attempts of the hazard. Without --soak there is one of each control, cure, and second means."""
SECOND_MEANS = {"link", "kill", "two-proxies"}
EXPECTED = {
    "late-offset-commit": (
        late_offset_commit.TITLES,
        [
            Outcome("NONE", position=1, damage=("position_went_back",)),
            Outcome("INVALID_TXN_STATE", position=4),
            Outcome("INVALID_PRODUCER_EPOCH", position=4),
            Outcome(position=1, damage=("position_went_back",)),
        ],
    ),
    "late-offset-commit-control": (
        late_offset_commit.CONTROL_TITLES,
        [
            Outcome("INVALID_PRODUCER_EPOCH", position=4),
            Outcome("NONE", position=1, damage=("position_went_back",)),
            Outcome("TRANSACTION_ABORTABLE", position=4),
            Outcome("INVALID_PRODUCER_EPOCH", position=4),
        ],
    ),
    "late-position-marker": (
        late_position_marker.TITLES,
        [
            Outcome("NONE", position=0, damage=("records_lost",)),
            Outcome("NONE", position=4, damage=("aborted_readable",)),
            Outcome("NONE", position=4),
        ],
    ),
    "late-partition": (
        late_partition.TITLES,
        [
            Outcome("NONE", "_FENCED", damage=("ghost_transaction",)),
            Outcome(),
            Outcome("NONE"),
            Outcome("INVALID_PRODUCER_EPOCH"),
            Outcome("NONE", "_FENCED", 1, damage=("ghost_transaction",)),
            Outcome(error="_FENCED", damage=("ghost_transaction",)),
        ],
    ),
    "late-partition-control": (
        late_partition.CONTROL_TITLES,
        [
            Outcome("INVALID_PRODUCER_EPOCH"),
            Outcome("NONE", "ProducerFencedException", damage=("ghost_transaction",)),
            Outcome("INVALID_PRODUCER_EPOCH"),
        ],
    ),
    "reused-sequence-control": (reused_sequence.CONTROL_TITLES, [Outcome(), Outcome()]),
    "reused-sequence": (
        reused_sequence.TITLES,
        [
            Outcome(found=("lost",), damage=("empty_commit",)),
            Outcome(),
            Outcome(),
            Outcome(),
            Outcome(found=("lost",), damage=("empty_commit",)),
            Outcome(found=("lost",), damage=("empty_commit",)),
        ],
    ),
}
"""The titles of each walkthrough, and what each attempt of each step must show."""


def walk(cluster: Cluster, folder: Path, scenario: str, tries: int, evidence: Note) -> None:
    """Run a walkthrough, and check every attempt of every step."""
    controls = tries if tries > 3 else 1
    settings = {"walkthrough__tries": str(tries), "walkthrough__control_tries": str(controls)}
    walked = run_walkthrough(cluster, folder, scenario, **settings)
    evidence(claims=[claim.observed for step in walked.steps for claim in step.claims])
    titles, outcomes = EXPECTED[scenario]
    assert [step.title for step in walked.steps] == list(titles)
    for number, expected in enumerate(outcomes, 1):
        attempts = walked.tries(number)
        second = attempts[0]["name"].rpartition("-")[0] in SECOND_MEANS
        assert len(attempts) == (controls if expected.whole or second else tries)
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


@pytest.mark.jdk
@pytest.mark.parametrize("tries", TRIES)
def test_the_java_client_uses_no_sequence_twice(
    cluster: Cluster, tmp_path: Path, evidence: Note, tries: int
) -> None:
    walk(cluster, tmp_path, "reused-sequence-control", tries, evidence)


@pytest.mark.jdk
@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("scenario", ["late-offset-commit-control", "late-partition-control"])
def test_transaction_version_2_refuses_late_requests_and_version_1_does_not(
    cluster: Cluster, tmp_path: Path, evidence: Note, scenario: str, tries: int
) -> None:
    walk(cluster, tmp_path, scenario, tries, evidence)
