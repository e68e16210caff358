"""A transactional producer of any client library, with a history.

The history contains only what the library reported. A commit or abort without an answer, or with an unclear
one, is recorded as `info`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from harness.base.errors import UsageError
from harness.clients.client_spec import TransactionalSpec
from harness.clients.scripted.client_libraries import (
    CALL_S,
    LibraryClient,
    ProducerConfig,
    RefusedCallError,
    SubmittingClient,
    open_client,
)
from harness.clients.scripted.transaction_history import TransactionHistory
from harness.evidence.record import ABORT, COMMIT

RECORDS: Final = 3
"""Number of records in each send."""
End = Literal["commit", "abort"]


class LibraryProducer(TransactionHistory):
    """Scripted producer of any client library.

    `init` replaces the library's producer. The numbers of the transactions continue.
    """

    def __init__(self, spec: TransactionalSpec, library: str, lanes: Sequence[int]) -> None:
        super().__init__(spec, lanes)
        self._library = library
        self._client: LibraryClient | None = None

    @property
    def client(self) -> LibraryClient:
        """The library's producer; available after `init`."""
        assert self._client is not None
        return self._client

    def init(self) -> None:
        """Open a new producer with the same transactional id, which fences the previous producer."""
        spec = self.spec
        config = ProducerConfig(spec.bootstrap, self.transactional_id, self.name, spec.transaction_timeout_ms)
        before, self._client = self._client, open_client(self._library, config)
        self._record(self._invoke_init(), self._client.init)
        if before is not None:
            before.close()

    def begin(self) -> None:
        """Begin a transaction."""
        self._record(self._invoke_begin(), self.client.begin)

    def send(self, lane: int, outcome: End, count: int = RECORDS) -> None:
        """Send records whose transaction is meant to end with `outcome`, and wait for their acks."""
        self.client.send(self.spec.topic, self.partitions[lane], self._values(lane, outcome, count))

    def submit(self, lane: int, outcome: End, count: int = RECORDS) -> None:
        """Send records like `send`, but do not wait for their acks."""
        values = self._values(lane, outcome, count)
        self._submitting().submit(self.spec.topic, self.partitions[lane], values)

    def flush(self, limit_s: float = CALL_S) -> None:
        """Wait until every submitted record is acknowledged or has failed, or until the time limit."""
        self._submitting().flush(limit_s)

    def end(self, how: End) -> None:
        """Commit or abort the open transaction, as `how` requests, and record the library's answer."""
        self._record(self._invoke_end(how, limit_ms=int(CALL_S * 1000)), lambda: self.client.end(how))

    def whole(self, how: End, *lanes: int, count: int = RECORDS) -> None:
        """Make a complete transaction with records in each of these lanes, and end it as `how` requests."""
        self.begin()
        for lane in lanes:
            self.send(lane, how, count)
        self.end(how)

    def close(self) -> None:
        """Close the producer and its history; closing twice is harmless."""
        client, self._client = self._client, None
        try:
            if client is not None:
                client.close()
        finally:
            self._history.close()

    def _submitting(self) -> SubmittingClient:
        client = self.client
        if not isinstance(client, SubmittingClient):
            raise UsageError(
                f"{self._library} cannot send without waiting here", "use another client library"
            )
        return client

    def _values(self, lane: int, outcome: End, count: int) -> list[bytes]:
        first = self._lanes.take(lane, count)
        mark = COMMIT if outcome == "commit" else ABORT
        return self._encoders[lane].batch(first, count, self.txn, mark)

    def _record(self, op: int, call: Callable[[], None]) -> None:
        try:
            call()
        except RefusedCallError as refused:
            self._history.info(op, refused.error)
            raise
        self._history.ok(op)
