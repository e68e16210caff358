"""The transactional protocol by hand: each request as it is told, its answer as a code, nothing retried.

A client library sends what its own state allows; a zombie, a hang and a used-up epoch need requests that no
client would send. The versions are those of librdkafka unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from harness.base.waits import wait_until
from harness.kafka.admin import Admin
from harness.kafka.connection import KafkaAnswerError
from harness.kafka.raw_produce import Place

WAIT_S: Final = 15.0
_LOADING: Final = 14
"""COORDINATOR_LOAD_IN_PROGRESS, which a coordinator also says while it waits for a block of producer ids."""


class Identity(NamedTuple):
    """What a producer signs its requests with."""

    transactional_id: str
    producer_id: int
    epoch: int


class Initialised(NamedTuple):
    """A coordinator's answer to an InitProducerId: Kafka's error code, and who the producer is now."""

    code: int
    producer_id: int
    epoch: int


class Member(NamedTuple):
    """The consumer in whose name offsets are added."""

    generation: int
    member_id: str


NOBODY: Final = Member(-1, "")
"""Without a member the group checks nobody."""


def initialise(
    admin: Admin, transactional_id: str, timeout_ms: int = 10_000, *, producer_id: int = -1, epoch: int = -1
) -> Initialised:
    """Take a transactional id, or, with an identity, keep it with a higher epoch."""
    request = _init_request(transactional_id, timeout_ms, producer_id, epoch)
    return _initialised(admin.call(admin.coordinator("transaction", transactional_id), request))


def initialise_often(admin: Admin, transactional_id: str, times: int) -> list[Initialised]:
    """Take a transactional id again and again, over one connection."""
    with admin.connect(admin.coordinator("transaction", transactional_id)) as connection:

        def ask() -> Initialised:
            answer = _initialised(connection.call(_init_request(transactional_id, 10_000, -1, -1)))
            if answer.code == _LOADING:
                raise KafkaAnswerError(f"init of {transactional_id}", answer.code)
            return answer

        return [wait_until(ask, WAIT_S, f"a new epoch of {transactional_id}") for _ in range(times)]


def _init_request(transactional_id: str, timeout_ms: int, producer_id: int, epoch: int) -> Any:
    from kafka.protocol.producer import InitProducerIdRequest

    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        version=4,
    )


def _initialised(answer: Any) -> Initialised:
    return Initialised(int(answer.error_code), int(answer.producer_id), int(answer.producer_epoch))


def add_partitions(admin: Admin, who: Identity, places: Iterable[Place]) -> int:
    """Add partitions to the transaction; the first code that is not 0."""
    from kafka.protocol.producer import AddPartitionsToTxnRequest

    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    added = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=who.transactional_id,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=[added(name=name, partitions=numbers) for name, numbers in topics.items()],
        version=0,
    )
    answer = _coordinator(admin, who, request)
    codes = [
        p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition
    ]
    return next((int(code) for code in codes if code), 0)


def add_offsets(admin: Admin, who: Identity, group: str) -> int:
    """Add a group's offsets partition to the transaction."""
    from kafka.protocol.producer import AddOffsetsToTxnRequest

    request = AddOffsetsToTxnRequest(
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        group_id=group,
        version=0,
    )
    return int(_coordinator(admin, who, request).error_code)


def commit_offsets(
    admin: Admin, who: Identity, group: str, positions: Mapping[Place, int], member: Member = NOBODY
) -> int:
    """Hand a group's next positions to its coordinator, within the transaction."""
    from kafka.protocol.producer import TxnOffsetCommitRequest

    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    place = topic.TxnOffsetCommitRequestPartition
    request = TxnOffsetCommitRequest(
        transactional_id=who.transactional_id,
        group_id=group,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=None,
        topics=[
            topic(
                name=name,
                partitions=[
                    place(
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


def end(admin: Admin, who: Identity, *, commit: bool) -> int:
    """Commit or abort."""
    from kafka.protocol.producer import EndTxnRequest

    request = EndTxnRequest(
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        committed=commit,
        version=1,
    )
    return int(_coordinator(admin, who, request).error_code)


def _coordinator(admin: Admin, who: Identity, request: Any) -> Any:
    return admin.call(admin.coordinator("transaction", who.transactional_id), request)
