"""What coordinators, logs, readers and frames tell of a transaction."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from harness.clients.client_settings import CONSUMER, settings
from harness.clients.client_spec import Isolation
from harness.cluster.cluster import Cluster
from harness.kafka.admin import EndOffsets
from harness.kafka.transactions import Identity, add_offsets, add_partitions, end, initialise
from harness.tap import api_keys, coordinator_entries
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.tap.decoded_fields import Facts
from harness.tap.frame_lines import Frame, Line

Place = tuple[str, int]
READ_LIMIT_S = 30.0


class Exchange(NamedTuple):
    """A request that came by the tap, and its answer if there was one."""

    api: str
    version: int
    broker: int
    asked: Facts
    answer: Facts | None
    asked_mono: int
    answered_wall: int

    @property
    def refusals(self) -> list[str]:
        """Every error in its answer, each once."""
        return self.answer.refusals if self.answer else []

    @property
    def text(self) -> str:
        """Such as `EndTxn 1 at broker 3: INVALID_PRODUCER_EPOCH`."""
        said = "no answer" if self.answer is None else ", ".join(self.refusals) or "NONE"
        return f"{self.api} {self.version} at broker {self.broker}: {said}"


def exchanges(log: Iterable[Line], client: str, *names: str, since: int = 0) -> list[Exchange]:
    """Every request of a client since a monotonic time, of these apis or of all, in the order of sending."""
    asked: list[Frame] = []
    answers: dict[tuple[int, int], Frame] = {}
    for line in log:
        if isinstance(line, Frame) and line.client_id == client and line.api in (names or (line.api,)):
            if line.side == "response":
                answers[line.conn, line.n] = line
            elif line.mono >= since:
                asked.append(line)
    found = []
    for frame in asked:
        answer = answers.get((frame.conn, frame.n))
        found.append(
            Exchange(
                frame.api,
                frame.version,
                frame.broker,
                frame.facts or Facts(),
                (answer.facts or Facts()) if answer else None,
                frame.mono,
                answer.wall if answer else -1,
            )
        )
    return found


class Coordinated(NamedTuple):
    """Which partition of a coordinator's topic an id hashes to, and who leads it."""

    ident: str
    hash: int
    partitions: int
    partition: int
    leader: int
    leader_epoch: int
    replicas: int

    @property
    def arithmetic(self) -> str:
        """The way from the id to the broker."""
        return (
            f"abs(hash({self.ident!r})) = {self.hash}, mod {self.partitions} = partition {self.partition}, "
            f"led by broker {self.leader}"
        )


def coordinated(cluster: Cluster, topic: str, ident: str) -> Coordinated:
    """Compute who coordinates a transactional id or a group, instead of asking for it."""
    partitions = cluster.admin.metadata([topic]).partitions
    number = coordinator_entries.java_hash(ident)
    mine = partitions[number % len(partitions)]
    return Coordinated(
        ident, number, len(partitions), mine.partition, mine.leader, mine.leader_epoch, len(mine.replicas)
    )


def states(cluster: Cluster, transactional_id: str, since: int) -> list[CoordinatorEntry]:
    """Every state of a transactional id in the transaction log since a wall-clock time."""
    return list(coordinator_entries.decisions(cluster, transactional_id, since))


def markers(
    cluster: Cluster, places: Iterable[Place], since: int, producer_id: int
) -> list[CoordinatorEntry]:
    """The markers of one producer id in these partitions since a wall-clock time."""
    return [
        step
        for topic, partition in places
        for step in coordinator_entries.markers(cluster, topic, since, partition)
        if step.producer_id == producer_id
    ]


class View(NamedTuple):
    """What readers of both kinds are given of a topic, and where it ends for them."""

    ends: dict[int, EndOffsets]
    committed: list[tuple[int, int]]
    uncommitted: list[tuple[int, int]]
    """Partition and offset of each record."""

    @property
    def hidden(self) -> int:
        """How many records only one of the two is given."""
        return len(set(self.uncommitted) ^ set(self.committed))


def view(cluster: Cluster, topic: str, partitions: int, readers: tuple[str, str]) -> View:
    """Read a topic to its end twice: read_committed, then read_uncommitted; `readers` are the clients."""
    ends = cluster.end_offsets(topic)
    door = cluster.bootstrap("TAPPED")
    return View(
        ends,
        read_all(door, topic, partitions, "read_committed", readers[0]),
        read_all(door, topic, partitions, "read_uncommitted", readers[1]),
    )


def read_all(
    bootstrap: str, topic: str, partitions: int, isolation: Isolation, client: str
) -> list[tuple[int, int]]:
    """Partition and offset of every record that a new reader is given until its partitions end."""
    config: dict[str, Any] = settings(CONSUMER) | {
        "bootstrap.servers": bootstrap,
        "client.id": client,
        "group.id": client,
        "isolation.level": isolation,
        "enable.partition.eof": True,
    }
    consumer = Consumer(config)
    left, found = set(range(partitions)), []
    deadline = time.monotonic() + READ_LIMIT_S
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in sorted(left)])
        while left:
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    found.append((message.partition() or 0, message.offset() or 0))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
            if left and time.monotonic() > deadline:
                raise TimeoutError(f"{client} did not reach the end of partitions {sorted(left)} of {topic}")
    finally:
        consumer.close()
    return sorted(found)


def refusals(cluster: Cluster, who: Identity, place: Place) -> dict[str, str]:
    """Send a producer's requests by hand, with this id and epoch: the answers of its coordinator, by name."""
    admin = cluster.admin
    codes = {
        "InitProducerId 4": initialise(
            admin, who.transactional_id, producer_id=who.producer_id, epoch=who.epoch
        ).code,
        "AddPartitionsToTxn 0": add_partitions(admin, who, [place]),
        "AddOffsetsToTxn 0": add_offsets(admin, who, "nobody"),
        "EndTxn 1": end(admin, who, commit=True),
    }
    return {request: api_keys.error_name(code) if code else "NONE" for request, code in codes.items()}


def listed(things: Iterable[object]) -> str:
    """Some things in one line; none are said to be none."""
    return ", ".join(map(str, things)) or "none"


def rows(steps: Sequence[CoordinatorEntry]) -> list[list[object]]:
    """Log steps as plain rows: milliseconds since the first, what, epoch, partitions or place."""
    first = steps[0].wall if steps else 0
    return [
        [round((s.wall - first) / 1e6), s.what, s.epoch, s.places or [[s.topic, s.partition, s.offset]]]
        for s in steps
    ]
