"""Steps of brokers and controllers that no client request shows, read from the logs that they write.

    copy      a follower has an identical copy of the leader's batch  (read from the follower's log)
    marker    a coordinator wrote a commit or abort marker            (read from the partition's log)
    decision  a coordinator stored the state of a transaction         (read from __transaction_state)
    ids       the controllers gave a broker a block of producer ids   (read from __cluster_metadata)

Partitions are read over the DIRECT listener. No client can read the metadata log, so the blocks of producer
ids are read from the files of the active controller. Times are the brokers' wall clock in milliseconds. If
the brokers and the tap run on one host, the frame log uses the same clock.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import msgspec

from harness.base.partition_id import PartitionId, partition_name
from harness.base.unreadable import readable
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.kafka.coordinators import java_hash
from harness.kafka.log.batches import COMMIT, marker_coordinator_epoch, marker_type, stored_batches
from harness.kafka.log.fetch import fetch_stored
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC, decode_state

LOG_NAME: Final = "logsteps.jsonl"
PRODUCER_ID_BLOCK: Final = 1000
"""Number of producer ids in a block that the controllers give to a broker."""
_METADATA_LOG: Final = "__cluster_metadata-0"
_MAX_COPIES: Final = 200  # maximum number of batches to compare per partition
_LEADER_LIMIT_S: Final = 20.0
_IDS_RECORD: Final = 15
# Fields of a ProducerIdsRecord after its three-byte head: the broker, the broker's epoch, and the first id
# after the block.
_IDS: Final = struct.Struct(">iqq")
_NS_PER_MS: Final = 1_000_000


class CoordinatorEntry(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One step of a broker or a controller, read from a log."""

    kind: Literal["copy", "marker", "decision", "ids"]
    wall: int
    """Wall-clock time in nanoseconds. Its precision is one millisecond."""
    node: int
    """Id of the partition's leader. For a decision, this leader is the transaction coordinator. For a block
    of producer ids, this is the id of the active controller.
    """
    topic: str = ""
    partition: int = -1
    offset: int = -1
    producer_id: int = -1
    epoch: int = -1
    transactional_id: str | None = None
    what: str = ""
    """The meaning depends on `kind`. Marker: commit or abort. Decision: the state of the transaction. Ids:
    the broker that received the block. Copy: the id of the follower that copied the batch.
    """
    places: list[PartitionId] = []
    """For a decision: the partitions of the transaction."""
    coordinator_epoch: int = -1
    """For a marker: the epoch of the coordinator, which is the leader epoch of its partition of
    __transaction_state.
    """


def collect(
    cluster: Cluster,
    directory: Path,
    *,
    topics: Iterable[str],
    marked: Iterable[str] = (),
    transactional_ids: Iterable[str],
    since: int,
) -> Path:
    """Write the steps of brokers and controllers since a wall-clock time into a file; return the file.

    The steps are sorted by time. For the topics in `marked`, only the markers are written.
    """
    steps = [
        *(
            step
            for topic in topics
            for step in (*copies(cluster, topic, since), *markers(cluster, topic, since))
        ),
        *(step for topic in marked for step in markers(cluster, topic, since)),
        *(step for name in transactional_ids for step in decisions(cluster, name, since)),
        *id_blocks(cluster, since),
    ]
    steps.sort(key=lambda step: (step.wall, step.kind, step.partition, step.offset))
    path = directory / LOG_NAME
    path.write_bytes(b"".join(msgspec.json.encode(step) + b"\n" for step in steps))
    return path


def read(directory: Path) -> list[CoordinatorEntry]:
    """Return the entries that `collect` wrote into a directory, or an empty list if there are none.

    Skip an incomplete last line, which a run leaves that was killed while it wrote the file.
    """
    path = directory / LOG_NAME
    if not path.exists():
        return []
    with readable(path):
        lines = path.read_bytes().split(b"\n")[:-1]
        return [msgspec.json.decode(line, type=CoordinatorEntry) for line in lines]


def copies(cluster: Cluster, topic: str, since: int) -> Iterator[CoordinatorEntry]:
    """Yield a step for each batch of a topic that a follower has copied unchanged.

    Only batches since the time `since` are compared, and only the first ones of each partition. A log does
    not record when a follower copied a batch, so the step has the timestamp of the batch.
    """
    for info in cluster.admin.metadata([topic]).partitions:
        partition_id = (topic, info.partition)
        leader_batches = _first_batches(cluster, partition_id, since, info.leader)
        for follower in sorted(set(info.replicas) - {info.leader}):
            copied = _first_batches(cluster, partition_id, since, follower)
            for offset, batch in leader_batches.items():
                if offset in copied and copied[offset].crc == batch.crc:
                    yield CoordinatorEntry(
                        kind="copy",
                        wall=batch.max_timestamp * _NS_PER_MS,
                        node=info.leader,
                        topic=topic,
                        partition=info.partition,
                        offset=offset,
                        producer_id=batch.producer_id,
                        epoch=batch.producer_epoch,
                        what=str(follower),
                    )


def _first_batches(cluster: Cluster, partition_id: PartitionId, since: int, broker: int) -> dict[int, Any]:
    batches = (b for b in _batches(cluster, partition_id, since, broker) if not b.is_control_batch)
    return {batch.base_offset: batch for batch in islice(batches, _MAX_COPIES)}


def markers(
    cluster: Cluster, topic: str, since: int, partition: int | None = None
) -> Iterator[CoordinatorEntry]:
    """Yield a step for each transaction marker of a topic, or of one of its partitions.

    Markers from before the time `since` are left out.
    """
    for info in cluster.admin.metadata([topic]).partitions:
        if partition not in (None, info.partition):
            continue
        for batch in _batches(cluster, (topic, info.partition), since):
            if not batch.is_control_batch:
                continue
            record = next(iter(batch))
            yield CoordinatorEntry(
                kind="marker",
                wall=batch.max_timestamp * _NS_PER_MS,
                node=info.leader,
                topic=topic,
                partition=info.partition,
                offset=batch.base_offset,
                producer_id=batch.producer_id,
                epoch=batch.producer_epoch,
                what="commit" if marker_type(record) == COMMIT else "abort",
                coordinator_epoch=marker_coordinator_epoch(record),
            )


def decisions(cluster: Cluster, transactional_id: str, since: int) -> Iterator[CoordinatorEntry]:
    """Yield a step for each state of a transactional id that its coordinator stored.

    States from before the time `since` are left out.
    """
    partitions = cluster.admin.metadata([TRANSACTION_TOPIC]).partitions
    info = partitions[java_hash(transactional_id) % len(partitions)]
    for batch in _batches(cluster, (TRANSACTION_TOPIC, info.partition), since):
        for record in () if batch.is_control_batch else batch:
            if record.value is None or bytes(record.key)[4:].decode() != transactional_id:
                continue
            state = decode_state(bytes(record.value))
            yield CoordinatorEntry(
                kind="decision",
                wall=record.timestamp * _NS_PER_MS,
                node=info.leader,
                topic=TRANSACTION_TOPIC,
                partition=info.partition,
                offset=record.offset,
                producer_id=state.producer_id,
                epoch=state.epoch,
                transactional_id=transactional_id,
                what=state.state,
                places=list(state.partitions),
            )


def id_blocks(cluster: Cluster, since: int) -> Iterator[CoordinatorEntry]:
    """Yield a step for each block of producer ids that was assigned since the time `since`.

    The blocks are read from the files of the active controller.
    """
    leader = cluster.active_controller()
    with TemporaryDirectory() as scratch:
        segments = cluster.node(leader).segments(_METADATA_LOG, Path(scratch))
        batches = [batch for segment in segments for batch in stored_batches(segment.read_bytes())]
    for batch in batches:
        for record in () if batch.is_control_batch else batch:
            value, wall = bytes(record.value or b""), record.timestamp * _NS_PER_MS
            if wall < since or len(value) < 3 + _IDS.size or value[1] != _IDS_RECORD:
                continue
            broker, _, next_id = _IDS.unpack_from(value, 3)
            yield CoordinatorEntry(
                kind="ids",
                wall=wall,
                node=leader,
                offset=record.offset,
                producer_id=next_id - PRODUCER_ID_BLOCK,
                what=str(broker),
            )


def _batches(
    cluster: Cluster, partition_id: PartitionId, since: int, broker: int | None = None
) -> Iterator[Any]:
    """Yield the batches of a partition since the time `since`, read from its leader or the given broker."""

    def find_start() -> tuple[int, int]:
        topic, number = partition_id
        leader = cluster.leader_of(topic, number)
        offsets = cluster.admin.list_offsets(topic, since // _NS_PER_MS, partitions=[number])
        return leader, offsets[number]

    # Metadata may name a new leader before that broker accepts requests, so retry.
    leader, start = wait_until(
        find_start, _LEADER_LIMIT_S, f"the leader of {partition_name(partition_id)} to answer"
    )
    if start < 0:
        return
    for batch in fetch_stored(cluster.admin, leader if broker is None else broker, partition_id, start):
        if batch.max_timestamp * _NS_PER_MS >= since:
            yield batch
