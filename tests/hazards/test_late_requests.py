"""Hazards of late requests of clients: positions, partitions, a producer id, and a reused sequence.

    TxnOffsetCommit       a late one moves a group back, and no client gets an error
    AddPartitionsToTxn    a late one opens a transaction that its client did not begin; the time-out of this
                          transaction fences the client
    InitProducerId        a late one raises the epoch once more, and fences the producer that sent it
    Produce               if its answer is lost and the application aborts, librdkafka gives its sequence to
                          the next transaction, whose record is acknowledged, committed and lost

Each walkthrough also shows controls, which differ in one step and have no damage. `eos audit` finds each
hazard in the logs, except that of InitProducerId, which damages nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.walkthroughs import late_init, late_offset_commit, late_partition, reused_sequence
from harness.walkthroughs.late_request import Outcome
from tests.hazards.conftest import check_attempts, run_walkthrough

pytestmark = pytest.mark.cluster

Walk = Callable[[Cluster, str, int], None]
TRIES = [3, pytest.param(20, marks=pytest.mark.soak)]
"""Attempts of the first step. There is one of each later step, and in a soak as many as --repeats."""
EXPECTED = {
    "late-init": (
        late_init.TITLES,
        [
            Outcome("NONE", "_FENCED"),
            Outcome(),
            Outcome("CONCURRENT_TRANSACTIONS", "_FENCED"),
            Outcome("NONE", "ProducerFencedError"),
        ],
    ),
    "late-init-control": (
        late_init.CONTROL_TITLES,
        [
            Outcome("NONE", "InvalidProducerEpochException"),
            Outcome("NONE", "ProducerFencedException"),
            Outcome(),
        ],
    ),
    "late-offset-commit": (
        late_offset_commit.TITLES,
        [
            Outcome("NONE", position=1, damage=("position_went_back",)),
            Outcome("INVALID_TXN_STATE", position=4),
            Outcome("INVALID_PRODUCER_EPOCH", position=4),
            Outcome(position=1, damage=("position_went_back",)),
            Outcome("NONE", position=1, damage=("position_went_back",)),
            Outcome("NONE", position=1),
            Outcome("NONE", position=0),
        ],
    ),
    "late-offset-commit-control": (
        late_offset_commit.CONTROL_TITLES,
        [
            Outcome("INVALID_PRODUCER_EPOCH", position=4),
            Outcome("NONE", position=1, damage=("position_went_back",)),
            Outcome("TRANSACTION_ABORTABLE", position=4),
            Outcome("INVALID_PRODUCER_EPOCH", position=4),
            Outcome("NONE", position=1, damage=("position_went_back",)),
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
            Outcome("NONE", "ProducerFencedError", damage=("ghost_transaction",)),
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


@pytest.fixture
def walk(request: pytest.FixtureRequest, tmp_path: Path, evidence: Callable[..., None]) -> Walk:
    """Return a function that runs a walkthrough, and checks every attempt of every step."""

    def run(cluster: Cluster, scenario: str, tries: int) -> None:
        later = 1 if tries == TRIES[0] else request.config.getoption("repeats")
        settings = {"walkthrough__tries": str(tries), "walkthrough__control_tries": str(later)}
        walked = run_walkthrough(cluster, tmp_path, scenario, **settings)
        evidence(claims=[claim.observed for step in walked.steps for claim in step.claims])
        titles, outcomes = EXPECTED[scenario]
        check_attempts(walked, titles, outcomes, tries, later)

    return run


@pytest.mark.parametrize("tries", TRIES)
def test_a_late_offset_commit_moves_a_group_back(cluster: Cluster, walk: Walk, tries: int) -> None:
    walk(cluster, "late-offset-commit", tries)


@pytest.mark.parametrize("tries", TRIES)
def test_a_late_request_for_partitions_opens_a_transaction_that_fences_its_client(
    cluster: Cluster, walk: Walk, tries: int
) -> None:
    walk(cluster, "late-partition", tries)


@pytest.mark.parametrize("tries", TRIES)
def test_a_late_init_fences_the_producer_that_sent_it(cluster: Cluster, walk: Walk, tries: int) -> None:
    walk(cluster, "late-init", tries)


@pytest.mark.parametrize("tries", TRIES)
def test_an_abort_without_an_answer_gives_its_sequence_to_the_next_transaction(
    cluster: Cluster, walk: Walk, tries: int
) -> None:
    walk(cluster, "reused-sequence", tries)


@pytest.mark.jdk
@pytest.mark.parametrize("tries", TRIES[1:])
def test_transaction_version_2_does_not_protect_from_a_late_init(
    cluster: Cluster, walk: Walk, tries: int
) -> None:
    walk(cluster, "late-init-control", tries)


@pytest.mark.jdk
@pytest.mark.parametrize("tries", TRIES[1:])
def test_the_java_client_uses_no_sequence_twice(cluster: Cluster, walk: Walk, tries: int) -> None:
    walk(cluster, "reused-sequence-control", tries)


@pytest.mark.jdk
@pytest.mark.parametrize("tries", TRIES[1:])
@pytest.mark.parametrize("scenario", ["late-offset-commit-control", "late-partition-control"])
def test_transaction_version_2_refuses_late_requests_and_version_1_does_not(
    cluster: Cluster, walk: Walk, scenario: str, tries: int
) -> None:
    walk(cluster, scenario, tries)
