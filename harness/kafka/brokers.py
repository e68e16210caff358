"""Questions and orders for one broker: its settings, the producers that it remembers, records to delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from harness.kafka.admin import Admin
from harness.kafka.connection import KafkaAnswerError

_BROKER: Final = 4
_SET, _DELETE = 0, 1
Place = tuple[str, int]


class Remembered(NamedTuple):
    """What the leader of a partition remembers of a producer."""

    producer_id: int
    epoch: int
    last_sequence: int


def change_settings(admin: Admin, broker: int, settings: Mapping[str, str | None]) -> None:
    """Set dynamic settings of one broker; None takes a setting back to what its file says."""
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
        _check(f"settings of broker {broker}", answer.error_code)


def setting(admin: Admin, broker: int, name: str) -> str:
    """The value of a broker's setting that is in force."""
    from kafka.protocol.admin import DescribeConfigsRequest

    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[resource(resource_type=_BROKER, resource_name=str(broker), configuration_keys=[name])],
        include_synonyms=False,
        include_documentation=False,
        version=4,
    )
    answer = admin.call(broker, request).results[0]
    _check(f"settings of broker {broker}", answer.error_code)
    return str(answer.configs[0].value)


def remembered(admin: Admin, broker: int, place: Place) -> list[Remembered]:
    """The producers that this broker, the leader, remembers of a partition."""
    from kafka.protocol.admin import DescribeProducersRequest

    topic = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[topic(name=place[0], partition_indexes=[place[1]])], version=0)
    answer: Any = admin.call(broker, request).topics[0].partitions[0]
    _check(f"producers of {place[0]}-{place[1]}", answer.error_code)
    return [Remembered(p.producer_id, p.producer_epoch, p.last_sequence) for p in answer.active_producers]


def delete_records(admin: Admin, broker: int, place: Place, before: int) -> None:
    """Let the leader delete what stands before an offset, as retention would."""
    from kafka.protocol.admin import DeleteRecordsRequest

    topic = DeleteRecordsRequest.DeleteRecordsTopic
    partition = topic.DeleteRecordsPartition(partition_index=place[1], offset=before)
    request = DeleteRecordsRequest(
        topics=[topic(name=place[0], partitions=[partition])], timeout_ms=5000, version=2
    )
    answer = admin.call(broker, request).topics[0].partitions[0]
    _check(f"deletion in {place[0]}-{place[1]}", answer.error_code)


def _check(what: str, code: int) -> None:
    if code:
        raise KafkaAnswerError(what, code)
