"""Decoder that uses kafka-python to read the fields of frames for the frame log.

It replaces topic ids by topic names, which it reads from metadata responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from harness.kafka.errors import error_name
from harness.tap import api_keys
from harness.tap.decoded_fields import (
    BatchFields,
    Coordinator,
    Facts,
    MarkerFields,
    PartitionFields,
    VerifiedTransaction,
)

_MOST_ENTRIES = 64
"""Maximum number of batches, of partitions, of markers and of transactions that the log contains for one
frame. A large Fetch response has thousands.
"""


class TopicNames:
    """Topic names by topic id. Newer versions of Produce and Fetch contain only the ids."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}

    def learn(self, topics: Iterable[Any]) -> None:
        """Add the topic names and ids of a metadata response."""
        for topic in topics:
            if topic.name and getattr(topic, "topic_id", None):
                self._names[topic.topic_id] = topic.name

    def of(self, topic: Any, field: str = "name") -> str:
        """Return the name of a topic in a message. `topic` is the part of the message about the topic.

        If this part has no name in `field`, return the name that a metadata response contained for the topic
        id. If there was none, return the id.
        """
        name = getattr(topic, field, None)
        if name:
            return str(name)
        ident = getattr(topic, "topic_id", None)
        return self._names.get(ident, f"id:{ident}")


class Decoder:
    """Decoder of frames. It collects topic names from the metadata responses that it decodes."""

    def __init__(self) -> None:
        self.names = TopicNames()

    def request(self, key: int, version: int, frame: bytes) -> Facts:
        """Decode a request frame, and return its fields for the frame log."""
        describe = _REQUESTS.get(api_keys.name_of(key))
        message = api_keys.decode_request(key, version, frame)
        return describe(message, self.names) if describe else Facts()

    def response(self, key: int, version: int, frame: bytes) -> Facts:
        """Decode a response frame, and return its fields for the frame log."""
        describe = _RESPONSES.get(api_keys.name_of(key))
        message = api_keys.decode_response(key, version, frame)
        return describe(message, self.names) if describe else Facts(error=_error(message))


def _error(message: Any) -> str | None:
    code = getattr(message, "error_code", 0)
    return error_name(code) if code else None


def _batches(records: Any, topic: str, partition: int) -> list[BatchFields]:
    """Return the complete batches in the records of a partition. A Fetch response may end inside a batch."""
    from kafka.record.memory_records import MemoryRecords

    if not records:
        return []
    batches = []
    for batch in MemoryRecords(bytes(records)):
        if not hasattr(batch, "producer_id"):
            batches.append(BatchFields(topic=topic, partition=partition, count=-1, bytes=batch.size_in_bytes))
            continue
        batches.append(
            BatchFields(
                topic=topic,
                partition=partition,
                count=batch.last_offset_delta + 1,
                bytes=batch.size_in_bytes,
                producer_id=batch.producer_id,
                epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                transactional=batch.is_transactional,
                base_offset=batch.base_offset,
                marker=_marker(batch),
                appended_ms=batch.max_timestamp if batch.is_control_batch else None,
            )
        )
    return batches


def _marker(batch: Any) -> Literal["commit", "abort"] | None:
    if not batch.is_control_batch:
        return None
    return "commit" if next(iter(batch)).commit else "abort"


def _capped(facts: Facts) -> Facts:
    for entries in (facts.batches, facts.partitions, facts.markers, facts.transactions):
        facts.left_out += max(0, len(entries) - _MOST_ENTRIES)
        del entries[_MOST_ENTRIES:]
    return facts


def _produce_request(message: Any, names: TopicNames) -> Facts:
    batches = [
        batch
        for topic in message.topic_data
        for part in topic.partition_data
        for batch in _batches(part.records, names.of(topic), part.index)
    ]
    first = next((b for b in batches if b.producer_id >= 0), None)
    return _capped(
        Facts(
            transactional_id=message.transactional_id,
            acks=message.acks,
            request_timeout_ms=message.timeout_ms,
            batches=batches,
            producer_id=first.producer_id if first else None,
            epoch=first.epoch if first else None,
        )
    )


def _produce_response(message: Any, names: TopicNames) -> Facts:
    return _capped(
        Facts(
            partitions=[
                PartitionFields(
                    topic=names.of(topic), partition=part.index, error=_error(part), offset=part.base_offset
                )
                for topic in message.responses
                for part in topic.partition_responses
            ]
        )
    )


def _fetch_request(message: Any, names: TopicNames) -> Facts:
    partitions = [
        PartitionFields(topic=names.of(topic, "topic"), partition=part.partition, offset=part.fetch_offset)
        for topic in message.topics
        for part in topic.partitions
    ]
    isolation: Literal["read_committed", "read_uncommitted"] = (
        "read_committed" if message.isolation_level else "read_uncommitted"
    )
    replica = _replica(message)
    return _capped(Facts(isolation=isolation, partitions=partitions, replica=replica))


def _replica(message: Any) -> int | None:
    """Return the id of the broker that sends a Fetch request.

    Since version 15, the id is in a separate structure.
    """
    state = getattr(message, "replica_state", None)
    ident = message.replica_id if state is None else state.replica_id
    return None if ident is None or ident < 0 else int(ident)


def _fetch_response(message: Any, names: TopicNames) -> Facts:
    partitions, batches = [], []
    for topic in message.responses:
        name = names.of(topic, "topic")
        for part in topic.partitions:
            partitions.append(
                PartitionFields(
                    topic=name,
                    partition=part.partition_index,
                    error=_error(part),
                    high_watermark=part.high_watermark,
                    last_stable_offset=part.last_stable_offset,
                    log_start=part.log_start_offset,
                    aborted=[(a.producer_id, a.first_offset) for a in part.aborted_transactions or ()],
                )
            )
            batches += _batches(part.records, name, part.partition_index)
    return _capped(Facts(error=_error(message), partitions=partitions, batches=batches))


def _metadata_response(message: Any, names: TopicNames) -> Facts:
    names.learn(message.topics)
    return _capped(
        Facts(
            error=_error(message),
            brokers=[b.node_id for b in message.brokers],
            partitions=[
                PartitionFields(
                    topic=names.of(topic),
                    partition=p.partition_index,
                    leader=p.leader_id,
                    error=_error(p) or _error(topic),
                )
                for topic in message.topics
                for p in topic.partitions
            ],
        )
    )


def _metadata_request(message: Any, names: TopicNames) -> Facts:
    return _capped(
        Facts(partitions=[PartitionFields(topic=names.of(t), partition=-1) for t in message.topics or ()])
    )


def _find_coordinator_request(message: Any, _: TopicNames) -> Facts:
    keys = message.coordinator_keys or [message.key]
    if message.key_type:
        return Facts(transactional_id=keys[0])
    return Facts(group=keys[0])


def _find_coordinator_response(message: Any, _: TopicNames) -> Facts:
    coordinators = [
        Coordinator(key=c.key, broker=c.node_id, error=_error(c)) for c in message.coordinators or ()
    ]
    if not coordinators:  # up to version 3, a response has one coordinator, without the requested key
        coordinators = [Coordinator(key="", broker=message.node_id, error=_error(message))]
    return Facts(coordinators=coordinators)


def _of_producer(message: Any, _: TopicNames) -> Facts:
    """Return the log fields of a request that contains a transactional id, a producer id and an epoch."""
    return Facts(
        transactional_id=message.transactional_id,
        producer_id=message.producer_id,
        epoch=message.producer_epoch,
        group=getattr(message, "group_id", None),
        committed=getattr(message, "committed", None),
    )


def _producer_response(message: Any, _: TopicNames) -> Facts:
    """Return the log fields of an InitProducerId or EndTxn response.

    An EndTxn response contains a producer id since version 5.
    """
    ident = getattr(message, "producer_id", None)
    known = ident is not None and ident >= 0
    return Facts(
        error=_error(message),
        producer_id=ident if known else None,
        epoch=message.producer_epoch if known else None,
    )


def _init_request(message: Any, names: TopicNames) -> Facts:
    facts = _of_producer(message, names)
    facts.transaction_timeout_ms = message.transaction_timeout_ms
    return facts


def _of_member(message: Any, _: TopicNames) -> Facts:
    """Return the log fields of a request of a group's member: JoinGroup, SyncGroup or Heartbeat."""
    return Facts(
        group=message.group_id,
        member=message.member_id or None,
        generation=getattr(message, "generation_id", None),
        session_timeout_ms=getattr(message, "session_timeout_ms", None),
        rebalance_timeout_ms=getattr(message, "rebalance_timeout_ms", None),
    )


def _join_response(message: Any, _: TopicNames) -> Facts:
    return Facts(error=_error(message), member=message.member_id or None, generation=message.generation_id)


def _add_partitions_request(message: Any, names: TopicNames) -> Facts:
    if message.transactions:
        first = message.transactions[0]
        ident, producer, epoch = first.transactional_id, first.producer_id, first.producer_epoch
        topics = [topic for each in message.transactions for topic in each.topics]
        transactions = [
            VerifiedTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                epoch=each.producer_epoch,
                verify_only=each.verify_only,
            )
            for each in message.transactions
        ]
    else:
        transactions = []
        ident, producer = message.v3_and_below_transactional_id, message.v3_and_below_producer_id
        epoch, topics = message.v3_and_below_producer_epoch, message.v3_and_below_topics
    return _capped(
        Facts(
            transactional_id=ident,
            producer_id=producer,
            epoch=epoch,
            partitions=[
                PartitionFields(topic=names.of(t), partition=p) for t in topics for p in t.partitions
            ],
            transactions=transactions,
        )
    )


def _markers_request(message: Any, names: TopicNames) -> Facts:
    markers = [
        MarkerFields(
            producer_id=marker.producer_id,
            epoch=marker.producer_epoch,
            decision="commit" if marker.transaction_result else "abort",
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=getattr(marker, "transaction_version", None) or 0,
        )
        for marker in message.markers
    ]
    partitions = [
        PartitionFields(topic=names.of(topic), partition=partition)
        for marker in message.markers
        for topic in marker.topics
        for partition in topic.partition_indexes
    ]
    return _capped(Facts(markers=markers, partitions=partitions))


def _markers_response(message: Any, names: TopicNames) -> Facts:
    return _capped(
        Facts(
            partitions=[
                PartitionFields(
                    topic=names.of(topic), partition=partition.partition_index, error=_error(partition)
                )
                for marker in message.markers
                for topic in marker.topics
                for partition in topic.partitions
            ]
        )
    )


def _add_partitions_response(message: Any, names: TopicNames) -> Facts:
    topics = [t for each in message.results_by_transaction or () for t in each.topic_results]
    topics += message.results_by_topic_v3_and_below or ()
    return _capped(
        Facts(
            error=_error(message),
            partitions=[
                PartitionFields(
                    topic=names.of(topic),
                    partition=part.partition_index,
                    error=error_name(part.partition_error_code) if part.partition_error_code else None,
                )
                for topic in topics
                for part in topic.results_by_partition
            ],
        )
    )


def _offset_commit_request(message: Any, names: TopicNames) -> Facts:
    facts = _of_producer(message, names)
    facts.generation = message.generation_id
    facts.partitions = [
        PartitionFields(topic=names.of(topic), partition=part.partition_index, offset=part.committed_offset)
        for topic in message.topics
        for part in topic.partitions
    ]
    return _capped(facts)


def _offset_commit_response(message: Any, names: TopicNames) -> Facts:
    return _capped(
        Facts(
            partitions=[
                PartitionFields(topic=names.of(topic), partition=part.partition_index, error=_error(part))
                for topic in message.topics
                for part in topic.partitions
            ]
        )
    )


def _api_versions_response(message: Any, _: TopicNames) -> Facts:
    return Facts(error=_error(message), apis=len(message.api_keys))


_Describe = Callable[[Any, TopicNames], Facts]
_REQUESTS: dict[str, _Describe] = {
    "Produce": _produce_request,
    "Fetch": _fetch_request,
    "Metadata": _metadata_request,
    "FindCoordinator": _find_coordinator_request,
    "InitProducerId": _init_request,
    "JoinGroup": _of_member,
    "SyncGroup": _of_member,
    "Heartbeat": _of_member,
    "AddPartitionsToTxn": _add_partitions_request,
    "AddOffsetsToTxn": _of_producer,
    "TxnOffsetCommit": _offset_commit_request,
    "EndTxn": _of_producer,
    "WriteTxnMarkers": _markers_request,
}
_RESPONSES: dict[str, _Describe] = {
    "ApiVersions": _api_versions_response,
    "Produce": _produce_response,
    "Fetch": _fetch_response,
    "Metadata": _metadata_response,
    "FindCoordinator": _find_coordinator_response,
    "InitProducerId": _producer_response,
    "JoinGroup": _join_response,
    "AddPartitionsToTxn": _add_partitions_response,
    "TxnOffsetCommit": _offset_commit_response,
    "EndTxn": _producer_response,
    "WriteTxnMarkers": _markers_response,
}
