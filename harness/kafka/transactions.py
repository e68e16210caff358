"""Requests of the transactional protocol, one function each, without retries.

A client library sends only the requests that its own state allows. Tests of zombies, hanging transactions and
exhausted epochs need other requests. The request versions are those of librdkafka, unless a function
documents another version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from harness.base.partition_id import PartitionId
from harness.kafka.admin import Admin, init_producer_id_request
from harness.kafka.errors import check


class ProducerIdentity(NamedTuple):
    """The identity that a transactional producer puts into its requests."""

    transactional_id: str
    producer_id: int
    epoch: int


class GroupMember(NamedTuple):
    """Generation and member id of the consumer that commits offsets within a transaction."""

    generation: int
    member_id: str


NO_MEMBER: Final = GroupMember(-1, "")
"""No group member: with it, the group coordinator commits offsets without checking the membership."""


class InitResult(NamedTuple):
    """A coordinator's answer to InitProducerId: error code, producer id and epoch."""

    code: int
    producer_id: int
    epoch: int


class EndResult(NamedTuple):
    """A coordinator's answer to EndTxn 5: error code, and the id and epoch of the next transaction."""

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
    timeout_ms: int


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
                state.transaction_timeout_ms,
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


def initialise_two_phase(admin: Admin, coordinator: int, transactional_id: str) -> InitResult | None:
    """Request two-phase commit by InitProducerId 6 (KIP-939); None if the broker closes the connection."""
    from kafka.protocol.producer import InitProducerIdRequest

    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=10_000,
        producer_id=-1,
        producer_epoch=-1,
        enable2_pc=True,
        keep_prepared_txn=False,
        version=6,
    )
    try:
        return init_result(admin.call(coordinator, request))
    except (EOFError, ConnectionError):
        return None


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


def commit_offsets(
    admin: Admin,
    producer: ProducerIdentity,
    group: str,
    positions: Mapping[PartitionId, int],
    member: GroupMember = NO_MEMBER,
) -> int:
    """Commit offsets of a group within a producer's transaction; return the first error code, or 0."""
    from kafka.protocol.producer import TxnOffsetCommitRequest

    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = topic.TxnOffsetCommitRequestPartition
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=None,
        topics=[
            topic(
                name=name,
                partitions=[
                    partition(
                        partition_index=number,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata=None,
                    )
                ],
            )
            for (name, number), offset in positions.items()
        ],
        version=3,
    )
    answer = admin.call(admin.coordinator("group", group), request)
    return next((int(p.error_code) for t in answer.topics for p in t.partitions if p.error_code), 0)


def end(admin: Admin, producer: ProducerIdentity, *, commit: bool) -> int:
    """Commit or abort the producer's transaction; return the error code."""
    return int(_end(admin, producer, 1, commit=commit).error_code)


def end_with_new_epoch(admin: Admin, producer: ProducerIdentity, *, commit: bool) -> EndResult:
    """Commit or abort the producer's transaction by EndTxn 5, whose answer has a new epoch (KIP-890)."""
    answer = _end(admin, producer, 5, commit=commit)
    return EndResult(int(answer.error_code), int(answer.producer_id), int(answer.producer_epoch))


def _end(admin: Admin, producer: ProducerIdentity, version: int, *, commit: bool) -> Any:
    from kafka.protocol.producer import EndTxnRequest

    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
        version=version,
    )
    return _call_coordinator(admin, producer, request)


def _call_coordinator(admin: Admin, producer: ProducerIdentity, request: Any) -> Any:
    return admin.call(admin.coordinator("transaction", producer.transactional_id), request)
