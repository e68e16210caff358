"""Lifecycle of a transactional producer: created, initialised, in doubt, replaced.

The EndTxn of a commit or abort may have been sent twice. The scenario decides what the client does in this
case. With `reinit`, the client creates a new producer with the same transactional id. Its higher epoch makes
the coordinator refuse a copy of the EndTxn that is still in transit. With `naive`, the client trusts the
client library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from harness.clients.client import (
    CannotGoOnError,
    ClientLog,
    Deadline,
    bounded,
    exception_of,
    library_error,
    note,
)
from harness.clients.client_settings import (
    ATTEMPT_LIMIT_S,
    GRACE_S,
    INIT_LIMIT_S,
    QUICKEST_RETRY_S,
    STATISTICS_LIMIT_S,
    transaction_settings,
)
from harness.clients.client_spec import PipelineSpec, SeederSpec, TransactionalSpec
from harness.clients.producer_statistics import IdentityLog, RequestCounter
from harness.clients.progress import ClientProgress
from harness.evidence.history import HistoryWriter

FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
HOPELESS: Final = (
    *FENCED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
)
"""Errors of init_transactions that would be the same after a retry."""


class BrokenTransactionError(Exception):
    """Error after which the open transaction can no longer be committed."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


@contextmanager
def breaking_transaction() -> Iterator[None]:
    """Raise an error of the client library as BrokenTransactionError."""
    try:
        yield
    except (KafkaException, SystemError) as exception:
        error = library_error(exception)
        if error is None:
            raise
        raise BrokenTransactionError(error) from exception


class ProducerLife:
    """Owner of the producer of one transactional id. It replaces the producer by a new one when required."""

    def __init__(
        self,
        spec: TransactionalSpec | SeederSpec | PipelineSpec,
        transactional_id: str,
        history: HistoryWriter,
        progress: ClientProgress,
        stop: Deadline,
    ) -> None:
        self._spec = spec
        self._id = transactional_id
        self._history = history
        self._progress = progress
        self._stop = stop
        self._log = ClientLog(progress)
        self._producer: Producer | None = None
        self.identity = IdentityLog(spec.number, history, progress)
        self.watch = RequestCounter(self.identity)
        self._resent_before = 0
        self._fatal: KafkaError | None = None
        self.renew_because = "first producer"

    def settle(self) -> None:
        """Replace the producer if required.

        Afterwards, the last transaction is decided: committed or aborted.
        """
        if self.watch.doubt and self._spec.end_discipline == "reinit":
            self.renew_because = self.renew_because or self.watch.doubt
        if not self.renew_because:
            return
        if self._producer is not None:
            self._progress.reinits += 1
            note(self._history, "reinit", self._spec.number, self.renew_because)
            self._log.write(f"creating a new producer: {self.renew_because}")
        deadline = time.monotonic() + self._stop.limit(INIT_LIMIT_S)
        self._create()
        while (error := self._init()) is not None:
            if error.code() in HOPELESS or time.monotonic() > deadline:
                raise CannotGoOnError("the transactional id could not be initialised", error)
            if not error.retriable():
                self._create()
        # The new producer has no transaction yet, so the end of a transaction cannot be in doubt. A broken
        # connection may have set `doubt` meanwhile, so clear it.
        self.renew_because = self.watch.doubt = ""

    def _create(self) -> None:
        self.let_go()
        self.identity.totals.renew()
        self.watch = RequestCounter(self.identity)
        self._fatal = None
        # Leave out settings for the consumer of a pipeline, which are in the same table.
        own = {k: v for k, v in self._spec.settings.items() if not k.startswith("consumer.")}
        config: dict[str, Any] = {
            **transaction_settings(self._id, self._spec.transaction_timeout_ms, own),
            **self._spec.servers(),
            "error_cb": self._on_error,
            "stats_cb": self.watch.on_statistics,
        }
        self._producer = Producer(config)

    def let_go(self) -> None:
        """Release the producer without closing it.

        `close` would abort the open transaction, and would wait without a limit.
        """
        if self._producer is None:
            return
        # Drop the records that are queued or in flight, so that nothing waits for their delivery.
        self._producer.purge()
        self.serve_quietly()
        self._resent_before += self.watch.resent_ends
        self._producer = None

    def _init(self) -> KafkaError | None:
        limit = self._stop.limit(ATTEMPT_LIMIT_S)
        op = self._history.invoke("init", producer=self._spec.number, limit_ms=int(limit * 1000))
        return self.attempt_within(limit, op, self.producer.init_transactions)

    @property
    def producer(self) -> Producer:
        """The current producer; a later call may return its successor."""
        assert self._producer is not None
        return self._producer

    def attempt_within(
        self, limit: float, op: int, call: Callable[[float], object], acked: Callable[[], Any] = tuple
    ) -> KafkaError | None:
        """Make one call that sends requests to brokers, and give up after its limit.

        librdkafka itself ignores the limit of a call once the coordinator it waits for has left the metadata.
        """
        return self.attempt(op, partial(bounded, partial(call, limit), limit + GRACE_S), acked)

    def attempt(
        self, op: int, call: Callable[[], object], acked: Callable[[], Any] = tuple
    ) -> KafkaError | None:
        """Make one call of the transactional interface and record the result.

        Raise an exception that is not an error of the client library: its result is unclear as well.
        """
        try:
            call()
        except BaseException as exception:
            self._history.info(op, exception_of(exception))
            error = library_error(exception)
            if error is None:
                raise
            self._log.error(error)
            return error
        self._history.ok(op, acked=acked())
        return None

    def cause(self, error: KafkaError) -> KafkaError:
        """Return the original error: after a fatal error, later calls only raise a generic _FATAL.

        The library reports the original error once, and confluent-kafka may lose this report. But each call
        of the transactional interface returns the original error as well.
        """
        if error.code() != KafkaError._FATAL:
            return error
        if self._fatal is None:
            self.serve_quietly()
        if self._fatal is None:
            try:
                with breaking_transaction():
                    self.producer.begin_transaction()
            except BrokenTransactionError as broken:
                self._on_error(broken.error)
        return self._fatal or error

    def _on_error(self, error: KafkaError) -> None:
        self._log.error(error)
        if error.fatal() and error.code() != KafkaError._FATAL:
            self._fatal = error
        self.watch.on_error(error)

    def serve(self, seconds: float) -> None:
        """Wait up to this time and serve the library's callbacks."""
        with breaking_transaction():
            self.producer.poll(seconds)

    def serve_quietly(self, seconds: float = 0.0) -> None:
        """Serve callbacks like `serve`, but only log errors; the next other call handles a fatal one."""
        try:
            with breaking_transaction():
                self.producer.poll(seconds)
        except BrokenTransactionError as broken:
            self._on_error(broken.error)

    def look_for_repeats(self, took: float) -> None:
        """Find out whether the request of the last call may have been sent twice.

        This concerns calls that commit, abort, or send positions. `took` is the number of seconds that the
        call took.
        """
        if self._spec.end_discipline == "reinit" and took >= QUICKEST_RETRY_S and not self.watch.doubt:
            self.watch.fresh(self.serve_quietly, self._serve_until)
        self._progress.resent_ends = self._resent_before + self.watch.resent_ends

    def _serve_until(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + STATISTICS_LIMIT_S
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.serve_quietly(0.05)
        return True

    def close(self) -> None:
        """Make sure that the last transaction is decided, then release the producer."""
        if self._producer is not None:
            self.settle()
            self._producer = None
