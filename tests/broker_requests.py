"""Requests that only tests send: broker settings, deletions, and the rarer steps of a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from harness.base.partition_id import PartitionId, partition_name
from harness.base.waits import wait_until
from harness.kafka.admin import Admin, init_producer_id_request
from harness.kafka.brokers import describe_producers
from harness.kafka.errors import ErrorCode, KafkaAnswerError, check
from harness.kafka.transactions import InitResult, ProducerIdentity, init_result

WAIT_S: Final = 15.0
_BROKER: Final = 4
_SET, _DELETE = 0, 1


class ActiveProducer(NamedTuple):
    """State of one producer that the leader of a partition keeps."""

    producer_id: int
    epoch: int
    last_sequence: int


class GroupMember(NamedTuple):
    """Generation and member id of the consumer that commits offsets within a transaction."""

    generation: int
    member_id: str


NO_MEMBER: Final = GroupMember(-1, "")
"""No group member: with it, the group coordinator commits offsets without checking the membership."""


def change_settings(admin: Admin, broker: int, settings: Mapping[str, str | None]) -> None:
    """Set dynamic settings of one broker; None restores the value of its configuration file."""
    from kafka.protocol.admin import IncrementalAlterConfigsRequest

    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [
        resource.AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
        for name, value in settings.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=_BROKER, resource_name=str(broker), configs=changes)],
        validate_only=False,
        version=1,
    )
    for answer in admin.call(broker, request).responses:
        check(f"settings of broker {broker}", answer.error_code)


def active_producers(admin: Admin, leader: int, partition_id: PartitionId) -> list[ActiveProducer]:
    """Return the producers whose state the leader keeps for a partition."""
    return [
        ActiveProducer(p.producer_id, p.producer_epoch, p.last_sequence)
        for p in describe_producers(admin, leader, partition_id)
    ]


def delete_records(admin: Admin, leader: int, partition_id: PartitionId, before: int) -> None:
    """Delete the records of a partition before an offset, as retention would."""
    from kafka.protocol.admin import DeleteRecordsRequest

    topic = DeleteRecordsRequest.DeleteRecordsTopic
    partition = topic.DeleteRecordsPartition(partition_index=partition_id[1], offset=before)
    request = DeleteRecordsRequest(
        topics=[topic(name=partition_id[0], partitions=[partition])], timeout_ms=5000, version=2
    )
    answer = admin.call(leader, request).topics[0].partitions[0]
    check(f"deletion in {partition_name(partition_id)}", answer.error_code)


def initialise_repeatedly(admin: Admin, transactional_id: str, times: int) -> list[InitResult]:
    """Initialise a transactional id `times` times over one connection."""
    with admin.connect(admin.coordinator("transaction", transactional_id)) as connection:

        def attempt() -> InitResult:
            result = init_result(connection.call(init_producer_id_request(transactional_id)))
            # The coordinator returns this error while it loads its log, and also while it waits for a block
            # of producer ids. Retry in both cases.
            if result.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise KafkaAnswerError(f"InitProducerId of {transactional_id}", result.code)
            return result

        return [wait_until(attempt, WAIT_S, f"a new epoch of {transactional_id}") for _ in range(times)]


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
