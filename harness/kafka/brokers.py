"""Requests to one broker: settings, API versions, quotas, and producers of a partition that it leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from harness.base.partition_id import PartitionId, partition_name
from harness.base.waits import wait_until
from harness.kafka.admin import Admin, init_producer_id_request
from harness.kafka.connection import CLIENT_ID
from harness.kafka.errors import check, error_name

_BROKER: Final = 4
_SET, _DELETE = 0, 1
_ID_LIMIT_S: Final = 10.0


def setting(admin: Admin, broker: int, name: str) -> str:
    """Return the value of a broker setting that is in effect on this broker.

    Raise LookupError if the broker does not report the setting: it has none of this name, or the setting is
    an internal one that was not set.
    """
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
    if not answer.configs:
        raise LookupError(f"broker {broker} does not report the setting {name}")
    return str(answer.configs[0].value)


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


def api_versions(admin: Admin, broker: int) -> dict[int, tuple[int, int]]:
    """Return the lowest and the highest version of each request that a broker accepts, by API key."""
    from kafka.protocol.metadata import ApiVersionsRequest

    request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1", version=3)
    answer = admin.call(broker, request)
    check(f"API versions of broker {broker}", answer.error_code)
    return {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in answer.api_keys}


class IdRequests(NamedTuple):
    """Result of many requests for a producer id: the different ids, and the number of throttled answers."""

    ids: int
    throttled: int


def request_producer_ids(admin: Admin, broker: int, count: int) -> IdRequests:
    """Request producer ids from one broker over one connection. Answers with an error are repeated."""
    ids, throttled = set(), 0
    with admin.connect(broker) as connection:

        def new_id() -> list[Any]:
            answer = connection.call(init_producer_id_request())
            return [] if answer.error_code else [answer]

        for _ in range(count):
            answer = wait_until(new_id, _ID_LIMIT_S, "a producer id", every=0.01)[0]
            ids.add(int(answer.producer_id))
            throttled += answer.throttle_time_ms > 0
    return IdRequests(len(ids), throttled)


def check_client_quota(admin: Admin, user: str, quota: str) -> str:
    """Return the error name with which the brokers answer a quota for a user; the quota is not set."""
    from kafka.protocol.admin import AlterClientQuotasRequest

    entry = AlterClientQuotasRequest.EntryData
    change = entry(
        entity=[entry.EntityData(entity_type="user", entity_name=user)],
        ops=[entry.OpData(key=quota, value=1.0, remove=False)],
    )
    request = AlterClientQuotasRequest(entries=[change], validate_only=True, version=1)
    return error_name(admin.call_any(request).entries[0].error_code)


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
