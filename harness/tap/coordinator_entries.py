"""The steps that no client sees, read from the logs that they leave.

    copy      a follower holds a batch, byte for byte the leader's (the follower's own log)
    marker    a coordinator wrote a commit or abort marker      (control batches of the partition)
    decision  a coordinator noted a transaction's state         (__transaction_state)
    ids       the controllers gave a broker a block of ids      (__cluster_metadata)

The partitions are read over DIRECT. No client can read the metadata log: blocks of ids are taken from the
files of the active controller. Times are the brokers' wall clock, to
the millisecond; on one host that is the clock of the frame log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST
from harness.kafka.connection import KafkaAnswerError, RawConnection
from harness.kafka.transaction_log import decode_state

LOG_NAME = "logsteps.jsonl"
TRANSACTION_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"
_METADATA_LOG = "__cluster_metadata-0"
_FETCH_BYTES = 8 << 20
_MOST_COPIES = 200  # of a partition; a diagram shows fewer
_LIMIT_S = 10.0
_LEADER_LIMIT_S = 20.0
# What a marker holds: version, coordinator epoch.
_MARKER = struct.Struct(">hi")
_IDS_RECORD = 15
# What a ProducerIdsRecord holds behind its three-byte head: broker, its epoch, the first id after the block.
_IDS = struct.Struct(">iqq")
_BLOCK = 1000


class CoordinatorEntry(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One step that a log tells of."""

    kind: Literal["copy", "marker", "decision", "ids"]
    wall: int
    """Nanoseconds, known to the millisecond."""
    node: int
    """Who wrote it: the leader of the partition, for a decision that is the coordinator."""
    topic: str = ""
    partition: int = -1
    offset: int = -1
    producer_id: int = -1
    epoch: int = -1
    transactional_id: str | None = None
    what: str = ""
    """commit or abort; the state; the broker that got a block of ids, or that holds a copy."""
    places: list[tuple[str, int]] = []
    """A decision: the partitions of the transaction."""
    coordinator_epoch: int = -1
    """A marker: the leader epoch of the coordinator's partition."""


def collect(
    cluster: Cluster,
    directory: Path,
    *,
    topics: Iterable[str],
    marked: Iterable[str] = (),
    transactional_ids: Iterable[str],
    since: int,
) -> Path:
    """Write the steps since this wall-clock time into `directory`, by time; return the file.

    Of the topics in `marked` only the markers are told.
    """
    steps = [
        *(
            step
            for topic in topics
            for step in (*copies(cluster, topic, since), *markers(cluster, topic, since))
        ),
        *(step for topic in marked for step in markers(cluster, topic, since)),
        *(step for ident in transactional_ids for step in decisions(cluster, ident, since)),
        *id_blocks(cluster, since),
    ]
    steps.sort(key=lambda step: (step.wall, step.kind, step.partition, step.offset))
    path = directory / LOG_NAME
    path.write_bytes(b"".join(msgspec.json.encode(step) + b"\n" for step in steps))
    return path


def read(directory: Path) -> list[CoordinatorEntry]:
    """The steps that were collected into a directory; none if nobody did."""
    path = directory / LOG_NAME
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=CoordinatorEntry) for line in path.read_bytes().splitlines()]


def copies(cluster: Cluster, topic: str, since: int) -> Iterator[CoordinatorEntry]:
    """Which followers hold a topic's first batches since a time, and hold them unchanged.

    A log does not say when it was copied: the time is that of the batch.
    """
    for info in cluster.admin.metadata([topic]).partitions:
        led = _first_batches(cluster, topic, info.partition, since, info.leader)
        for follower in sorted(set(info.replicas) - {info.leader}):
            held = _first_batches(cluster, topic, info.partition, since, follower)
            for offset, batch in led.items():
                if offset in held and held[offset].crc == batch.crc:
                    yield CoordinatorEntry(
                        kind="copy",
                        wall=batch.max_timestamp * 1_000_000,
                        node=info.leader,
                        topic=topic,
                        partition=info.partition,
                        offset=offset,
                        producer_id=batch.producer_id,
                        epoch=batch.producer_epoch,
                        what=str(follower),
                    )


def _first_batches(cluster: Cluster, topic: str, partition: int, since: int, broker: int) -> dict[int, Any]:
    batches = (b for b in _batches(cluster, topic, partition, since, broker) if not b.is_control_batch)
    return {batch.base_offset: batch for batch in islice(batches, _MOST_COPIES)}


def markers(
    cluster: Cluster, topic: str, since: int, partition: int | None = None
) -> Iterator[CoordinatorEntry]:
    """The transaction markers of a topic, or of one of its partitions, since a time."""
    for info in cluster.admin.metadata([topic]).partitions:
        if partition not in (None, info.partition):
            continue
        for batch in _batches(cluster, topic, info.partition, since):
            if not batch.is_control_batch:
                continue
            record = next(iter(batch))
            yield CoordinatorEntry(
                kind="marker",
                wall=batch.max_timestamp * 1_000_000,
                node=info.leader,
                topic=topic,
                partition=info.partition,
                offset=batch.base_offset,
                producer_id=batch.producer_id,
                epoch=batch.producer_epoch,
                what="commit" if record.commit else "abort",
                coordinator_epoch=_MARKER.unpack_from(bytes(record.value))[1],
            )


def decisions(cluster: Cluster, transactional_id: str, since: int) -> Iterator[CoordinatorEntry]:
    """The states of a transactional id that its coordinator noted since a time."""
    partitions = cluster.admin.metadata([TRANSACTION_TOPIC]).partitions
    partition = partitions[java_hash(transactional_id) % len(partitions)]
    for batch in _batches(cluster, TRANSACTION_TOPIC, partition.partition, since):
        for record in () if batch.is_control_batch else batch:
            if record.value is None or bytes(record.key)[4:].decode() != transactional_id:
                continue
            noted = decode_state(bytes(record.value))
            yield CoordinatorEntry(
                kind="decision",
                wall=record.timestamp * 1_000_000,
                node=partition.leader,
                topic=TRANSACTION_TOPIC,
                partition=partition.partition,
                offset=record.offset,
                producer_id=noted.producer_id,
                epoch=noted.epoch,
                transactional_id=transactional_id,
                what=noted.state,
                places=list(noted.places),
            )


def id_blocks(cluster: Cluster, since: int) -> Iterator[CoordinatorEntry]:
    """The blocks of producer ids given away since a time, from the active controller's own files."""
    leader = cluster.active_controller()
    with TemporaryDirectory() as scratch:
        segments = cluster.node(leader).segments(_METADATA_LOG, Path(scratch))
        batches = [batch for segment in segments for batch in _decoded(segment.read_bytes())]
    for batch in batches:
        for record in () if batch.is_control_batch else batch:
            value, wall = bytes(record.value or b""), record.timestamp * 1_000_000
            if wall < since or len(value) < 3 + _IDS.size or value[1] != _IDS_RECORD:
                continue
            broker, _, behind = _IDS.unpack_from(value, 3)
            yield CoordinatorEntry(
                kind="ids",
                wall=wall,
                node=leader,
                offset=record.offset,
                producer_id=behind - _BLOCK,
                what=str(broker),
            )


def java_hash(text: str) -> int:
    """Java's hash of a string, without its sign: it tells the partition of a transactional id."""
    data = text.encode("utf-16-be")
    value = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        value = (31 * value + unit) & 0xFFFFFFFF
    if value == 1 << 31:
        return 0  # it has no positive counterpart in 32 bits, and Kafka takes zero
    return value if value < 1 << 31 else (1 << 32) - value


def _batches(
    cluster: Cluster, topic: str, partition: int, since: int, broker: int | None = None
) -> Iterator[Any]:
    """The batches of a partition from a time on, read from its leader, or from another replica's broker."""

    def found() -> tuple[int, int]:
        leader = cluster.leader_of(topic, partition)
        with RawConnection(HOST, cluster.ports.direct(leader), _LIMIT_S) as connection:
            return leader, _offset_at(connection, topic, partition, since)

    # Who has just been elected may be named before it has taken the partition up.
    leader, offset = wait_until(found, _LEADER_LIMIT_S, f"the leader of {topic}-{partition} to answer")
    with RawConnection(HOST, cluster.ports.direct(broker or leader), _LIMIT_S) as connection:
        while offset >= 0:
            start = offset
            for batch in _decoded(_fetch(connection, topic, partition, offset)):
                offset = max(offset, batch.last_offset + 1)
                if batch.last_offset >= start and batch.max_timestamp * 1_000_000 >= since:
                    yield batch
            if offset == start:
                return


def _decoded(data: bytes) -> Iterator[Any]:
    from kafka.record.memory_records import MemoryRecords

    return iter(MemoryRecords(data))


def _offset_at(connection: RawConnection, topic: str, partition: int, since: int) -> int:
    """The first offset of this time or later, -1 if there is none."""
    from kafka.protocol.consumer import ListOffsetsRequest

    wanted = ListOffsetsRequest.ListOffsetsTopic
    part = wanted.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=-1, timestamp=since // 1_000_000
    )
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[wanted(name=topic, partitions=[part])], version=5
    )
    answer = connection.call(request).topics[0].partitions[0]
    _check(topic, partition, answer.error_code)
    return int(answer.offset)


def _fetch(connection: RawConnection, topic: str, partition: int, offset: int) -> bytes:
    from kafka.protocol.consumer import FetchRequest

    wanted = FetchRequest.FetchTopic
    part = wanted.FetchPartition(
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=_FETCH_BYTES,
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=50,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[wanted(topic=topic, partitions=[part])],
        forgotten_topics_data=[],
        rack_id="",
        version=11,
    )
    answer = connection.call(request)
    _check(topic, partition, answer.error_code)
    found = answer.responses[0].partitions[0]
    _check(topic, partition, found.error_code)
    return bytes(found.records or b"")


def _check(topic: str, partition: int, code: int) -> None:
    if code:
        raise KafkaAnswerError(f"{topic}-{partition}", code)
