"""Synthetic topics for benchmarks of the verification: planned transactions and their client's ledger."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.base.partition_id import PartitionId
from harness.evidence.history import HistoryFile
from harness.evidence.ledger import Ledger, fold
from harness.evidence.record import LaneEncoder

PARTITIONS: Final = 4
TXN: Final = 20_000
SHARE: Final = TXN // PARTITIONS
RUN: Final = "bench001"


@dataclass(frozen=True)
class Plan:
    """The transactions of a synthetic topic. Each writes to all partitions, and every tenth is aborted.

    There are as many transactions as are needed to commit `records` records. Each partition has `turns`
    lanes. The records of a partition come from its lanes in turn, one record at a time.
    """

    topic: str
    records: int
    turns: int = 1

    @cached_property
    def aborted(self) -> list[bool]:
        """For each transaction in order: True if it is aborted, False if it is committed."""
        ends: list[bool] = []
        while ends.count(False) * TXN < self.records:
            ends.append(len(ends) % 10 == 9)
        return ends

    @property
    def lanes(self) -> list[PartitionId]:
        """The partition of every lane, as a pair of topic and partition number."""
        return [(self.topic, lane % PARTITIONS) for lane in range(PARTITIONS * self.turns)]

    def sent(self, txn: int) -> list[tuple[int, int, int]]:
        """Return (lane, first sequence, last sequence) of the records of a transaction, for each lane."""
        size = SHARE // self.turns
        return [(lane, txn * size, txn * size + size - 1) for lane in range(len(self.lanes))]

    def ledger(self) -> Ledger:
        """Return the ledger of a client that wrote these transactions without errors."""
        lines = self._opening()
        for txn, aborted in enumerate(self.aborted):
            ids = {"f": "abort" if aborted else "commit", "op": txn, "mono": txn + 1, "wall": txn + 1}
            lines.append({"type": "invoke", "producer": 1, "txn": txn + 1, "sent": self.sent(txn), **ids})
            lines.append({"type": "ok", **ids})
        return fold([HistoryFile(Path("p1.jsonl"), msgspec.json.Encoder().encode_lines(lines))])

    def _opening(self) -> list[dict[str, Any]]:
        clocks = {"mono": 0, "wall": 0}
        first = {"type": "open", "format": 1, "run": RUN, "client": "p1", "role": "producer", "host": "h"}
        declared = {"type": "producer", "producer": 1, "transactional_id": "bench", "lanes": self.lanes}
        return [{**first, "pid": 1, "clock": "clock", **clocks}, {**declared, **clocks}]


class Writer:
    """Writer of a synthetic topic.

    The constructor creates the topic. Each call of `transaction` writes one of the planned transactions.
    """

    def __init__(self, bootstrap: str, plan: Plan, replicas: int = 3) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(plan.topic, PARTITIONS, replicas)])[plan.topic].result(30)
        self.plan = plan
        self._lanes = [LaneEncoder(RUN, 1, lane) for lane in range(len(plan.lanes))]
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"bench-{uuid.uuid4().hex[:8]}",
                "linger.ms": 20,
                "batch.num.messages": 10_000,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 500_000,
            }
        )
        self._producer.init_transactions(60)

    def transaction(self, txn: int) -> None:
        """Write one transaction, and commit or abort it according to the plan."""
        producer, aborted = self._producer, self.plan.aborted[txn]
        producer.begin_transaction()
        sent = self.plan.sent(txn)
        for partition in range(PARTITIONS):
            batches = [
                self._lanes[lane].batch(first, last - first + 1, txn, "a" if aborted else "c")
                for lane, first, last in sent[partition::PARTITIONS]
            ]
            values = [{"value": value} for turn in zip(*batches, strict=True) for value in turn]
            taken = producer.produce_batch(self.plan.topic, values, partition=partition)
            assert taken == len(values), "the queue of the client is too small for a transaction"
            producer.poll(0)
        producer.flush(120)  # otherwise an abort would drop queued records without sending them
        (producer.abort_transaction if aborted else producer.commit_transaction)(120)
