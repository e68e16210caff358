"""Real transactions for the tests, with their history: 1 to 20,000 records each, and one in ten aborted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer

from harness.evidence.record import LaneEncoder


class Traffic:
    """A transactional producer that writes to the partitions of a topic and records its history."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, run: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = seed
        self.run = run
        self.lanes = [LaneEncoder(run, seed, lane) for lane in range(partitions)]
        self.topic = topic
        self.next = [0] * partitions
        self.txn = 0
        self.records = 0
        self.aborted = 0
        clocks = {"mono": 1, "wall": 1}
        opening = {"type": "open", "format": 1, "run": run, "client": f"p{seed}", "role": "producer"}
        declared = {"type": "producer", "producer": seed, "transactional_id": f"{run}-{seed}"}
        declared["lanes"] = [(topic, lane) for lane in range(partitions)]
        self.lines: list[dict[str, Any]] = [
            {**opening, "host": "h", "pid": 1, "clock": "clock", **clocks},
            {**declared, **clocks},
        ]
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{run}-{seed}",
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
                "compression.type": "lz4",
            }
        )
        self.producer.init_transactions(30)

    def transaction(self, size: int) -> None:
        """Write one transaction to some of the partitions. One in ten transactions is aborted."""
        aborted = self.random.random() < 0.1
        chosen = self.random.sample(range(len(self.lanes)), self.random.randint(1, len(self.lanes)))
        self.producer.begin_transaction()
        sent = []
        for lane in chosen:
            count = max(1, size // len(chosen))
            first = self.next[lane]
            self.next[lane] += count
            sent.append((lane, first, first + count - 1))
            for value in self.lanes[lane].batch(first, count, self.txn, "a" if aborted else "c"):
                self.producer.produce(self.topic, value, partition=lane)
                self.records += 1
            self.producer.poll(0)
        # Flush before the abort, so that the log contains the aborted records. Otherwise the tests could
        # not detect a reader that returns aborted records by mistake.
        assert self.producer.flush(60) == 0
        f = "abort" if aborted else "commit"
        (self.producer.abort_transaction if aborted else self.producer.commit_transaction)(60)
        self.aborted += aborted
        asked = {
            "type": "invoke",
            "f": f,
            "op": self.txn,
            "producer": self.number,
            "txn": self.txn,
            "sent": sent,
        }
        clocks = {"mono": 1, "wall": 1}
        self.lines += [{**asked, **clocks}, {"type": "ok", "f": f, "op": self.txn, **clocks}]
        self.txn += 1

    def history(self, folder: Path) -> Path:
        """Write the history and return its folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"p{self.number}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(self.lines))
        return folder
