"""Administrative requests to a cluster, sent without retries and each with a time limit."""

from __future__ import annotations

import base64
import socket
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from harness.base.addresses import Address, parse_bootstrap
from harness.base.errors import UsageError
from harness.base.strict_toml import meant
from harness.base.texts import shorten
from harness.kafka.connection import RawConnection
from harness.kafka.errors import ErrorCode, KafkaAnswerError, check
from harness.kafka.security import PLAINTEXT, Security

Isolation = Literal["read_uncommitted", "read_committed"]
LATEST: Final = -1
EARLIEST: Final = -2
"""LATEST and EARLIEST are special timestamps of a ListOffsets request: the end and the start of a partition.
"""
_CONTROLLER_PARTITION = "__cluster_metadata"


@dataclass(frozen=True)
class PartitionInfo:
    """A partition as a broker's metadata describe it. If `leader` is -1, the partition has no leader."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class Metadata:
    """The registered brokers and the requested partitions, as one broker reports them."""

    cluster_id: str
    brokers: frozenset[int]
    partitions: tuple[PartitionInfo, ...]
    addresses: Mapping[int, Address]  # by node id; addresses of the listener that received the request


@dataclass(frozen=True)
class Quorum:
    """The state of the controller quorum: leader, leader epoch, and the log end offset of each voter."""

    leader: int
    epoch: int
    high_watermark: int
    voter_log_ends: Mapping[int, int]
    behind_ms: Mapping[int, int]  # by node id: milliseconds since a voter was last caught up with the leader


@dataclass(frozen=True)
class EndOffsets:
    """The end offsets of a partition.

    Readers with read_uncommitted stop at the high watermark. Readers with read_committed stop at
    `last_stable`.
    """

    high_watermark: int
    last_stable: int


def init_producer_id_request(
    transactional_id: str | None = None, timeout_ms: int = 10_000, producer_id: int = -1, epoch: int = -1
) -> Any:
    """Build an InitProducerId request. A producer without transactions sends no transactional id."""
    from kafka.protocol.producer import InitProducerIdRequest

    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        version=4,
    )


class Admin:
    """Sender of requests to the brokers at `addresses`, a mapping from node id to address."""

    def __init__(
        self, addresses: Mapping[int, Address], timeout: float = 3.0, security: Security = PLAINTEXT
    ) -> None:
        self._addresses = addresses
        self._timeout = timeout
        self._security = security

    def connect(self, broker: int) -> RawConnection:
        """Open a connection to one broker, for use by several requests."""
        return RawConnection(*self._addresses[broker], self._timeout, self._security)

    def call(self, broker: int, request: Any) -> Any:
        """Send one request to one broker and return its answer."""
        with self.connect(broker) as connection:
            return connection.call(request)

    def call_any(self, request: Any) -> Any:
        """Send a request to one broker after another until a broker answers in time; return its answer."""
        failures: dict[int, Exception] = {}
        for broker in self._addresses:
            try:
                return self.call(broker, request)
            except (OSError, EOFError) as error:
                failures[broker] = error
        reasons = "; ".join(f"broker {broker}: {error}" for broker, error in failures.items())
        raise ConnectionError(f"no broker answered: {reasons}") from next(iter(failures.values()), None)

    def metadata(self, topics: Sequence[str] | None = (), broker: int | None = None) -> Metadata:
        """Return the brokers and the partitions of these topics, as reported by one broker.

        If `topics` is None, return the partitions of all topics. If `broker` is None, request the metadata
        from any broker.
        """
        from kafka.protocol.metadata import MetadataRequest

        wanted = (
            None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        )
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, version=9)
        answer = self.call_any(request) if broker is None else self.call(broker, request)
        partitions = []
        for topic in answer.topics:
            check(f"metadata of topic {topic.name}", topic.error_code)
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
        """Return the leader, epoch, replicas and ISR of one partition."""
        for info in self.metadata([topic]).partitions:
            if info.partition == partition:
                return info
        raise KafkaAnswerError(f"partition {topic}-{partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def coordinator(self, kind: Literal["group", "transaction"], key: str) -> int:
        """Return the id of the broker that coordinates this consumer group or transactional id."""
        from kafka.protocol.metadata import FindCoordinatorRequest

        key_type = 0 if kind == "group" else 1
        answer = self.call_any(
            FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key], version=4)
        ).coordinators[0]
        check(f"{kind} coordinator of {key}", answer.error_code)
        return int(answer.node_id)

    def init_producer_id(self, transactional_id: str) -> tuple[int, int]:
        """Initialise a transactional id at its coordinator; return the assigned producer id and epoch."""
        coordinator = self.coordinator("transaction", transactional_id)
        answer = self.call(coordinator, init_producer_id_request(transactional_id))
        check(f"InitProducerId of {transactional_id}", answer.error_code)
        return int(answer.producer_id), int(answer.producer_epoch)

    def idempotent_producer_id(self, broker: int) -> int:
        """Request and return a new producer id from this broker; consecutive calls return consecutive ids."""
        answer = self.call(broker, init_producer_id_request())
        check(f"producer id from broker {broker}", answer.error_code)
        return int(answer.producer_id)

    def quorum(self) -> Quorum:
        """Return the state of the controller quorum, as its leader reports it."""
        from kafka.protocol.admin import DescribeQuorumRequest

        topic = DescribeQuorumRequest.TopicData
        request = DescribeQuorumRequest(
            topics=[
                topic(topic_name=_CONTROLLER_PARTITION, partitions=[topic.PartitionData(partition_index=0)])
            ],
            version=1,
        )
        answer = self.call_any(request)
        check("quorum", answer.error_code)
        state = answer.topics[0].partitions[0]
        check("quorum", state.error_code)
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
        validate_only: bool = False,
    ) -> None:
        """Create a topic; `placement[i]` lists the replicas of partition i, with the preferred leader first.

        With `validate_only`, the brokers check the request but do not create the topic.
        """
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
            validate_only=validate_only,
            version=5,
        )
        check(f"creation of topic {name}", self.call_any(request).topics[0].error_code)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete these topics. A topic that does not exist is not an error."""
        from kafka.protocol.admin import DeleteTopicsRequest

        request = DeleteTopicsRequest(
            topic_names=list(names), timeout_ms=int(self._timeout * 1000), version=5
        )
        for answer in self.call_any(request).responses:
            if answer.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                check(f"deletion of topic {answer.name}", answer.error_code)

    def reassign(self, topic: str, placement: Mapping[int, Sequence[int]]) -> None:
        """Request other replicas for some partitions of a topic; `placement` maps partition to replicas.

        The call does not wait for the reassignment. The metadata of a partition show when it is complete.
        """
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
        check(f"reassignment of {topic}", answer.error_code)
        for entry in answer.responses[0].partitions:
            check(f"reassignment of {topic}-{entry.partition_index}", entry.error_code)

    def elect_preferred(self, topic: str, partition: int) -> None:
        """Request the election of a partition's preferred leader, which is its first replica."""
        from kafka.protocol.admin import ElectLeadersRequest

        wanted = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])
        request = ElectLeadersRequest(
            election_type=0, topic_partitions=[wanted], timeout_ms=int(self._timeout * 1000), version=2
        )
        answer = self.call_any(request)
        check(f"election for {topic}-{partition}", answer.error_code)
        for result in answer.replica_election_results[0].partition_result:
            if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                check(f"election for {topic}-{partition}", result.error_code)

    def end_offsets(self, topic: str) -> dict[int, EndOffsets]:
        """Return the high watermark and last stable offset of each partition of a topic.

        The leader of each partition reports these offsets.
        """
        # Request the last stable offset first. The high watermark is requested later. Unless a
        # fail-over happens in between, it is then at least as high as the last stable offset.
        stable = self.list_offsets(topic, LATEST, "read_committed")
        high = self.list_offsets(topic, LATEST)
        return {partition: EndOffsets(high[partition], stable[partition]) for partition in stable}

    def list_offsets(
        self,
        topic: str,
        timestamp: int,
        isolation: Isolation = "read_uncommitted",
        partitions: Collection[int] | None = None,
    ) -> dict[int, int]:
        """Return one offset for each of these partitions (None: all partitions), as its leader reports it.

        For EARLIEST, return the first offset of the partition. For LATEST, return its end offset for this
        isolation level. Any other `timestamp` is in milliseconds: return the offset of the first record at or
        after that time, or -1 if no such record exists.
        """
        by_leader: dict[int, list[int]] = {}
        for info in self.metadata([topic]).partitions:
            if partitions is not None and info.partition not in partitions:
                continue
            if info.leader < 0:
                raise ConnectionError(f"{topic}-{info.partition} has no leader")
            by_leader.setdefault(info.leader, []).append(info.partition)
        offsets: dict[int, int] = {}
        for leader, numbers in sorted(by_leader.items()):
            offsets |= self._list_offsets(leader, topic, numbers, timestamp, isolation)
        return dict(sorted(offsets.items()))

    def _list_offsets(
        self, leader: int, topic: str, partitions: list[int], timestamp: int, isolation: Isolation
    ) -> dict[int, int]:
        from kafka.protocol.consumer import ListOffsetsRequest

        wanted = ListOffsetsRequest.ListOffsetsTopic
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(isolation == "read_committed"),
            topics=[
                wanted(
                    name=topic,
                    partitions=[
                        wanted.ListOffsetsPartition(
                            partition_index=number, current_leader_epoch=-1, timestamp=timestamp
                        )
                        for number in partitions
                    ],
                )
            ],
            version=5,
        )
        offsets: dict[int, int] = {}
        for entry in self.call(leader, request).topics[0].partitions:
            check(f"offsets of {topic}-{entry.partition_index}", entry.error_code)
            offsets[entry.partition_index] = int(entry.offset)
        return offsets


_LISTED: Final = 10
"""Maximum number of topics that the hint of an error lists."""


def existing_topics(admin: Admin, required: Iterable[str] = ()) -> list[str]:
    """Return the names of all topics; raise UsageError if a required topic is missing."""
    topics = sorted({info.topic for info in admin.metadata(None).partitions})
    for name in required:
        if name not in topics:
            own = [topic for topic in topics if not topic.startswith("__")]
            listed = ", ".join([*own[:_LISTED], *(["..."] if len(own) > _LISTED else [])])
            hint = f"{meant(name, topics)} topics are {listed or 'none'}".lstrip()
            raise UsageError(f"there is no topic {shorten(name)!r}", hint)
    return topics


def admin_at(bootstrap: str, security: Security = PLAINTEXT, timeout: float = 10.0) -> Admin:
    """Return an Admin that can reach every broker of the cluster with these bootstrap servers."""
    try:
        servers = dict(enumerate(parse_bootstrap(bootstrap)))
    except ValueError as error:
        raise UsageError(str(error), "write host:port, such as localhost:9092") from error
    try:
        addresses = Admin(servers, timeout, security).metadata().addresses
    except ConnectionError as error:
        if isinstance(error.__cause__, socket.gaierror):
            raise UsageError(
                f"unknown host in {bootstrap}: {error.__cause__.strerror}", "correct the bootstrap servers"
            ) from error
        raise
    return Admin(addresses, timeout, security)


def random_cluster_id() -> str:
    """Return a new cluster id: 22 characters of URL-safe base64, the format of Kafka's own tools.

    As in Kafka, it does not begin with a hyphen, because its tools would take it for the name of an option.
    """
    while True:
        found = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not found.startswith("-"):
            return found
