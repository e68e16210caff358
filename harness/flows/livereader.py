"""A reader that looks when it is told, while transactions are open: what it is given, and when."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, Message, TopicPartition

from harness.flows.frame import Stage
from harness.history import HistoryWriter
from harness.workload.reader import ALONE
from harness.workload.reading import given, runs

LOOK_S: Final = 3.0
MOST: Final = 500


class LiveReader:
    """A read_committed reader of one partition over the unfaulted door, with a history of its own."""

    def __init__(self, stage: Stage, name: str, place: tuple[str, int], producer: int) -> None:
        self._history = HistoryWriter(
            stage.directory / "history" / f"{name}.jsonl", run=stage.run, client=name, role="reader"
        )
        self.path = stage.directory / "history" / f"{name}.jsonl"
        self._run = stage.run
        self._bootstrap = stage.cluster.bootstrap("DIRECT")
        self._place = place
        self._producer = producer

    def look(self) -> int:
        """Read the partition from its beginning, and note what it gives of the producer; how much that is."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap, "group.id": ALONE, "enable.auto.commit": False,
                "isolation.level": "read_committed", "enable.partition.eof": True,
            }
        )  # fmt: skip
        try:
            consumer.assign([TopicPartition(*self._place, 0)])
            op = self._history.invoke("poll")
            messages: list[Message] = []
            while not messages or messages[-1].error() is None:
                message = consumer.poll(LOOK_S)
                if message is None:
                    break
                messages.append(message)
        finally:
            consumer.close()
        records = [
            record
            for record in given([m for m in messages if m.error() is None], self._run)
            if record.identity is not None and record.identity.producer == self._producer
        ]
        self._history.ok(op, read=runs(records))
        return len(records)

    def close(self) -> None:
        """End its history."""
        self._history.close()
