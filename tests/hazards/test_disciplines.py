"""Which discipline of the harness's own clients protects from which late request or lost answer.

    naive     the client trusts its library
    reinit    the client creates a new producer if the end of a transaction was unclear (the default)
    always    the client creates a new producer before every transaction

Each case makes transaction A, and then transaction B of the same client. One request of A is late, or has no
answer. docs/hazards.md has a table of the results. test_late_marker.py has the same for a late marker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from harness.base.waits import wait_until
from harness.clients.client_spec import Discipline
from harness.clients.scripted.membership import membership
from harness.cluster.cluster import Cluster
from harness.faults import HoldFrame, LoseResponseFrame, arm
from harness.kafka.group_offsets import CommittedOffset, committed_offset
from harness.tap.tap_client import ensure_tap
from tests.hazards.conftest import CHANGED, LIMIT_S, answer_of, wait_complete
from tests.hazards.own_client import OwnClient, Result, error_of

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

GHOST_TIMEOUT_MS: Final = 5_000
"""Transaction time-out of a client that meets a transaction that it did not begin."""
FIRST, SECOND = 11, 14
"""The positions that transactions A and B commit. No record has these offsets."""
REFUSED: Final = "INVALID_PRODUCER_EPOCH"
Start = Callable[..., OwnClient]
Case = Callable[[Start], Result]


def late_end(start: Start) -> Result:
    """Let the EndTxn of A arrive in B: it ends the first part of B."""
    client = start()
    fault = HoldFrame(api="EndTxn", transactional_id=client.topic, drop_client=True)
    with arm(client.cluster, fault) as held:
        client.begin(b"A")
        client.abort()
        client.begin(b"B")
        answer = answer_of(held)
        client.transactor.send(1, [b"B"])
        client.commit()
    return client.result(answer)


def stable_position(cluster: Cluster, group: str, topic: str) -> CommittedOffset | None:
    """Return the position of a group, or None while a transaction that contains it is open."""
    coordinator = cluster.group_coordinator(group)
    found = committed_offset(cluster.admin, coordinator, group, (topic, 0), stable=True)
    return found if found.error == "NONE" else None


def late_offset_commit(start: Start) -> Result:
    """Let the position of A arrive in B: the group goes back to it."""
    client = start()
    cluster, topic, group = client.cluster, client.topic, f"{client.topic}-group"
    fault = HoldFrame(api="TxnOffsetCommit", transactional_id=topic, drop_client=True)
    answer = ""
    with membership(cluster.bootstrap("DIRECT"), group, topic) as member:
        with arm(cluster, fault) as held:
            for position, value in ((FIRST, b"A"), (SECOND, b"B")):
                client.begin(value)
                client.transactor.send_offsets(
                    group, [(topic, 0, position)], member.consumer_group_metadata()
                )
                if value == b"B":
                    answer = answer_of(held)
                client.commit()
        wait_complete(cluster, topic)
        found = wait_until(
            lambda: stable_position(cluster, group, topic), LIMIT_S, f"a position of {group} that is stable"
        )
    assert found is not None
    return client.result(answer, position=found.offset)


def late_partition(start: Start) -> Result:
    """Let the request for a partition of A arrive after A: it opens a transaction, which times out."""
    client = start(transaction_timeout_ms=GHOST_TIMEOUT_MS)
    fault = HoldFrame(api="AddPartitionsToTxn", transactional_id=client.topic, drop_client=True)
    with arm(client.cluster, fault) as held:
        client.whole(b"A")
        wait_complete(client.cluster, client.topic)
        answer = answer_of(held)
    wait_complete(client.cluster, client.topic, "CompleteAbort")
    return client.result(answer, error=error_of(lambda: client.whole(b"B")))


def late_init(start: Start) -> Result:
    """Let the InitProducerId of the new producer for B arrive after its retry: it fences this producer."""
    client = start()
    client.whole(b"A")
    fault = HoldFrame(api="InitProducerId", transactional_id=client.topic, drop_client=True)
    with arm(client.cluster, fault) as held:
        client.transactor.begin()
        answer = answer_of(held)
    return client.result(answer, error=error_of(lambda: client.send(b"B")))


def reused_sequence(start: Start, delivery_limit_s: float = 2.0) -> Result:
    """Lose the answers to the record of A until it is aborted: B may get its sequence."""
    client = start(delivery_limit_s=delivery_limit_s)
    client.whole(b"S")
    times = None if delivery_limit_s else 1
    fault = LoseResponseFrame(api="Produce", transactional_id=client.topic, times=times)
    with arm(client.cluster, fault) as lost:
        client.transactor.begin()
        client.transactor.send(0, [b"A"])
        client.abort()
        lost.wait("lost")
    client.whole(b"B")
    return client.result()


def reused_sequence_if_patient(start: Start) -> Result:
    """Do the same with a client that waits for its record before it aborts, which is the default."""
    return reused_sequence(start, delivery_limit_s=0)


EXPECTED: Final[dict[Case, dict[Discipline, Result]]] = {
    late_end: {
        "naive": Result("NONE", [b"B"]),
        "reinit": Result(REFUSED, [b"B", b"B"], new_producers=1),
        "always": Result(REFUSED, [b"B", b"B"], new_producers=1),
    },
    late_offset_commit: {
        "naive": Result("NONE", [b"A", b"B"], position=FIRST),
        "reinit": Result(REFUSED, [b"A", b"B"], position=SECOND, new_producers=1),
        "always": Result(REFUSED, [b"A", b"B"], position=SECOND, new_producers=1),
    },
    late_partition: {
        "naive": Result("NONE", [b"A"], error="_FENCED"),
        "reinit": Result("NONE", [b"A", b"B"], new_producers=1),
        "always": Result("NONE", [b"A", b"B"], new_producers=1),
    },
    late_init: {"always": Result("NONE", [b"A"], error="_FENCED", new_producers=1)},
    reused_sequence: {
        "naive": Result("", [b"S"]),
        "reinit": Result("", [b"S"]),
        "always": Result("", [b"S", b"B"], new_producers=2),
    },
    reused_sequence_if_patient: {
        "naive": Result("", [b"S", b"B"]),
        "reinit": Result("", [b"S", b"B"]),
        "always": Result("", [b"S", b"B"], new_producers=2),
    },
}
"""What each case must show for each discipline."""


@pytest.mark.parametrize(
    ("case", "discipline"),
    [
        pytest.param(case, discipline, id=f"{case.__name__}-{discipline}")
        for case, results in EXPECTED.items()
        for discipline in results
    ],
)
def test_a_discipline_protects_from_a_late_request(
    cluster: Cluster, tmp_path: Path, evidence: Callable[..., None], case: Case, discipline: Discipline
) -> None:
    ensure_tap(cluster)
    result = case(partial(OwnClient, cluster, tmp_path, discipline))
    evidence(result=result)
    assert result == EXPECTED[case][discipline], CHANGED
