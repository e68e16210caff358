"""What brokers and controllers have on record: logs of leaders and replicas, blocks of producer ids."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST, BrokerListener, node_name
from harness.tap.coordinator_entries import id_blocks
from harness.tap.frame_lines import Frame, Line
from harness.witness.plain_consumer import freeze
from harness.witness.raw_log import Batch, batches_of, fetch_batches

BLOCK = 1000
LEADER_LIMIT_S = 20.0
Place = tuple[str, int]


def leader_log(cluster: Cluster, place: Place) -> list[Batch]:
    """The batches that the leader of a partition hands out, from its log start to its high watermark."""

    def read() -> list[list[Batch]]:
        leader = cluster.leader_of(*place)
        window = freeze(cluster.bootstrap(BrokerListener.DIRECT), [place[0]])[place[1]]
        return [list(fetch_batches(HOST, cluster.ports.direct(leader), place, window.start, window.hw))]

    # Who has just been elected may be named before it has taken the partition up.
    return wait_until(read, LEADER_LIMIT_S, f"the leader of {place[0]}-{place[1]} to hand out its log")[0]


def replica_log(cluster: Cluster, broker: int, place: Place) -> list[Batch]:
    """The batches in a broker's own files, whether it leads, follows, or does not run."""
    with tempfile.TemporaryDirectory(prefix="eos-segments-") as scratch:
        files = cluster.node(node_name(broker)).segments(f"{place[0]}-{place[1]}", Path(scratch))
        return [batch for file in files for batch in batches_of(file.read_bytes())]


class ProducerIdBlock(NamedTuple):
    """A block of producer ids that the controllers gave to a broker."""

    first: int
    broker: int

    def __contains__(self, producer_id: object) -> bool:
        return isinstance(producer_id, int) and self.first <= producer_id < self.first + BLOCK


def blocks(cluster: Cluster) -> list[ProducerIdBlock]:
    """Every block that stands in the metadata log, in the order of giving."""
    return [ProducerIdBlock(step.producer_id, int(step.what)) for step in id_blocks(cluster, 0)]


def overlapping(found: Iterable[ProducerIdBlock]) -> list[tuple[ProducerIdBlock, ProducerIdBlock]]:
    """Neighbouring blocks that share an id."""
    ordered = sorted(found)
    return [(a, b) for a, b in pairwise(ordered) if a.first + BLOCK > b.first]


class Sent(NamedTuple):
    """A batch in a Produce request that came by the tap: identity, where to, and what became of the frame."""

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
        """What a broker knows a batch by."""
        return self.producer_id, self.epoch, self.base_sequence


def sent_batches(log: Iterable[Line], client: str, place: Place) -> list[Sent]:
    """Every batch for a partition that a client sent, in the order of sending, repeats included."""
    return [
        Sent(b.producer_id, b.epoch, b.base_sequence, b.count, x.broker, x.conn, x.n, x.mono, x.fate)
        for x in log
        if isinstance(x, Frame) and x.api == "Produce" and x.side == "request" and x.client_id == client
        for b in (x.facts.batches if x.facts else [])
        if (b.topic, b.partition) == place
    ]


def sent_again(batches: Iterable[Sent]) -> list[tuple[int, int, int]]:
    """The identities that were sent more than once."""
    return [identity for identity, count in Counter(b.identity for b in batches).items() if count > 1]


class Answered(NamedTuple):
    """What a Produce response said of a partition."""

    error: str | None
    offset: int | None
    broker: int
    conn: int
    n: int
    mono: int
    fate: str | None


def answers_to(log: Iterable[Line], client: str, place: Place) -> list[Answered]:
    """Every answer to a client's batches for a partition that came by the tap, lost ones included."""
    return [
        Answered(p.error, p.offset, x.broker, x.conn, x.n, x.mono, x.fate)
        for x in log
        if isinstance(x, Frame) and x.api == "Produce" and x.side == "response" and x.client_id == client
        for p in (x.facts.partitions if x.facts else [])
        if (p.topic, p.partition) == place
    ]


def producer_ids(log: Iterable[Line], client: str) -> list[tuple[int, int, int]]:
    """(producer id, epoch, broker) of each id that a client was given."""
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
