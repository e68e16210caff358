"""Transactional producers of several client libraries behind one small face: they act when they are told.

Every call returns when the library has said how it went, and raises `RefusedCallError` where it said no.
The settings are the libraries' own defaults: what a flow shows of them is what an application meets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from harness.base.errors import UsageError
from harness.clients.client import NeverReturnedError, bounded
from harness.evidence.history import Error

CALL_S: Final = 30.0
NEVER_RETURNED: Final = "NeverReturned"


class RefusedCallError(Exception):
    """A library's own error, with its name in Kafka's or the library's words."""

    def __init__(self, name: str, message: str, code: int = -1) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.error = Error(code=code, name=name, message=message)


class Named(NamedTuple):
    """What a transactional producer is made with."""

    bootstrap: str
    transactional_id: str
    client_id: str
    timeout_ms: int


class Client(Protocol):
    """A transactional producer of some library."""

    def init(self) -> None:
        """Take over the transactional id."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Send records, and wait until each is acknowledged."""

    def end(self, how: str) -> None:
        """Commit or abort."""

    def close(self) -> None:
        """Go, without ending anything."""


class ConfluentClient:
    """confluent-kafka, which is librdkafka."""

    def __init__(self, named: Named) -> None:
        from confluent_kafka import Producer

        self._producer: Any = Producer(
            {
                "bootstrap.servers": named.bootstrap,
                "transactional.id": named.transactional_id,
                "client.id": named.client_id,
                "transaction.timeout.ms": named.timeout_ms,
                "log_level": 2,
                "error_cb": self._on_error,
            }
        )
        self._fatal: Any = None

    def init(self) -> None:
        """Take over the transactional id."""
        self._call(partial(self._producer.init_transactions, CALL_S))

    def begin(self) -> None:
        """Begin a transaction."""
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Send records, and wait until each is acknowledged."""
        from confluent_kafka import KafkaError, KafkaException

        said: list[KafkaError | None] = []

        def told(error: KafkaError | None, _: object) -> None:
            said.append(error)

        for value in values:
            self._call(partial(self._producer.produce, topic, value, partition=partition, on_delivery=told))
        self._call(partial(self._producer.flush, CALL_S))
        if self._fatal is not None:
            raise _refused(self._fatal)
        if refused := [error for error in said if error is not None]:
            self._call(partial(_throw, KafkaException(refused[0])))
        if len(said) < len(values):
            raise RefusedCallError("timeout", f"{len(values) - len(said)} records are not acknowledged")

    def end(self, how: str) -> None:
        """Commit or abort."""
        producer = self._producer
        call = producer.commit_transaction if how == "commit" else producer.abort_transaction
        self._call(partial(call, CALL_S))

    def close(self) -> None:
        """Go, without ending anything."""
        # Let go of, not closed: closing would abort, and raises where the producer has failed for good.
        self._producer = None

    def _call(self, call: Callable[[], object]) -> None:
        from confluent_kafka import KafkaException

        try:
            call()
        except (KafkaException, SystemError) as exception:
            # After a fatal error the library calls back with its exception set; Python blames the callback.
            told = exception if isinstance(exception, KafkaException) else exception.__cause__
            if not isinstance(told, KafkaException):
                raise
            raise _refused(self._fatal or told.args[0]) from exception

    def _on_error(self, error: Any) -> None:
        # What failed for good: calls say no more of it than that it did.
        if error.fatal() and error.code() != error._FATAL:
            self._fatal = self._fatal or error


def _refused(error: Any) -> RefusedCallError:
    return RefusedCallError(error.name(), error.str(), error.code())


class KafkaPythonClient:
    """kafka-python, which is Python through and through."""

    def __init__(self, named: Named) -> None:
        from harness.clients.scripted.kafka_python_sockets import KeptSocket

        self._named = named
        self._producer: Any = None
        self._sockets = KeptSocket.new_owner()

    def init(self) -> None:
        """Take over the transactional id."""
        self._within(self._open)

    def begin(self) -> None:
        """Begin a transaction."""
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Send records, and wait until each is acknowledged."""

        def send() -> None:
            sent = [self._producer.send(topic, value, partition=partition) for value in values]
            for future in sent:
                future.get(CALL_S)

        self._call(send)

    def end(self, how: str) -> None:
        """Commit or abort."""
        producer = self._producer
        self._within(producer.commit_transaction if how == "commit" else producer.abort_transaction)

    def close(self) -> None:
        """Go, without ending anything."""
        from harness.clients.scripted.kafka_python_sockets import KeptSocket

        if self._producer is not None:
            self._producer.close(timeout=1, null_logger=True)
        KeptSocket.close_all(self._sockets)

    def _open(self) -> None:
        from kafka import KafkaProducer

        named = self._named
        self._producer = KafkaProducer(
            bootstrap_servers=named.bootstrap.split(","),
            transactional_id=named.transactional_id,
            client_id=named.client_id,
            transaction_timeout_ms=named.timeout_ms,
            proxy_url=self._sockets,
        )
        self._producer.init_transactions()

    def _within(self, call: Callable[[], object]) -> None:
        """A call for which the library knows no limit."""
        try:
            bounded(partial(self._call, call), CALL_S, Exception)
        except NeverReturnedError as error:
            raise RefusedCallError(NEVER_RETURNED, str(error)) from None

    def _call(self, call: Callable[[], object]) -> None:
        from kafka.errors import KafkaError

        try:
            call()
        except KafkaError as error:
            raise RefusedCallError(type(error).__name__, str(error), getattr(error, "errno", -1)) from error


def _throw(error: Exception) -> None:
    raise error


LIBRARIES: dict[str, Callable[[Named], Client]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
}


def open_client(library: str, named: Named) -> Client:
    """A new producer of this library."""
    if library not in LIBRARIES:
        raise UsageError(f"{library!r} is no client library", f"there are {', '.join(LIBRARIES)}")
    return LIBRARIES[library](named)
