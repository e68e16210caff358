"""Requests to one broker about its settings and about partitions that it leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from harness.base.partition_id import PartitionId, partition_name
from harness.kafka.admin import Admin
from harness.kafka.errors import check

_BROKER: Final = 4
_SET, _DELETE = 0, 1


class ActiveProducer(NamedTuple):
    """A producer in the state of a partition's leader."""

    producer_id: int
    epoch: int
    last_sequence: int


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


def setting(admin: Admin, broker: int, name: str) -> str:
    """Return the value of a broker's setting that is in force."""
    from kafka.protocol.admin import DescribeConfigsRequest

    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[resource(resource_type=_BROKER, resource_name=str(broker), configuration_keys=[name])],
        include_synonyms=False,
        include_documentation=False,
        version=4,
    )
    answer = admin.call(broker, request).results[0]
    check(f"settings of broker {broker}", answer.error_code)
    return str(answer.configs[0].value)


def active_producers(admin: Admin, leader: int, partition_id: PartitionId) -> list[ActiveProducer]:
    """Return the producers whose state the leader keeps for a partition."""
    return [
        ActiveProducer(p.producer_id, p.producer_epoch, p.last_sequence)
        for p in describe_producers(admin, leader, partition_id)
    ]


def describe_producers(admin: Admin, leader: int, partition_id: PartitionId) -> list[Any]:
    """Return the producer states of a partition as the leader's DescribeProducers answer has them."""
    from kafka.protocol.admin import DescribeProducersRequest

    topic = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(
        topics=[topic(name=partition_id[0], partition_indexes=[partition_id[1]])], version=0
    )
    answer = admin.call(leader, request).topics[0].partitions[0]
    check(f"producers of {partition_name(partition_id)}", answer.error_code)
    return list(answer.active_producers)


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
