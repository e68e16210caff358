"""What the harness asks and tells a cluster: over DIRECT, by raw requests, each with a time limit."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.kafka.connection import CLIENT_ID, KafkaAnswerError, RawConnection
from harness.kafka.security import PLAINTEXT, Security

Address = tuple[str, int]
Isolation = Literal["read_uncommitted", "read_committed"]
_LATEST = -1
_UNKNOWN_PARTITION = 3
_ELECTION_NOT_NEEDED = 84
_CONTROLLER_PARTITION = "__cluster_metadata"


@dataclass(frozen=True)
class PartitionInfo:
    """A partition as a broker's metadata describes it; leader -1 means that there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class Metadata:
    """Registered brokers and the partitions that were asked for."""

    cluster_id: str
    brokers: frozenset[int]
    partitions: tuple[PartitionInfo, ...]
    addresses: Mapping[int, Address]  # at the listener that was asked


@dataclass(frozen=True)
class Quorum:
    """The controllers' quorum: its leader, epoch, and how far each voter is."""

    leader: int
    epoch: int
    high_watermark: int
    voter_log_ends: Mapping[int, int]
    behind_ms: Mapping[int, int]  # for how long each voter has not had everything that the leader had


@dataclass(frozen=True)
class EndOffsets:
    """Where a partition ends for each kind of reader."""

    high_watermark: int
    last_stable: int


def _check(what: str, code: int) -> None:
    if code != 0:
        raise KafkaAnswerError(what, code)


def producer_id_request() -> Any:
    """The request of an idempotent producer for its id."""
    from kafka.protocol.producer import InitProducerIdRequest

    return InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1, version=4
    )


class Admin:
    """Requests to the brokers at `addresses` (by node id); any that answers serves a general question."""

    def __init__(
        self, addresses: Mapping[int, Address], timeout: float = 3.0, security: Security = PLAINTEXT
    ) -> None:
        self._addresses = addresses
        self._timeout = timeout
        self._security = security

    def connect(self, broker: int) -> RawConnection:
        """A connection to one broker, for many requests."""
        return RawConnection(*self._addresses[broker], self._timeout, self._security)

    def call(self, broker: int, request: Any) -> Any:
        """One request to one broker."""
        with self.connect(broker) as connection:
            return connection.call(request)

    def call_any(self, request: Any) -> Any:
        """One request to the first broker that answers in time."""
        errors = []
        for broker in self._addresses:
            try:
                return self.call(broker, request)
            except (OSError, EOFError) as error:
                errors.append(f"broker {broker}: {error}")
        raise ConnectionError("no broker answered: " + "; ".join(errors))

    def metadata(self, topics: Sequence[str] | None = (), broker: int | None = None) -> Metadata:
        """Brokers and partitions of these topics (all topics if None), as one broker knows them."""
        from kafka.protocol.metadata import MetadataRequest

        wanted = (
            None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        )
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, version=9)
        answer = self.call_any(request) if broker is None else self.call(broker, request)
        partitions = []
        for topic in answer.topics:
            _check(f"metadata of topic {topic.name}", topic.error_code)
            partitions += [
                PartitionInfo(
                    topic.name,
                    p.partition_index,
                    p.leader_id,
                    p.leader_epoch,
                    tuple(p.replica_nodes),
                    tuple(p.isr_nodes),
                )
                for p in topic.partitions
            ]
        partitions.sort(key=lambda p: (p.topic, p.partition))
        addresses = {b.node_id: (str(b.host), int(b.port)) for b in answer.brokers}
        return Metadata(answer.cluster_id, frozenset(addresses), tuple(partitions), addresses)

    def partition(self, topic: str, partition: int) -> PartitionInfo:
        """One partition's leader, epoch, replicas and ISR."""
        for found in self.metadata([topic]).partitions:
            if found.partition == partition:
                return found
        raise KafkaAnswerError(f"partition {topic}-{partition}", _UNKNOWN_PARTITION)

    def coordinator(self, kind: Literal["group", "transaction"], key: str) -> int:
        """The broker that coordinates this group or transactional id."""
        from kafka.protocol.metadata import FindCoordinatorRequest

        key_type = 0 if kind == "group" else 1
        answer = self.call_any(
            FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key], version=4)
        ).coordinators[0]
        _check(f"{kind} coordinator of {key}", answer.error_code)
        return int(answer.node_id)

    def init_producer_id(self, transactional_id: str) -> tuple[int, int]:
        """Producer id and epoch for a transactional id, from its coordinator: transactions are possible."""
        from kafka.protocol.producer import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=10_000,
            producer_id=-1,
            producer_epoch=-1,
            version=4,
        )
        answer = self.call(self.coordinator("transaction", transactional_id), request)
        _check(f"init_producer_id of {transactional_id}", answer.error_code)
        return int(answer.producer_id), int(answer.producer_epoch)

    def idempotent_producer_id(self, broker: int) -> int:
        """A fresh producer id from this broker; it hands them out one after the other."""
        answer = self.call(broker, producer_id_request())
        _check(f"producer id from broker {broker}", answer.error_code)
        return int(answer.producer_id)

    def features(self) -> dict[str, str]:
        """The versions of features, such as transaction.version, that the cluster has agreed on."""
        from kafka.protocol.metadata import ApiVersionsRequest

        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1", version=3)
        answer = self.call_any(request)
        _check("features", answer.error_code)
        return {feature.name: str(feature.max_version_level) for feature in answer.finalized_features}

    def quorum(self) -> Quorum:
        """The controllers' quorum as its leader sees it."""
        from kafka.protocol.admin import DescribeQuorumRequest

        topic = DescribeQuorumRequest.TopicData
        request = DescribeQuorumRequest(
            topics=[
                topic(topic_name=_CONTROLLER_PARTITION, partitions=[topic.PartitionData(partition_index=0)])
            ],
            version=1,
        )
        answer = self.call_any(request)
        _check("quorum", answer.error_code)
        state = answer.topics[0].partitions[0]
        _check("quorum", state.error_code)
        ends = {voter.replica_id: voter.log_end_offset for voter in state.current_voters}
        caught_up = {voter.replica_id: voter.last_caught_up_timestamp for voter in state.current_voters}
        latest = max(caught_up.values())
        behind = {voter: latest - at for voter, at in caught_up.items()}
        return Quorum(state.leader_id, state.leader_epoch, state.high_watermark, ends, behind)

    def create_topic(
        self,
        name: str,
        placement: Sequence[Sequence[int]],
        settings: Mapping[str, str] | None = None,
        *,
        only_ask: bool = False,
    ) -> None:
        """Create a topic with its i-th partition on `placement[i]`, leader first; or ask if it could be."""
        from kafka.protocol.admin import CreateTopicsRequest

        topic = CreateTopicsRequest.CreatableTopic
        request = CreateTopicsRequest(
            topics=[
                topic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        topic.CreatableReplicaAssignment(partition_index=i, broker_ids=list(replicas))
                        for i, replicas in enumerate(placement)
                    ],
                    configs=[
                        topic.CreatableTopicConfig(name=k, value=v) for k, v in (settings or {}).items()
                    ],
                )
            ],
            timeout_ms=int(self._timeout * 1000),
            validate_only=only_ask,
            version=5,
        )
        _check(f"creation of topic {name}", self.call_any(request).topics[0].error_code)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete these topics; what is gone is deleted."""
        from kafka.protocol.admin import DeleteTopicsRequest

        request = DeleteTopicsRequest(
            topic_names=list(names), timeout_ms=int(self._timeout * 1000), version=5
        )
        for answer in self.call_any(request).responses:
            if answer.error_code != _UNKNOWN_PARTITION:
                _check(f"deletion of topic {answer.name}", answer.error_code)

    def reassign(self, topic: str, placement: Mapping[int, Sequence[int]]) -> None:
        """Ask for new replicas of some partitions; the metadata tell when they have moved."""
        from kafka.protocol.admin import AlterPartitionReassignmentsRequest

        moved = AlterPartitionReassignmentsRequest.ReassignableTopic
        partitions = [
            moved.ReassignablePartition(partition_index=p, replicas=list(replicas))
            for p, replicas in placement.items()
        ]
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=int(self._timeout * 1000), topics=[moved(name=topic, partitions=partitions)], version=0
        )
        answer = self.call_any(request)
        _check(f"reassignment of {topic}", answer.error_code)
        for entry in answer.responses[0].partitions:
            _check(f"reassignment of {topic}-{entry.partition_index}", entry.error_code)

    def elect_preferred(self, topic: str, partition: int) -> None:
        """Let the first of a partition's replicas lead."""
        from kafka.protocol.admin import ElectLeadersRequest

        wanted = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])
        request = ElectLeadersRequest(
            election_type=0, topic_partitions=[wanted], timeout_ms=int(self._timeout * 1000), version=2
        )
        answer = self.call_any(request)
        _check(f"election for {topic}-{partition}", answer.error_code)
        for result in answer.replica_election_results[0].partition_result:
            if result.error_code != _ELECTION_NOT_NEEDED:
                _check(f"election for {topic}-{partition}", result.error_code)

    def end_offsets(self, topic: str) -> dict[int, EndOffsets]:
        """High watermark and last stable offset of every partition, each asked of its leader."""
        leaders = {p.partition: p.leader for p in self.metadata([topic]).partitions}
        ends: dict[int, EndOffsets] = {}
        for leader in sorted(set(leaders.values())):
            mine = [p for p, owner in leaders.items() if owner == leader]
            if leader < 0:
                raise ConnectionError(f"{topic}-{mine[0]} has no leader")
            high = self._latest(leader, topic, mine, "read_uncommitted")
            stable = self._latest(leader, topic, mine, "read_committed")
            ends |= {p: EndOffsets(high[p], stable[p]) for p in mine}
        return dict(sorted(ends.items()))

    def _latest(self, leader: int, topic: str, partitions: list[int], isolation: Isolation) -> dict[int, int]:
        from kafka.protocol.consumer import ListOffsetsRequest

        wanted = ListOffsetsRequest.ListOffsetsTopic
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(isolation == "read_committed"),
            topics=[
                wanted(
                    name=topic,
                    partitions=[
                        wanted.ListOffsetsPartition(partition_index=p, timestamp=_LATEST) for p in partitions
                    ],
                )
            ],
            version=5,
        )
        found = {}
        for entry in self.call(leader, request).topics[0].partitions:
            _check(f"end of {topic}-{entry.partition_index}", entry.error_code)
            found[entry.partition_index] = entry.offset
        return found


def random_cluster_id() -> str:
    """A cluster id of the form that Kafka's own tools draw: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
