"""A reader that looks when it is told, while transactions are open: what it is given, and when."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, Message, TopicPartition

from harness.base.waits import wait_until
from harness.clients.client_spec import ALONE
from harness.clients.poll_decoding import given, runs
from harness.evidence.history import HistoryWriter
from harness.walkthroughs.stage import Stage

LOOK_S: Final = 30.0
"""For a partition's end to come: for a read_committed reader that is its last stable offset."""
MOST: Final = 500


class OpenTransactionReader:
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
                "bootstrap.servers": self._bootstrap,
                "group.id": ALONE,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        try:
            consumer.assign([TopicPartition(*self._place, 0)])
            op = self._history.invoke("poll")
            messages: list[Message] = []

            def ended() -> bool:
                messages.extend(consumer.consume(MOST, timeout=0.2))
                return bool(messages) and messages[-1].error() is not None

            wait_until(ended, LOOK_S, f"the end of {self._place[0]}-{self._place[1]}", every=0)
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
