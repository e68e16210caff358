"""Topics written record by record to a real cluster: with exactly known violations, or without any.

Each kind of violation has its own producer and topic. All topics belong to one run, so one verification must
distinguish the violations. A transaction has 100 sequences on each of two lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer

from harness.cluster.cluster import Cluster
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.record import Identity, encode

SEQS = 600
STEP = 100
Record = tuple[int, int, int]  # producer, lane, sequence
Value = Record | bytes


@dataclass
class Topic:
    """The contents of one topic, and the history of its producer."""

    producer: int
    name: str
    parts: list[list[Value]] = field(default_factory=list)
    ends: dict[int, str] = field(default_factory=dict)  # transaction -> how it ended (no entry: committed)

    def __post_init__(self) -> None:
        self.parts = [[(self.producer, lane, seq) for seq in range(SEQS)] for lane in (0, 1)]

    def end(self, txn: int, how: str, *, shown: bool) -> None:
        """Set how a transaction without a confirmed commit ended; hide its records unless `shown`."""
        self.ends[txn] = how
        if not shown:
            for lane in (0, 1):
                self.hide(lane, txn * STEP, txn * STEP + STEP - 1)

    def hide(self, lane: int, first: int, last: int) -> None:
        gone = {(self.producer, lane, seq) for seq in range(first, last + 1)}
        self.parts[lane] = [one for one in self.parts[lane] if one not in gone]

    def show(self, lane: int, seq: int) -> None:
        part = self.parts[lane]
        at = next(i for i, one in enumerate(part) if not isinstance(one, bytes) and one[2] > seq)
        part.insert(at, (self.producer, lane, seq))

    def swap(self, lane: int, seq: int) -> None:
        part = self.parts[lane]
        part[seq], part[seq + 1] = part[seq + 1], part[seq]


def duplicate_of_the_last(t: Topic) -> None:
    t.parts[0].append((t.producer, 0, SEQS - 1))


def record_of_another_partition(t: Topic) -> None:
    t.parts[1].append((t.producer, 0, 10))


def missing_first(t: Topic) -> None:
    t.hide(0, 0, 0)


def missing_last(t: Topic) -> None:
    t.hide(1, SEQS - 1, SEQS - 1)


def hole_across_words(t: Topic) -> None:
    del t.ends[2]  # transaction 2 then has a confirmed commit, so each of its missing records is lost
    t.hide(0, 250, 260)


def swap_inside_a_word(t: Topic) -> None:
    t.swap(0, 300)


def swap_across_words(t: Topic) -> None:
    t.swap(1, 255)


def aborted_and_read(t: Topic) -> None:
    t.show(0, 142)


def half_a_transaction(t: Topic) -> None:
    t.hide(1, 200, 299)


def phantom_producer(t: Topic) -> None:
    t.parts[0].insert(7, (900 + t.producer, 0, 0))


def bytes_without_identity(t: Topic) -> None:
    t.parts[1].insert(9, b"unknown")


KINDS: tuple[Callable[[Topic], None], ...] = (
    duplicate_of_the_last,
    record_of_another_partition,
    missing_first,
    missing_last,
    hole_across_words,
    swap_inside_a_word,
    swap_across_words,
    aborted_and_read,
    half_a_transaction,
    phantom_producer,
    bytes_without_identity,
)

WANTED = {"lost": 13, "duplicate": 1, "phantom": 3, "reordered": 2, "aborted_read": 1, "torn_transaction": 5}
"""Expected number of each anomaly. Five transactions are readable only in part, so they count as torn too."""


def make(prefix: str, *, flawed: bool) -> list[Topic]:
    """Return topics with every kind of violation, or, if not `flawed`, the same topics without violations."""
    topics = []
    for number, kind in enumerate(KINDS, 1):
        topic = Topic(number, f"{prefix}-{kind.__name__.replace('_', '-')}")
        # Every topic also has transactions that are permitted: an aborted one, and one that has an unknown
        # outcome and is fully readable.
        topic.end(1, "abort", shown=False)
        topic.end(2, "info", shown=True)
        topic.end(3, "info", shown=False) if number % 2 else None
        if flawed:
            if kind in (swap_inside_a_word, swap_across_words):
                topic.ends.clear()
                topic.parts = Topic(number, topic.name).parts
            kind(topic)
        topics.append(topic)
    return topics


def write(cluster: Cluster, topics: list[Topic], run: str, folder: Path) -> Path:
    """Write the topics and their histories; return the folder of the histories."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap("DIRECT"), "enable.idempotence": True, "linger.ms": 20}
    )
    failed: list[Any] = []
    for topic in topics:
        cluster.create_topic(topic.name, 2)
        for partition, part in enumerate(topic.parts):
            for one in part:
                value = one if isinstance(one, bytes) else encode(_identity(topic, run, one))
                producer.produce(
                    topic.name,
                    value,
                    partition=partition,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed
    return histories(topics, run, folder)


def _identity(topic: Topic, run: str, one: Record) -> Identity:
    txn = one[2] // STEP
    return Identity(run, *one, txn, "a" if topic.ends.get(txn) == "abort" else "c")


def histories(topics: list[Topic], run: str, folder: Path) -> Path:
    """Write one history per producer."""
    folder.mkdir(parents=True, exist_ok=True)
    for topic in topics:
        clocks = {"mono": 1, "wall": 1}
        opening = {
            "type": "open",
            "format": 1,
            "run": run,
            "client": f"p{topic.producer}",
            "role": "producer",
        }
        lines: list[dict[str, Any]] = [
            {**opening, "host": "h", "pid": 1, "clock": "clock", **clocks},
            {
                "type": "producer",
                "producer": topic.producer,
                "transactional_id": f"id-{topic.producer}",
                "lanes": [(topic.name, 0), (topic.name, 1)],
                **clocks,
            },
        ]
        for txn in range(SEQS // STEP):
            end = topic.ends.get(txn, "ok")
            f = "abort" if end == "abort" else "commit"
            sent = [(lane, txn * STEP, txn * STEP + STEP - 1) for lane in (0, 1)]
            asked = {
                "type": "invoke",
                "f": f,
                "op": txn,
                "producer": topic.producer,
                "txn": txn,
                "sent": sent,
            }
            lines += [
                {**asked, **clocks},
                {"type": "info" if end == "info" else "ok", "f": f, "op": txn, **clocks},
            ]
        (folder / f"p{topic.producer}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(lines))
    return folder


def counts(judgement: Judgement) -> dict[str, int]:
    """Return how often each anomaly occurs, by its name."""
    return {one.name: one.count for result in judgement.results for one in result.anomalies}
