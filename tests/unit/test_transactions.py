"""The search for open transactions: two sides, asked one after the other, and what changes between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from harness.wire.admin import Admin, Metadata, PartitionInfo
from harness.wire.transactions import Open, open_transactions

PLACE = ("t", 0)


class Scripted:
    """Answers each kind of request with what it was given, one after the other; the last one stays."""

    def __init__(self, logs: list[list[int]], owners: dict[int, str]) -> None:
        self.logs = logs
        self.owners = owners

    def metadata(self, _: object = ()) -> Metadata:
        return Metadata("c", frozenset({1}), (PartitionInfo(*PLACE, 1, 0, (1,), (1,)),))

    def call(self, _: int, request: Any) -> Any:
        if type(request).__name__ == "ListTransactionsRequest":
            known = [SimpleNamespace(producer_id=p, transactional_id=t) for p, t in self.owners.items()]
            return SimpleNamespace(error_code=0, transaction_states=known)
        open_ids = self.logs.pop(0) if len(self.logs) > 1 else self.logs[0]
        producers = [
            SimpleNamespace(
                producer_id=each, producer_epoch=0, coordinator_epoch=3, current_txn_start_offset=start,
                last_timestamp=0,
            )
            for each, start in ((7, -1), *((each, 5) for each in open_ids))
        ]  # fmt: skip
        partition = SimpleNamespace(error_code=0, active_producers=producers)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])])


def found(logs: list[list[int]], owners: dict[int, str]) -> list[tuple[int, str | None]]:
    everything: list[Open] = open_transactions(cast(Admin, Scripted(logs, owners)), ["t"])
    assert {(each.place, each.since, each.coordinator_epoch) for each in everything} <= {(PLACE, 5, 3)}
    return [(each.producer_id, each.transactional_id) for each in everything]


def test_a_producer_without_a_transaction_is_not_found() -> None:
    assert found([[]], {}) == []


def test_a_transaction_that_a_coordinator_knows_has_its_id() -> None:
    assert found([[9]], {9: "orders"}) == [(9, "orders")]


def test_one_that_nobody_knows_hangs() -> None:
    assert found([[9, 8]], {9: "orders"}) == [(9, "orders"), (8, None)]


def test_one_that_ends_between_the_two_questions_does_not_hang() -> None:
    assert found([[9, 8], [9]], {9: "orders"}) == [(9, "orders")]
