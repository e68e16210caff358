"""The transactions of one client: begin, fill, end, and error handling.

The client library has the same rules for every call. After a retriable error, the client repeats the call.
After an error that requires an abort, it aborts the transaction. After any other error, it creates a new
producer with the same transactional id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import partial

from confluent_kafka import KafkaError, Producer, TopicPartition

from harness.clients import fencing_check
from harness.clients.client import CannotGoOnError, Deadline
from harness.clients.client_settings import ATTEMPT_LIMIT_S, END_LIMIT_S
from harness.clients.client_spec import PipelineSpec, SeederSpec, TransactionalSpec
from harness.clients.lane_sequences import Lanes
from harness.clients.producer_lifecycle import (
    FENCED,
    BrokenTransactionError,
    ProducerLife,
    breaking_transaction,
)
from harness.clients.progress import ClientProgress
from harness.evidence.history import HistoryWriter, Position


class Ended(StrEnum):
    """How a transaction ended, according to the answers that its client received."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Transactor:
    """The transactions of one client in order: `begin`, `send`, then `commit` or `abort`."""

    def __init__(
        self,
        spec: TransactionalSpec | SeederSpec | PipelineSpec,
        history: HistoryWriter,
        progress: ClientProgress,
        stop: Deadline,
    ) -> None:
        assert spec.transactional_id is not None
        self._spec = spec
        self._id = spec.transactional_id
        self._places = spec.places
        self._history = history
        self._progress = progress
        self._stop = stop
        self._life = ProducerLife(spec, self._id, history, progress, stop)
        self.settle = self._life.settle
        self.serve = self._life.serve
        self.idle = self._life.serve_quietly
        self.close = self._life.close
        self.let_go = self._life.let_go
        self._lanes = Lanes(len(self._places))
        self._began = 0.0
        self._began_ms = 0
        self._commit_asked = False
        self.txn = 0
        history.producer(
            spec.number, self._places, transactional_id=self._id, timeout_ms=spec.transaction_timeout_ms
        )

    @property
    def producer(self) -> Producer:
        """The library's current producer; a later call may return its successor."""
        return self._life.producer

    @property
    def identity(self) -> tuple[int, int] | None:
        """Producer id and epoch from librdkafka's latest statistics, or None if no id has arrived yet."""
        return self._life.identity.seen

    def begin(self) -> None:
        """Begin a transaction; create a new producer first if the last one must be replaced."""
        if self.txn and self._spec.end_discipline == "always":
            self._life.renew_because = self._life.renew_because or "each transaction has a new producer"
        self.settle()
        self.txn += 1
        self._lanes.begin()
        self._commit_asked = False
        self._began, self._began_ms = time.monotonic(), time.time_ns() // 1_000_000
        op = self._history.invoke("begin", producer=self._spec.number, txn=self.txn)
        error = self._life.attempt(op, self._life.producer.begin_transaction)
        if error is not None:
            raise BrokenTransactionError(error)

    def next_of(self, lane: int) -> int:
        """Return the sequence of the next record of a lane."""
        return self._lanes.next[lane]

    def send(
        self,
        lane: int,
        values: Sequence[bytes],
        keys: Sequence[bytes] | None = None,
        headers: Sequence[list[tuple[str, str | bytes | None]]] | None = None,
    ) -> None:
        """Produce records with consecutive sequences. `commit` waits for their delivery."""
        first = self._lanes.take(lane, len(values))
        last = len(values) - 1
        plain, (topic, partition) = self._life.producer.produce, self._places[lane]
        with breaking_transaction():
            for i, value in enumerate(values):
                key = keys[i] if keys else None
                produce = partial(plain, headers=headers[i]) if headers else plain
                try:
                    if 0 < i < last:
                        produce(topic, value, key, partition=partition)
                    else:
                        # Callbacks for the first and the last record are enough. If the difference of their
                        # offsets matches the number of records, `Lanes.acked` derives the offsets between
                        # them.
                        on_delivery = self._lanes.on_delivery(lane, first + i)
                        produce(topic, value, key, partition=partition, on_delivery=on_delivery)
                except BufferError:
                    self._produce_later(produce, lane, value, key)
        self._progress.sent += len(values)
        self._progress.in_flight = self._lanes.records

    def _produce_later(
        self, produce: Callable[..., None], lane: int, value: bytes, key: bytes | None
    ) -> None:
        """Produce a record that did not fit into the library's queue: serve callbacks until it fits."""
        topic, partition = self._places[lane]
        while True:
            self.serve(0.1)
            try:
                with breaking_transaction():
                    produce(topic, value, key, partition=partition)
            except BufferError:
                continue
            return

    def send_offsets(self, group: str, positions: Iterable[Position], metadata: object) -> None:
        """Add a group's next positions to the transaction."""
        offsets = list(positions)
        places = [TopicPartition(*position) for position in offsets]
        deadline = time.monotonic() + self._stop.limit(END_LIMIT_S)
        self._life.watch.ask("TxnOffsetCommit")
        while True:
            limit = self._stop.limit(ATTEMPT_LIMIT_S)
            op = self._history.invoke(
                "send_offsets",
                producer=self._spec.number,
                txn=self.txn,
                group=group,
                offsets=offsets,
                limit_ms=int(limit * 1000),
            )
            started = time.monotonic()
            error = self._life.attempt_within(
                limit, op, partial(self._life.producer.send_offsets_to_transaction, places, metadata)
            )
            if error is None:
                self._life.look_for_repeats(time.monotonic() - started)
                return
            if not error.retriable() or time.monotonic() > deadline:
                raise BrokenTransactionError(error)

    def commit(self) -> Ended:
        """Commit the transaction, or abort it if the library requires that."""
        try:
            self.flush()
        except BrokenTransactionError as broken:
            return self.give_up(broken.error)
        return self._count(self._end("commit", self._life.producer.commit_transaction))

    def abort(self) -> Ended:
        """Abort the transaction.

        First wait for the records in flight, because librdkafka fails fatally otherwise.
        """
        try:
            self.flush()
        except BrokenTransactionError as broken:
            return self.give_up(broken.error)
        return self._count(self._end("abort", self._life.producer.abort_transaction))

    def give_up(self, error: KafkaError) -> Ended:
        """End a transaction that cannot be committed: abort it, or leave the abort to a new producer.

        With a delivery limit, the client aborts as an impatient application does: with requests in flight.
        """
        impatient = self._spec.delivery_limit_s > 0 and error.code() == KafkaError._TIMED_OUT
        if error.txn_requires_abort() or impatient:
            return self._count(self._end("abort", self._life.producer.abort_transaction))
        return self._count(self._leave(error))

    def flush(self) -> None:
        """Wait until every produced record is delivered."""
        with breaking_transaction():
            limit = self._stop.limit(self._spec.delivery_limit_s or END_LIMIT_S)
            left = self._life.producer.flush(limit)
        if left:
            raise BrokenTransactionError(
                KafkaError(KafkaError._TIMED_OUT, f"{left} records were not delivered")
            )

    def _end(self, f: str, call: Callable[[float], object]) -> Ended:
        deadline = time.monotonic() + self._stop.limit(END_LIMIT_S)
        sent = self._lanes.sent()
        if sent:
            # An empty transaction sends no EndTxn. So count an expected EndTxn only if the transaction has
            # records.
            self._life.watch.ask("EndTxn")
        while True:
            limit = self._stop.limit(ATTEMPT_LIMIT_S)
            self._commit_asked = self._commit_asked or f == "commit"
            op = self._history.invoke(
                f, producer=self._spec.number, txn=self.txn, sent=sent, limit_ms=int(limit * 1000)
            )
            started = time.monotonic()
            error = self._life.attempt_within(limit, op, call, self._lanes.acked)
            if error is None:
                self._life.look_for_repeats(time.monotonic() - started)
                return Ended.COMMITTED if f == "commit" else Ended.ABORTED
            self._life.watch.doubt = (
                self._life.watch.doubt or f"the {f} of transaction {self.txn} was requested again"
            )
            if error.txn_requires_abort() and f == "commit":
                return self._end("abort", self._life.producer.abort_transaction)
            if not error.retriable() or time.monotonic() > deadline:
                return self._leave(error)

    def _leave(self, error: KafkaError) -> Ended:
        """Leave the open transaction as it is; `init_transactions` of the next producer ends it.

        If a successor already uses the transactional id, raise CannotGoOnError, which stops the client.
        """
        if not self._commit_asked:
            op = self._history.invoke(
                "abandon", producer=self._spec.number, txn=self.txn, sent=self._lanes.sent()
            )
            self._history.ok(op)
        error = self._life.cause(error)
        self._life.renew_because = f"{error.name()}: {error.str()}"
        if error.code() in FENCED:
            ours = fencing_check.Ours(
                self._life.identity.seen,
                self._began_ms,
                self._spec.transaction_timeout_ms,
                time.monotonic() - self._began,
            )
            if not fencing_check.timed_out(self._spec.bootstrap, self._id, ours, self._spec.security):
                self._count(Ended.UNKNOWN if self._commit_asked else Ended.ABORTED)
                raise CannotGoOnError(f"a successor has the transactional id {self._id}", error)
            self._life.renew_because = "the coordinator aborted a transaction that was open for too long"
        return Ended.UNKNOWN if self._commit_asked else Ended.ABORTED

    def _count(self, ended: Ended) -> Ended:
        progress = self._progress
        progress.in_flight = 0
        setattr(progress, ended, getattr(progress, ended) + 1)
        if ended is Ended.COMMITTED:
            progress.acknowledged += self._lanes.records
        return ended
