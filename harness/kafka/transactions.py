"""Requests of the transactional protocol, one function each, without retries.

A client library sends only the requests that its own state allows. Tests of zombies, hanging transactions and
exhausted epochs need other requests. The request versions are those of librdkafka, unless a function
documents another version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from harness.base.partition_id import PartitionId
from harness.kafka.admin import Admin, init_producer_id_request
from harness.kafka.errors import check


class ProducerIdentity(NamedTuple):
    """The identity that a transactional producer puts into its requests."""

    transactional_id: str
    producer_id: int
    epoch: int


class InitResult(NamedTuple):
    """A coordinator's answer to InitProducerId: error code, producer id and epoch."""

    code: int
    producer_id: int
    epoch: int


class TransactionDescription(NamedTuple):
    """The state of a transactional id, as its coordinator reports it."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    epoch: int
    partitions: frozenset[PartitionId]
    started_ms: int


def describe_transactions(
    admin: Admin, coordinator: int, transactional_ids: list[str]
) -> list[TransactionDescription]:
    """Return the coordinator's descriptions of these transactional ids."""
    from kafka.protocol.admin import DescribeTransactionsRequest

    request = DescribeTransactionsRequest(transactional_ids=transactional_ids, version=0)
    descriptions = []
    for state in admin.call(coordinator, request).transaction_states:
        check(f"state of {state.transactional_id}", state.error_code)
        descriptions.append(
            TransactionDescription(
                state.transactional_id,
                coordinator,
                state.transaction_state,
                state.producer_id,
                state.producer_epoch,
                frozenset((topic.topic, number) for topic in state.topics for number in topic.partitions),
                state.transaction_start_time_ms,
            )
        )
    return descriptions


def initialise(
    admin: Admin, transactional_id: str, timeout_ms: int = 10_000, *, producer_id: int = -1, epoch: int = -1
) -> InitResult:
    """Initialise a transactional id.

    With `producer_id` and `epoch`, request the same producer id and a higher epoch.
    """
    request = init_producer_id_request(transactional_id, timeout_ms, producer_id, epoch)
    return init_result(admin.call(admin.coordinator("transaction", transactional_id), request))


def init_result(answer: Any) -> InitResult:
    """Convert an InitProducerId answer to an InitResult."""
    return InitResult(int(answer.error_code), int(answer.producer_id), int(answer.producer_epoch))


def add_partitions(admin: Admin, producer: ProducerIdentity, partitions: Iterable[PartitionId]) -> int:
    """Add partitions to the producer's transaction; return the first error code in the answer, or 0."""
    from kafka.protocol.producer import AddPartitionsToTxnRequest

    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    wanted = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[wanted(name=name, partitions=numbers) for name, numbers in topics.items()],
        version=0,
    )
    answer = _call_coordinator(admin, producer, request)
    codes = [
        p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition
    ]
    return next((int(code) for code in codes if code), 0)


def add_offsets(admin: Admin, producer: ProducerIdentity, group: str) -> int:
    """Add a group's partition of __consumer_offsets to the producer's transaction; return the error code."""
    from kafka.protocol.producer import AddOffsetsToTxnRequest

    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
        version=0,
    )
    return int(_call_coordinator(admin, producer, request).error_code)


def end(admin: Admin, producer: ProducerIdentity, *, commit: bool) -> int:
    """Commit or abort the producer's transaction; return the error code."""
    from kafka.protocol.producer import EndTxnRequest

    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
        version=1,
    )
    return int(_call_coordinator(admin, producer, request).error_code)


def _call_coordinator(admin: Admin, producer: ProducerIdentity, request: Any) -> Any:
    return admin.call(admin.coordinator("transaction", producer.transactional_id), request)
