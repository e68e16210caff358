"""A reader that reads a partition on request, while transactions are open."""

from __future__ import annotations

import time
from typing import Any, Final

from harness.base.partition_id import PartitionId, partition_name
from harness.clients.client import PositionLog
from harness.clients.client_spec import ALONE
from harness.clients.poll_decoding import given, runs
from harness.evidence.history import HistoryWriter
from harness.kafka.read_to_end import read_to_end
from harness.walkthroughs.stage import Stage

LOOK_S: Final = 30.0
"""Time limit in seconds for reading to the end of the partition. For a read_committed reader, the end is the
last stable offset.
"""


class OpenTransactionReader:
    """A read_committed reader of one partition, with its own history.

    The reader uses the DIRECT listener, which no link fault affects.
    """

    def __init__(self, stage: Stage, name: str, partition_id: PartitionId, producer: int) -> None:
        self.name = name
        if stage.client_list is not None:
            stage.client_list.add(name, "reader", 0)
        self._client_list = stage.client_list
        self._history = HistoryWriter(
            stage.directory / "history" / f"{name}.jsonl", run=stage.run, client=name, role="reader"
        )
        self.path = stage.directory / "history" / f"{name}.jsonl"
        self._moves = PositionLog(self._history, None)
        self._run = stage.run
        self._bootstrap = stage.cluster.bootstrap("DIRECT")
        self._partition_id = partition_id
        self._producer = producer

    def look(self) -> int:
        """Read the partition from its beginning, and write its records to the history.

        Return the number of records of one producer, which was passed to the constructor.
        """
        config = {
            "bootstrap.servers": self._bootstrap,
            "group.id": ALONE,
            "isolation.level": "read_committed",
        }
        messages: list[Any] = []
        self._moves.assigned([self._partition_id], 0)
        op = self._history.invoke("poll")
        deadline = time.monotonic() + LOOK_S
        if read_to_end(
            config, {self._partition_id: 0}, lambda _, message: messages.append(message), deadline
        ):
            raise TimeoutError(f"no end of {partition_name(self._partition_id)} within {LOOK_S:.0f} s")
        records = list(given(messages, self._run))
        self._history.ok(op, read=runs(records))
        identities = [record.identity for record in records if record.identity is not None]
        return sum(identity.producer == self._producer for identity in identities)

    def close(self) -> None:
        """Close the history."""
        self._history.close()
        if self._client_list is not None:
            self._client_list.end(self.name, "stopped", exit_code=0)
