"""Requests that only tests send: broker settings, deletions, and the rarer steps of a transaction."""

from __future__ import annotations

from typing import Final, NamedTuple

from harness.base.partition_id import PartitionId, partition_name
from harness.base.waits import wait_until
from harness.kafka.admin import Admin, init_producer_id_request
from harness.kafka.brokers import describe_producers
from harness.kafka.errors import ErrorCode, KafkaAnswerError, check
from harness.kafka.transactions import InitResult, init_result

WAIT_S: Final = 15.0


class ActiveProducer(NamedTuple):
    """State of one producer that the leader of a partition keeps."""

    producer_id: int
    epoch: int
    last_sequence: int


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
