"""A transactional producer of any library that acts when it is told, with a history like every client.

The history has what the library said and nothing else: an end without an answer, or with an unclear one, is
`info`, and the ledger makes of it what that is worth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

from harness.base.closing import Closing
from harness.clients.lane_sequences import Lanes
from harness.clients.scripted.client_libraries import CALL_S, Client, Named, RefusedCallError, open_client
from harness.evidence.history import HistoryFile, HistoryWriter
from harness.evidence.record import ABORT, COMMIT, LaneEncoder

RECORDS: Final = 3
TIMEOUT_MS: Final = 30_000
End = Literal["commit", "abort"]


class Scripted(Closing):
    """One client: its transactions are numbered on when it takes a new producer of the library."""

    def __init__(
        self,
        *,
        run: str,
        name: str,
        number: int,
        library: str,
        bootstrap: str,
        topic: str,
        partitions: Sequence[int],
        histories: Path,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.name = name
        self.number = number
        self.transactional_id = f"{name}.{run}"
        self.partitions = list(partitions)
        self._library = library
        self._bootstrap = bootstrap
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._path = histories / f"{name}.jsonl"
        self._history = HistoryWriter(self._path, run=run, client=name, role="transactional")
        self._history.producer(
            number,
            [(topic, partition) for partition in partitions],
            transactional_id=self.transactional_id,
            timeout_ms=timeout_ms,
        )
        self._encoders = [LaneEncoder(run, number, lane) for lane in range(len(self.partitions))]
        self._lanes = Lanes(len(self.partitions))
        self._txn = 0
        self._client: Client | None = None

    @property
    def history(self) -> HistoryFile:
        """What it has written down."""
        return HistoryFile(self._path)

    def init(self) -> float:
        """A new producer with the transactional id, which fences the one before; how many seconds it took."""
        started = time.monotonic()
        named = Named(self._bootstrap, self.transactional_id, self.name, self._timeout_ms)
        before, self._client = self._client, open_client(self._library, named)
        op = self._history.invoke("init", producer=self.number)
        self._noted(op, self._client.init)
        if before is not None:
            before.close()
        return time.monotonic() - started

    @property
    def client(self) -> Client:
        """The producer of the library, once there is one."""
        assert self._client is not None
        return self._client

    def begin(self) -> None:
        """Begin a transaction."""
        self._txn += 1
        self._lanes.begin()
        op = self._history.invoke("begin", producer=self.number, txn=self._txn)
        self._noted(op, self.client.begin)

    def send(self, lane: int, outcome: End) -> None:
        """Send records of a transaction that is meant to end so, and wait for their acknowledgement."""
        first = self._lanes.take(lane, RECORDS)
        mark = COMMIT if outcome == "commit" else ABORT
        values = self._encoders[lane].batch(first, RECORDS, self._txn, mark)
        self.client.send(self._topic, self.partitions[lane], values)

    def end(self, how: End) -> None:
        """Commit or abort, and note what the library says."""
        op = self._history.invoke(
            how, producer=self.number, txn=self._txn, sent=self._lanes.sent(), limit_ms=int(CALL_S * 1000)
        )
        self._noted(op, lambda: self.client.end(how))

    def _noted(self, op: int, call: Callable[[], None]) -> None:
        try:
            call()
        except RefusedCallError as refused:
            self._history.info(op, refused.error)
            raise
        self._history.ok(op)

    def close(self) -> None:
        """End the client and its history."""
        try:
            if self._client is not None:
                self._client.close()
        finally:
            self._client = None
            self._history.close()
