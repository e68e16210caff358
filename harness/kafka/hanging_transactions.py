"""Search for hanging transactions, and a request that frees a blocked partition by writing a marker.

A transaction hangs if it is open in a partition and no coordinator will end it. Partition leaders report the
open transactions (DescribeProducers). Coordinators report the transactions in progress and their partitions
(ListTransactions, DescribeTransactions). The search compares the two reports.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from harness.base.partition_id import PartitionId
from harness.kafka.admin import Admin
from harness.kafka.brokers import describe_producers
from harness.kafka.coordinators import coordinated_transactions
from harness.kafka.errors import KafkaAnswerError, error_name
from harness.kafka.transactions import TransactionDescription, describe_transactions

IN_PROGRESS: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""Transaction states in which the coordinator will still write markers to the transaction's partitions."""

_PAGE: Final = "docs/hazards.md, section 'A skipped marker',"
_COMMIT_PAGE: Final = f"{_PAGE} writes the missing commit"
_OPEN_PAGE: Final = "docs/transactions.md, section 'Open and hanging'"
_DECISION_PAGE: Final = f"you have found out, as {_PAGE} describes,"


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition, as the partition's leader reports it."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    first_offset: int
    age_s: float
    """Seconds since the producer last wrote to the partition."""

    @property
    def partition_id(self) -> PartitionId:
        return self.topic, self.partition


class BlockingTransaction(NamedTuple):
    """An open transaction, as reported by the partition's leader and by the transaction's coordinator.

    It blocks read_committed readers of the partition.
    """

    open: OpenTransaction
    last: TransactionDescription | None
    """The coordinator's description of the transactional id that now has the transaction's producer id. None
    if no coordinator reports this producer id.
    """

    @property
    def started_ms(self) -> int:
        """Time at which the transaction began, as its coordinator reports it; 0 if none does."""
        return self.last.started_ms if self.last else 0

    @property
    def hangs(self) -> bool:
        """True if the transaction stays open because no coordinator will end it."""
        return (
            self.last is None
            or self.last.state not in IN_PROGRESS
            or self.open.partition_id not in self.last.partitions
        )


def open_transactions(admin: Admin, topics: Iterable[str]) -> list[OpenTransaction]:
    """Return the open transactions of every partition of these topics that has a leader."""
    return [
        OpenTransaction(
            info.topic,
            info.partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
            round(time.time() - producer.last_timestamp / 1000, 1),
        )
        for info in admin.metadata(list(topics)).partitions
        if info.leader >= 0
        for producer in describe_producers(admin, info.leader, (info.topic, info.partition))
        if producer.current_txn_start_offset >= 0
    ]


def split_by_right(admin: Admin, topics: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the topics whose producers this user may describe, and the other topics.

    The right is that to read a topic. The metadata also lists topics that a user may only describe.
    """
    allowed, denied = [], []
    leaders = {info.topic: info for info in admin.metadata(list(topics)).partitions if info.leader >= 0}
    for topic, info in sorted(leaders.items()):
        try:
            describe_producers(admin, info.leader, (topic, info.partition))
        except KafkaAnswerError as error:
            if not error.denied:
                raise
            denied.append(topic)
        else:
            allowed.append(topic)
    return allowed, denied


def producer_ids(admin: Admin, topics: Iterable[str]) -> set[int]:
    """Return the ids of the producers that the leaders of these topics know."""
    return {
        producer.producer_id
        for info in admin.metadata(list(topics)).partitions
        if info.leader >= 0
        for producer in describe_producers(admin, info.leader, (info.topic, info.partition))
    }


def descriptions_of(admin: Admin, producer_ids: Iterable[int]) -> list[TransactionDescription]:
    """Return the coordinators' descriptions of the transactional ids that now have these producer ids."""
    wanted = sorted(set(producer_ids))
    return [
        description
        for broker in sorted(admin.metadata().brokers)
        if (names := coordinated_transactions(admin, broker, wanted))
        for description in describe_transactions(admin, broker, names)
    ]


def find_blocking(admin: Admin, topics: Iterable[str]) -> list[BlockingTransaction]:
    """Return the open transactions of these topics, each with the coordinator's description of it.

    Kafka's own search for hanging transactions considers only transactions above a certain age. This search
    considers every open transaction, and compares the report of the partition's leader with the report of the
    coordinator.
    """
    names = list(topics)
    opened = open_transactions(admin, names)
    if not opened:
        return []
    last = {each.producer_id: each for each in descriptions_of(admin, {each.producer_id for each in opened})}
    blocking = [BlockingTransaction(each, last.get(each.producer_id)) for each in opened]
    if not any(transaction.hangs for transaction in blocking):
        return blocking
    # A transaction may have ended after the leader reported it as open and before the coordinator reported
    # its state. It is no longer open, but the two reports make it look like a hanging transaction. Therefore
    # ask the leaders again which transactions are open.
    still_open = {_identity(each) for each in open_transactions(admin, names)}
    return [each for each in blocking if not each.hangs or _identity(each.open) in still_open]


def _identity(transaction: OpenTransaction) -> tuple[PartitionId, int, int]:
    return transaction.partition_id, transaction.producer_id, transaction.first_offset


def find_hanging(admin: Admin, topics: Iterable[str]) -> list[BlockingTransaction]:
    """Return the open transactions of these topics that no coordinator will end."""
    return [transaction for transaction in find_blocking(admin, topics) if transaction.hangs]


def format_transaction(transaction: BlockingTransaction) -> str:
    """Format an open transaction as one line for an operator."""
    opened, last = transaction.open, transaction.last
    coordinator = (
        f"coordinator {last.coordinator} reports {last.transactional_id} as {last.state}, epoch {last.epoch}"
        if last
        else "no coordinator has its producer id"
    )
    return (
        f"{opened.topic}-{opened.partition}: open since offset {opened.first_offset}, last written to "
        f"{opened.age_s:.0f} s ago; producer id {opened.producer_id}, epoch {opened.epoch}, "
        f"coordinator epoch {opened.coordinator_epoch}; {coordinator}"
    )


def format_end(transaction: BlockingTransaction, tool_options: str) -> str:
    """Describe when an open transaction that does not hang ends, and how an operator ends it before.

    `tool_options` are the options with which Kafka's own tool reaches the cluster.
    """
    last = transaction.last
    assert last is not None
    if last.state != "Ongoing":
        return "to end: its coordinator is writing the markers"
    left_s = (last.started_ms + last.timeout_ms) / 1000 - time.time()
    when = f"in {left_s:.0f} s" if left_s > 0 else f"soon, since its time-out passed {-left_s:.0f} s ago"
    return (
        f"its coordinator aborts it {when} if its producer does not end it; to abort it now: restart its "
        f"producer, or kafka-transactions.sh {tool_options} forceTerminateTransaction --transactionalId "
        f"{last.transactional_id} (since Kafka 4.1, never `abort`: {_OPEN_PAGE})"
    )


def format_way_out(transaction: BlockingTransaction, tool_options: str) -> str:
    """Describe how an operator frees the partition of a hanging transaction.

    Kafka's own tool can only abort. `tool_options` are the options with which it reaches the cluster.
    """
    opened, last = transaction.open, transaction.last
    abort = (
        f"kafka-transactions.sh {tool_options} abort --topic {opened.topic} --partition {opened.partition} "
        f"--start-offset {opened.first_offset}"
    )
    # With transaction version 2 the epoch goes up by one when a transaction ends.
    decided = last.state if last and last.epoch in (opened.epoch, opened.epoch + 1) else ""
    if decided == "CompleteCommit":
        return f"to free it: it was committed, and an abort would lose its records; {_COMMIT_PAGE}"
    if decided == "CompleteAbort":
        return f"to free it, if its producer has begun no other transaction since then: {abort}"
    return f"to free it, after {_DECISION_PAGE} that it was not committed: {abort}"


def write_marker(
    admin: Admin, leader: int, transaction: OpenTransaction, *, commit: bool, coordinator_epoch: int
) -> str:
    """Write a marker into a partition, as a coordinator would; return the name of the error in the answer.

    The leader refuses a coordinator epoch that is lower than the one that it has recorded for this producer.
    """
    from kafka.protocol.producer import WriteTxnMarkersRequest

    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=transaction.topic, partition_indexes=[transaction.partition])
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                transaction_result=commit,
                topics=[topic],
                coordinator_epoch=coordinator_epoch,
            )
        ],
        version=1,
    )
    return error_name(admin.call(leader, request).markers[0].topics[0].partitions[0].error_code)
