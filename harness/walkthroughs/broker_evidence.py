"""Evidence about batches and producer ids, from the brokers and from the wire tap's log of frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from harness.base.partition_id import PartitionId, partition_name
from harness.base.scratch import scratch_folder
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import node_name
from harness.kafka.admin import EARLIEST, LATEST
from harness.kafka.log.batches import Batch, decode_batches
from harness.kafka.log.fetch import fetch_batches
from harness.tap.coordinator_entries import PRODUCER_ID_BLOCK, id_blocks
from harness.tap.frame_lines import Frame, Line

LEADER_LIMIT_S = 20.0


def leader_log(cluster: Cluster, partition_id: PartitionId) -> list[Batch]:
    """Return the batches in the log of a partition's leader, from the log start to the high watermark."""

    def read() -> list[list[Batch]]:
        topic, number = partition_id
        leader = cluster.leader_of(topic, number)
        start, end = (
            cluster.admin.list_offsets(topic, timestamp, partitions=[number])[number]
            for timestamp in (EARLIEST, LATEST)
        )
        return [list(fetch_batches(cluster.admin, leader, partition_id, start, end))]

    # Metadata may name a new leader before that broker accepts fetches, so retry.
    return wait_until(read, LEADER_LIMIT_S, f"the log of {partition_name(partition_id)} from its leader")[0]


def replica_log(cluster: Cluster, broker: int, partition_id: PartitionId) -> list[Batch]:
    """Return a partition's batches from a broker's own files, even if the broker is a follower or is down."""
    with scratch_folder("segments") as scratch:
        files = cluster.node(node_name(broker)).segments(partition_name(partition_id), scratch)
        return [batch for file in files for batch in decode_batches(file.read_bytes())]


class ProducerIdBlock(NamedTuple):
    """A block of producer ids that the controllers allocated to a broker."""

    first: int
    broker: int

    def __contains__(self, producer_id: object) -> bool:
        return isinstance(producer_id, int) and self.first <= producer_id < self.first + PRODUCER_ID_BLOCK


def blocks(cluster: Cluster) -> list[ProducerIdBlock]:
    """Return every block of producer ids that the metadata log contains, in log order."""
    return [ProducerIdBlock(step.producer_id, int(step.what)) for step in id_blocks(cluster, 0)]


def overlapping(all_blocks: Iterable[ProducerIdBlock]) -> list[tuple[ProducerIdBlock, ProducerIdBlock]]:
    """Return the pairs of blocks that share a producer id.

    The blocks are sorted by their first id, and only neighbours are compared.
    """
    ordered = sorted(all_blocks)
    return [(a, b) for a, b in pairwise(ordered) if a.first + PRODUCER_ID_BLOCK > b.first]


class SentBatch(NamedTuple):
    """A batch in a Produce request that passed the tap.

    `fate` is what happened to the frame in the tap: for example, a rule dropped it. It is None if the frame
    passed.
    """

    producer_id: int
    epoch: int
    base_sequence: int
    records: int
    broker: int
    conn: int
    n: int
    mono: int
    fate: str | None

    @property
    def identity(self) -> tuple[int, int, int]:
        """Producer id, epoch and base sequence, by which a broker recognises a batch that was sent again."""
        return self.producer_id, self.epoch, self.base_sequence


def sent_batches(log: Iterable[Line], client: str, partition_id: PartitionId) -> list[SentBatch]:
    """Return every batch that a client sent to a partition, in order. Each retry is a separate entry."""
    return [
        SentBatch(b.producer_id, b.epoch, b.base_sequence, b.count, x.broker, x.conn, x.n, x.mono, x.fate)
        for x in log
        if isinstance(x, Frame) and x.api == "Produce" and x.side == "request" and x.client_id == client
        for b in (x.facts.batches if x.facts else [])
        if (b.topic, b.partition) == partition_id
    ]


def sent_again(batches: Iterable[SentBatch]) -> list[tuple[int, int, int]]:
    """Return the identities (producer id, epoch, base sequence) of batches that were sent more than once."""
    return [identity for identity, count in Counter(b.identity for b in batches).items() if count > 1]


class ProduceAnswer(NamedTuple):
    """The result for one partition in a Produce response."""

    error: str | None
    offset: int | None
    broker: int
    conn: int
    n: int
    mono: int
    fate: str | None


def answers_to(log: Iterable[Line], client: str, partition_id: PartitionId) -> list[ProduceAnswer]:
    """Return every answer to a client's batches for a partition, including answers that the tap dropped."""
    return [
        ProduceAnswer(p.error, p.offset, x.broker, x.conn, x.n, x.mono, x.fate)
        for x in log
        if isinstance(x, Frame) and x.api == "Produce" and x.side == "response" and x.client_id == client
        for p in (x.facts.partitions if x.facts else [])
        if (p.topic, p.partition) == partition_id
    ]


def producer_ids(log: Iterable[Line], client: str) -> list[tuple[int, int, int]]:
    """Return producer id, epoch and answering broker for each producer id that a client received."""
    return [
        (x.facts.producer_id, x.facts.epoch, x.broker)
        for x in log
        if isinstance(x, Frame)
        and x.api == "InitProducerId"
        and x.side == "response"
        and x.client_id == client
        and x.facts is not None
        and not x.facts.error
        and x.facts.producer_id is not None
        and x.facts.epoch is not None
    ]
