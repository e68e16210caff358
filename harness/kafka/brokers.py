"""Requests to one broker for its settings, and for the producers of a partition that it leads."""

from __future__ import annotations

from typing import Any, Final

from harness.base.partition_id import PartitionId, partition_name
from harness.kafka.admin import Admin
from harness.kafka.errors import check

_BROKER: Final = 4


def setting(admin: Admin, broker: int, name: str) -> str:
    """Return the value of a broker setting that is in effect on this broker."""
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


def describe_producers(admin: Admin, leader: int, partition_id: PartitionId) -> list[Any]:
    """Return the active producers of a partition, as the leader reports them in DescribeProducers."""
    from kafka.protocol.admin import DescribeProducersRequest

    topic = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(
        topics=[topic(name=partition_id[0], partition_indexes=[partition_id[1]])], version=0
    )
    answer = admin.call(leader, request).topics[0].partitions[0]
    check(f"producers of {partition_name(partition_id)}", answer.error_code)
    return list(answer.active_producers)
