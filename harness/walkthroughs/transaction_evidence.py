"""Evidence about a transaction from coordinators, logs, readers and frames."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from harness.base.partition_id import PartitionId, partition_name
from harness.clients.client_settings import CONSUMER, settings
from harness.clients.client_spec import Isolation
from harness.cluster.cluster import Cluster
from harness.kafka.admin import EndOffsets
from harness.kafka.coordinators import java_hash
from harness.kafka.errors import error_name
from harness.kafka.read_to_end import read_to_end
from harness.kafka.transactions import ProducerIdentity, add_offsets, add_partitions, end, initialise
from harness.tap import coordinator_entries
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.tap.decoded_fields import Facts
from harness.tap.frame_lines import Frame, Line

READ_LIMIT_S = 30.0


class LoggedExchange(NamedTuple):
    """A request that passed the tap, and its answer if there was one."""

    api: str
    version: int
    broker: int
    asked: Facts
    answer: Facts | None
    asked_mono: int
    answered_wall: int

    @property
    def refusals(self) -> list[str]:
        """The distinct errors in the answer."""
        return self.answer.refusals if self.answer else []

    @property
    def text(self) -> str:
        """API, version, broker and result, such as `EndTxn 1 at broker 3: INVALID_PRODUCER_EPOCH`."""
        answer = "no answer" if self.answer is None else ", ".join(self.refusals) or "NONE"
        return f"{self.api} {self.version} at broker {self.broker}: {answer}"


def exchanges(log: Iterable[Line], client: str, *names: str, since: int = 0) -> list[LoggedExchange]:
    """Return a client's requests with their answers, in order, since a time of the monotonic clock.

    `names` limits the requests to these APIs. Without `names`, requests of every API are returned.
    """
    requests: list[Frame] = []
    answers: dict[tuple[int, int], Frame] = {}
    for line in log:
        if isinstance(line, Frame) and line.client_id == client and line.api in (names or (line.api,)):
            if line.side == "response":
                answers[line.conn, line.n] = line
            elif line.mono >= since:
                requests.append(line)
    paired = []
    for frame in requests:
        answer = answers.get((frame.conn, frame.n))
        paired.append(
            LoggedExchange(
                frame.api,
                frame.version,
                frame.broker,
                frame.facts or Facts(),
                (answer.facts or Facts()) if answer else None,
                frame.mono,
                answer.wall if answer else -1,
            )
        )
    return paired


class CoordinatorHome(NamedTuple):
    """The partition of __transaction_state or __consumer_offsets to which an id hashes.

    The leader of the partition is the coordinator of the id.
    """

    ident: str
    hash: int
    partitions: int
    partition: int
    leader: int
    leader_epoch: int
    replicas: int

    @property
    def arithmetic(self) -> str:
        """Text that shows how the id leads to the broker: hash, partition, leader."""
        return (
            f"abs(hash({self.ident!r})) = {self.hash}, mod {self.partitions} = partition {self.partition}, "
            f"led by broker {self.leader}"
        )


def coordinator_home(cluster: Cluster, topic: str, ident: str) -> CoordinatorHome:
    """Compute the coordinator of a transactional id or a group from its hash, without FindCoordinator."""
    partitions = cluster.admin.metadata([topic]).partitions
    number = java_hash(ident)
    info = partitions[number % len(partitions)]
    return CoordinatorHome(
        ident, number, len(partitions), info.partition, info.leader, info.leader_epoch, len(info.replicas)
    )


def states(cluster: Cluster, transactional_id: str, since: int) -> list[CoordinatorEntry]:
    """Return the states of a transactional id that were logged since a wall-clock time.

    The states are read from the transaction log.
    """
    return list(coordinator_entries.decisions(cluster, transactional_id, since))


def markers(
    cluster: Cluster, partitions: Iterable[PartitionId], since: int, producer_id: int
) -> list[CoordinatorEntry]:
    """Return the markers of one producer id that were written to these partitions since a wall-clock time."""
    return [
        step
        for topic, partition in partitions
        for step in coordinator_entries.markers(cluster, topic, since, partition)
        if step.producer_id == producer_id
    ]


class ReaderView(NamedTuple):
    """The records of a topic that a reader of each isolation level receives, and the topic's end offsets."""

    ends: dict[int, EndOffsets]
    committed: list[tuple[int, int]]
    uncommitted: list[tuple[int, int]]
    """Partition and offset of each record that a read_uncommitted reader receives. `committed` has the same
    form for a read_committed reader.
    """

    @property
    def hidden(self) -> int:
        """The number of records that only one of the two isolation levels lets a reader receive."""
        return len(set(self.uncommitted) ^ set(self.committed))


def view(cluster: Cluster, topic: str, partitions: int, readers: tuple[str, str]) -> ReaderView:
    """Read a topic to its end with read_committed, then with read_uncommitted; return what each received.

    `readers` has the client ids of the two readers.
    """
    ends = cluster.end_offsets(topic)
    bootstrap = cluster.bootstrap("TAPPED")
    return ReaderView(
        ends,
        read_all(bootstrap, topic, partitions, "read_committed", readers[0]),
        read_all(bootstrap, topic, partitions, "read_uncommitted", readers[1]),
    )


def read_all(
    bootstrap: str, topic: str, partitions: int, isolation: Isolation, client: str
) -> list[tuple[int, int]]:
    """Return partition and offset of every record that a new reader receives up to the topic's end."""
    config = settings(CONSUMER) | {
        "bootstrap.servers": bootstrap,
        "client.id": client,
        "group.id": client,
        "isolation.level": isolation,
    }
    records: list[tuple[int, int]] = []
    unread = read_to_end(
        config,
        {(topic, partition): 0 for partition in range(partitions)},
        lambda partition_id, message: records.append((partition_id[1], message.offset() or 0)),
        time.monotonic() + READ_LIMIT_S,
    )
    if unread:
        raise TimeoutError(f"{client} did not reach the end of {', '.join(map(partition_name, unread))}")
    return sorted(records)


def refusals(cluster: Cluster, producer: ProducerIdentity, partition_id: PartitionId) -> dict[str, str]:
    """Send four transactional requests with this producer id and epoch; return the error name of each."""
    admin = cluster.admin
    codes = {
        "InitProducerId 4": initialise(
            admin, producer.transactional_id, producer_id=producer.producer_id, epoch=producer.epoch
        ).code,
        "AddPartitionsToTxn 0": add_partitions(admin, producer, [partition_id]),
        "AddOffsetsToTxn 0": add_offsets(admin, producer, "no-such-group"),
        "EndTxn 1": end(admin, producer, commit=True),
    }
    return {request: error_name(code) for request, code in codes.items()}


def listed(values: Iterable[object]) -> str:
    """Format values on one line, separated by commas; return `none` if there are no values."""
    return ", ".join(map(str, values)) or "none"


def rows(steps: Sequence[CoordinatorEntry]) -> list[list[object]]:
    """Return log entries as rows: milliseconds since the first entry, state or marker, epoch, partitions.

    In the row of a state, the last column has the partitions of the transaction. In the row of a marker, it
    has the topic, partition and offset of the marker.
    """
    first = steps[0].wall if steps else 0
    return [
        [round((s.wall - first) / 1e6), s.what, s.epoch, s.places or [[s.topic, s.partition, s.offset]]]
        for s in steps
    ]
