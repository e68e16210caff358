"""The search for hanging transactions: it compares the reports of leaders with those of coordinators.

A transaction that ends between the two requests must not be reported.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.base.errors import UsageError
from harness.kafka.admin import Admin, Metadata, PartitionInfo, existing_topics
from harness.kafka.errors import KafkaAnswerError
from harness.kafka.hanging_transactions import (
    find_blocking,
    find_hanging,
    format_end,
    format_transaction,
    format_way_out,
    split_by_right,
)

LED, LEADERLESS = ("t", 0), ("t", 1)
COORDINATOR = 2


class Brokers:
    """Stub of the brokers: leaders with open transactions, and a coordinator with the transactions' states.

    Each DescribeProducers request takes the next list of producer ids from `open_ids`. When only one list is
    left, all further requests return that list.
    """

    def __init__(
        self, open_ids: list[list[int]], states: dict[int, tuple[str, list[tuple[str, int]]]]
    ) -> None:
        self.open_ids = open_ids
        self.states = states

    def metadata(self, _: object = ()) -> Metadata:
        found = (PartitionInfo(*LED, 1, 0, (1,), (1,)), PartitionInfo(*LEADERLESS, -1, 0, (3,), ()))
        return Metadata("c", frozenset({1, COORDINATOR, 3}), found, {})

    def call(self, broker: int, request: Any) -> Any:
        name = type(request).__name__
        if name == "DescribeProducersRequest":
            open_now = self.open_ids.pop(0) if len(self.open_ids) > 1 else self.open_ids[0]
            answer = SimpleNamespace(
                error_code=0, active_producers=[producer(1, -1), *(producer(each, 5) for each in open_now)]
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
        transaction_start_time_ms=round(time.time() * 1000) - 10_000,
        transaction_timeout_ms=60_000 if ident < 100 else 2_000,
    )


def brokers(
    open_ids: list[list[int]], states: dict[int, tuple[str, list[tuple[str, int]]]] | None = None
) -> Admin:
    return cast(Admin, Brokers(open_ids, states or {}))


@pytest.mark.parametrize(
    ("known", "places", "hangs"),
    [
        ("Ongoing", [LED], False),
        ("PrepareCommit", [LED], False),
        ("CompleteCommit", [], True),
        ("Ongoing", [("t", 4)], True),  # this is the producer's next transaction, in partition 4
    ],
)
def test_an_open_transaction_that_is_not_in_progress_hangs(
    known: str, places: list[tuple[str, int]], hangs: bool
) -> None:
    (transaction,) = find_blocking(brokers([[7]], {7: (known, places)}), ["t"])
    assert (transaction.hangs, transaction.open.producer_id, transaction.open.first_offset) == (hangs, 7, 5)
    last = transaction.last
    assert last is not None
    assert (last.state, last.coordinator, last.transactional_id) == (known, COORDINATOR, "id-7")
    assert "open since offset 5" in format_transaction(transaction)
    assert known in format_transaction(transaction)


@pytest.mark.parametrize("code", [0, 29, 3])
def test_topics_that_the_user_may_not_read_are_split_off(code: int) -> None:
    """29 is TOPIC_AUTHORIZATION_FAILED; any other error, such as 3, is not hidden."""
    stub = Brokers([[7]], {})
    answer = SimpleNamespace(error_code=code, active_producers=[])
    stub.call = lambda *_: SimpleNamespace(topics=[SimpleNamespace(partitions=[answer])])  # type: ignore[method-assign]
    admin = cast(Admin, stub)

    if code == 3:
        with pytest.raises(KafkaAnswerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            split_by_right(admin, ["t"])
        return
    assert split_by_right(admin, ["t"]) == ((["t"], []) if code == 0 else ([], ["t"]))


def test_a_producer_without_a_transaction_blocks_nothing() -> None:
    assert find_blocking(brokers([[]]), ["t"]) == []


def test_a_transaction_without_a_coordinator_hangs() -> None:
    admin = brokers([[8, 9]], {9: ("Ongoing", [LED])})
    (transaction,) = find_hanging(admin, ["t"])
    assert (transaction.open.producer_id, transaction.last) == (8, None)
    assert "no coordinator has its producer id" in format_transaction(transaction)


def test_a_transaction_that_ends_between_the_two_requests_does_not_hang() -> None:
    admin = brokers([[8, 9], [9]], {8: ("CompleteCommit", []), 9: ("Ongoing", [LED])})
    assert [each.open.producer_id for each in find_blocking(admin, ["t"])] == [9]
    assert find_hanging(brokers([[8], []], {8: ("CompleteCommit", [])}), ["t"]) == []


@pytest.mark.parametrize(
    ("ident", "known", "parts"),
    [
        (7, "Ongoing", ["aborts it in 50 s", "forceTerminateTransaction --transactionalId id-7"]),
        (
            107,
            "Ongoing",
            [
                "aborts it soon, since its time-out passed 8 s ago",
                "kafka-transactions.sh --bootstrap-server b:9092 force",
            ],
        ),
        (7, "PrepareCommit", ["its coordinator is writing the markers"]),
    ],
)
def test_an_open_transaction_names_its_end_and_its_transactional_id(
    ident: int, known: str, parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr("harness.kafka.hanging_transactions.time.time", lambda: now)
    monkeypatch.setattr(time, "time", lambda: now)
    (transaction,) = find_blocking(brokers([[ident]], {ident: (known, [LED])}), ["t"])
    assert not transaction.hangs
    for part in parts:
        assert part in format_end(transaction, "--bootstrap-server b:9092")


def test_a_missing_topic_is_a_usage_error() -> None:
    admin = brokers([[]])
    assert existing_topics(admin) == ["t"]
    assert existing_topics(admin, ["t"]) == ["t"]
    with pytest.raises(UsageError, match="there is no topic 'tt'") as refused:
        existing_topics(admin, ["tt"])
    assert refused.value.hint == "did you mean t? topics are t"


@pytest.mark.parametrize(
    ("known", "epoch", "way_out"),
    [
        (
            "CompleteAbort",
            0,
            "if its producer has begun no other transaction since then: kafka-transactions.sh",
        ),
        (
            "CompleteAbort",
            1,
            "if its producer has begun no other transaction since then: kafka-transactions.sh",
        ),
        ("CompleteAbort", 2, "that it was not committed: kafka-transactions.sh"),
        ("CompleteCommit", 0, "it was committed, and an abort would lose its records"),
        ("CompleteCommit", 1, "it was committed, and an abort would lose its records"),
        ("CompleteCommit", 2, "that it was not committed: kafka-transactions.sh"),
        ("Empty", 0, "that it was not committed: kafka-transactions.sh"),
    ],
)
def test_the_way_out_is_an_abort_only_if_nothing_was_committed(known: str, epoch: int, way_out: str) -> None:
    (transaction,) = find_hanging(brokers([[7]], {7: (known, [])}), ["t"])
    assert transaction.last is not None
    transaction = transaction._replace(last=transaction.last._replace(epoch=epoch))
    text = format_way_out(transaction, "--bootstrap-server b:9092")
    assert way_out in text
    abort = "kafka-transactions.sh --bootstrap-server b:9092 abort --topic t --partition 0 --start-offset 5"
    assert text.endswith(abort) == ("was committed, and" not in way_out)
    unknown = format_way_out(transaction._replace(last=None), "--bootstrap-server b:9092")
    assert "that it was not committed: " in unknown
