"""Base of the scripted transactional producers: a history, transaction numbers, record numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.clients.client_spec import TransactionalSpec
from harness.clients.lane_sequences import Lanes
from harness.evidence.history import HistoryFile, HistoryWriter, Sent
from harness.evidence.record import LaneEncoder


class TransactionHistory:
    """History of one producer's calls, with numbers for its transactions and records."""

    def __init__(self, spec: TransactionalSpec, partitions: Sequence[int]) -> None:
        self.spec = spec
        self.name = spec.client
        self.number = spec.number
        self.transactional_id = spec.transactional_id
        self.partitions = list(partitions)
        self.txn = 0
        self._history = HistoryWriter(Path(spec.history), run=spec.run, client=spec.client, role=spec.kind)
        self._history.producer(
            spec.number,
            [(spec.topic, partition) for partition in partitions],
            transactional_id=spec.transactional_id,
            timeout_ms=spec.transaction_timeout_ms,
        )
        self._lanes = Lanes(len(self.partitions))
        self._listed: list[Sent] = []
        """The records that the last end of the current transaction listed in the history."""
        self._encoders = [
            LaneEncoder(spec.run, spec.number, lane, b"x" * spec.payload)
            for lane in range(len(self.partitions))
        ]

    @property
    def history(self) -> HistoryFile:
        """The history that has been written so far."""
        return HistoryFile(Path(self.spec.history))

    def _invoke_init(self) -> int:
        return self._history.invoke("init", producer=self.number)

    def _invoke_begin(self) -> int:
        if self._lanes.sent() != self._listed:
            # The history must list every sequence, also those of a transaction that the client gives up.
            self._history.ok(self._invoke_end("abandon"))
        self.txn += 1
        self._listed = []
        self._lanes.begin()
        return self._history.invoke("begin", producer=self.number, txn=self.txn)

    def _invoke_end(self, how: str, **fields: Any) -> int:
        self._listed = self._lanes.sent()
        return self._history.invoke(how, producer=self.number, txn=self.txn, sent=self._listed, **fields)
