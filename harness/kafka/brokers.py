"""Requests to one broker about its settings and about partitions that it leads."""

from __future__ import annotations

from typing import Any, Final

from harness.base.partition_id import PartitionId, partition_name
from harness.kafka.admin import Admin
from harness.kafka.errors import check

_BROKER: Final = 4


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
