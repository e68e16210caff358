"""The search for hanging transactions: two sides, asked one after the other, and what changes between."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.base.errors import UsageError
from harness.kafka.admin import Admin, Metadata, PartitionInfo, existing_topics
from harness.kafka.hanging_transactions import find_blocking, find_hanging, format_transaction

LED, LEADERLESS = ("t", 0), ("t", 1)
COORDINATOR = 2


class Brokers:
    """Answers with what it was given: whose transactions are open, look by look, and the last one stays."""

    def __init__(self, looks: list[list[int]], states: dict[int, tuple[str, list[tuple[str, int]]]]) -> None:
        self.looks = looks
        self.states = states

    def metadata(self, _: object = ()) -> Metadata:
        found = (PartitionInfo(*LED, 1, 0, (1,), (1,)), PartitionInfo(*LEADERLESS, -1, 0, (3,), ()))
        return Metadata("c", frozenset({1, COORDINATOR, 3}), found, {})

    def call(self, broker: int, request: Any) -> Any:
        name = type(request).__name__
        if name == "DescribeProducersRequest":
            look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
            answer = SimpleNamespace(
                error_code=0, active_producers=[producer(1, -1), *(producer(each, 5) for each in look)]
            )
            return SimpleNamespace(topics=[SimpleNamespace(partitions=[answer])])
        known = self.states if broker == COORDINATOR else {}
        return SimpleNamespace(error_code=0, transaction_states=[state(*one) for one in known.items()])


def producer(ident: int, start: int) -> SimpleNamespace:
    return SimpleNamespace(
        producer_id=ident,
        producer_epoch=0,
        coordinator_epoch=3,
        current_txn_start_offset=start,
        last_timestamp=time.time() * 1000,
    )


def state(ident: int, known: tuple[str, list[tuple[str, int]]]) -> SimpleNamespace:
    topics = [SimpleNamespace(topic=topic, partitions=[partition]) for topic, partition in known[1]]
    return SimpleNamespace(
        error_code=0,
        transactional_id=f"id-{ident}",
        transaction_state=known[0],
        producer_id=ident,
        producer_epoch=0,
        topics=topics,
        transaction_start_time_ms=1,
    )


def brokers(
    looks: list[list[int]], states: dict[int, tuple[str, list[tuple[str, int]]]] | None = None
) -> Admin:
    return cast(Admin, Brokers(looks, states or {}))


@pytest.mark.parametrize(
    ("known", "places", "hangs"),
    [
        ("Ongoing", [LED], False),
        ("PrepareCommit", [LED], False),
        ("CompleteCommit", [], True),
        ("Ongoing", [("t", 4)], True),  # the next transaction of the same producer, elsewhere
    ],
)
def test_what_is_open_and_not_under_way_hangs(known: str, places: list[tuple[str, int]], hangs: bool) -> None:
    (one,) = find_blocking(brokers([[7]], {7: (known, places)}), ["t"])
    assert (one.hangs, one.open.producer_id, one.open.first_offset) == (hangs, 7, 5)
    assert one.last is not None
    assert (one.last.state, one.last.coordinator, one.last.transactional_id) == (known, COORDINATOR, "id-7")
    assert "open since offset 5" in format_transaction(one)
    assert known in format_transaction(one)


def test_a_producer_without_a_transaction_holds_nothing() -> None:
    assert find_blocking(brokers([[]]), ["t"]) == []


def test_one_that_no_coordinator_knows_hangs() -> None:
    admin = brokers([[8, 9]], {9: ("Ongoing", [LED])})
    (one,) = find_hanging(admin, ["t"])
    assert (one.open.producer_id, one.last) == (8, None)
    assert "no coordinator has its producer id" in format_transaction(one)


def test_one_that_ends_between_the_two_questions_does_not_hang() -> None:
    admin = brokers([[8, 9], [9]], {8: ("CompleteCommit", []), 9: ("Ongoing", [LED])})
    assert [one.open.producer_id for one in find_blocking(admin, ["t"])] == [9]
    assert find_hanging(brokers([[8], []], {8: ("CompleteCommit", [])}), ["t"]) == []


def test_a_missing_topic_is_a_usage_error() -> None:
    admin = brokers([[]])
    assert existing_topics(admin) == ["t"]
    assert existing_topics(admin, ["t"]) == ["t"]
    with pytest.raises(UsageError, match="there is no topic 'tt'") as refused:
        existing_topics(admin, ["tt"])
    assert refused.value.hint == "did you mean t?"
