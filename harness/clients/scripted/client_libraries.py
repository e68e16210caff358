"""Transactional producers of several client libraries behind one interface.

Every call returns when the library has returned, and raises `RefusedCallError` when the library reports an
error. The settings are the libraries' defaults, so a walkthrough shows the default behaviour of each library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from harness.base.errors import UsageError
from harness.base.partition_id import PartitionId
from harness.clients.client import NeverReturnedError, bounded, library_error
from harness.evidence.history import Error

CALL_S: Final = 30.0
NEVER_RETURNED: Final = "NeverReturned"


class RefusedCallError(Exception):
    """An error that a client library reported, with the name that the library or Kafka gives it."""

    def __init__(self, name: str, message: str, code: int = -1) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.error = Error(code=code, name=name, message=message)


class ProducerConfig(NamedTuple):
    """Settings of a transactional producer."""

    bootstrap: str
    transactional_id: str
    client_id: str
    timeout_ms: int


class LibraryClient(Protocol):
    """Interface of a transactional producer of any client library."""

    def init(self) -> None:
        """Initialise the transactional id. This fences an earlier producer with the same id."""

    def begin(self) -> None:
        """Begin a transaction. Later calls of `send` add records to it."""

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Send records and wait for the ack of each."""

    def end(self, how: str) -> None:
        """Commit or abort the open transaction, as `how` requests."""

    def close(self) -> None:
        """Drop the producer without ending its transaction."""


@runtime_checkable
class SubmittingClient(Protocol):
    """Interface of a producer that can also send without waiting for acks."""

    def submit(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Send records, and do not wait for their acks."""

    def flush(self, limit_s: float = CALL_S) -> None:
        """Wait until every submitted record is acknowledged or has failed, or until the time limit."""


@runtime_checkable
class OffsetClient(Protocol):
    """Interface of a producer that can commit positions of a consumer group in its transaction."""

    def send_offset(self, partition_id: PartitionId, offset: int, group: str, member: Any) -> None:
        """Add a group's position in one partition to the open transaction.

        `member` has the method `consumer_group_metadata`, as a consumer of confluent-kafka that is a member
        of the group. If it is None, only the group is named, and no membership.
        """


class ConfluentClient:
    """Producer of confluent-kafka, which wraps librdkafka."""

    def __init__(self, config: ProducerConfig) -> None:
        from confluent_kafka import Producer

        self._producer: Any = Producer(
            {
                "bootstrap.servers": config.bootstrap,
                "transactional.id": config.transactional_id,
                "client.id": config.client_id,
                "transaction.timeout.ms": config.timeout_ms,
                "log_level": 2,
                "error_cb": self._on_error,
            }
        )
        self._fatal: Any = None

    def init(self) -> None:
        self._call(partial(self._producer.init_transactions, CALL_S))

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        from confluent_kafka import KafkaError

        reports: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            reports.append(error)

        produce = partial(self._producer.produce, topic, partition=partition, on_delivery=delivered)
        for value in values:
            self._call(partial(produce, value))
        self._call(partial(self._producer.flush, CALL_S))
        if self._fatal is not None:
            raise _refused(self._fatal)
        if errors := [error for error in reports if error is not None]:
            raise _refused(errors[0])
        if len(reports) < len(values):
            raise RefusedCallError("timeout", f"{len(values) - len(reports)} records are not acknowledged")

    def submit(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        for value in values:
            self._call(partial(self._producer.produce, topic, value, partition=partition))
        self._producer.poll(0)

    def flush(self, limit_s: float = CALL_S) -> None:
        self._call(partial(self._producer.flush, limit_s))

    def send_offset(self, partition_id: PartitionId, offset: int, group: str, member: Any) -> None:
        from confluent_kafka import Consumer, TopicPartition

        positions = [TopicPartition(*partition_id, offset)]
        if member is None:
            # The metadata of a consumer that never subscribed names the group only.
            member = Consumer({"group.id": group, "log_level": 0})
        metadata = member.consumer_group_metadata()
        self._call(partial(self._producer.send_offsets_to_transaction, positions, metadata, CALL_S))

    def end(self, how: str) -> None:
        producer = self._producer
        call = producer.commit_transaction if how == "commit" else producer.abort_transaction
        self._call(partial(call, CALL_S))

    def close(self) -> None:
        # Do not call a close method: it would abort the transaction, or raise an exception after a fatal
        # error. Only drop the reference.
        self._producer = None

    def _call(self, call: Callable[[], object]) -> None:
        from confluent_kafka import KafkaException

        try:
            call()
        except (KafkaException, SystemError) as exception:
            error = library_error(exception)
            if error is None:
                raise
            raise _refused(self._fatal or error) from exception

    def _on_error(self, error: Any) -> None:
        # Keep the first fatal error, because later calls only raise a generic _FATAL.
        if error.fatal() and error.code() != error._FATAL:
            self._fatal = self._fatal or error


def _refused(error: Any) -> RefusedCallError:
    return RefusedCallError(error.name(), error.str(), error.code())


class KafkaPythonClient:
    """Producer of kafka-python, which is implemented in pure Python."""

    def __init__(self, config: ProducerConfig) -> None:
        from harness.clients.scripted.kafka_python_sockets import KeptSocket

        self._config = config
        self._producer: Any = None
        self._sockets = KeptSocket.new_owner()

    def init(self) -> None:
        self._within(self._open)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:

        def send() -> None:
            sent = [self._producer.send(topic, value, partition=partition) for value in values]
            for future in sent:
                future.get(CALL_S)

        self._call(send)

    def submit(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        for value in values:
            self._call(partial(self._producer.send, topic, value, partition=partition))

    def flush(self, limit_s: float = CALL_S) -> None:
        self._call(partial(self._producer.flush, limit_s))

    def end(self, how: str) -> None:
        producer = self._producer
        self._within(producer.commit_transaction if how == "commit" else producer.abort_transaction)

    def send_offset(self, partition_id: PartitionId, offset: int, group: str, member: Any) -> None:
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        metadata = group if member is None else member.consumer_group_metadata()
        positions = {TopicPartition(*partition_id): OffsetAndMetadata(offset, "", -1)}
        self._within(partial(self._producer.send_offsets_to_transaction, positions, metadata))

    def close(self) -> None:
        from harness.clients.scripted.kafka_python_sockets import KeptSocket

        if self._producer is not None:
            self._producer.close(timeout=1, null_logger=True)
        KeptSocket.close_all(self._sockets)

    def _open(self) -> None:
        from kafka import KafkaProducer

        config = self._config
        self._producer = KafkaProducer(
            bootstrap_servers=config.bootstrap.split(","),
            transactional_id=config.transactional_id,
            client_id=config.client_id,
            transaction_timeout_ms=config.timeout_ms,
            proxy_url=self._sockets,
        )
        self._producer.init_transactions()

    def _within(self, call: Callable[[], object]) -> None:
        """Make a call that has no time limit of its own, and abandon it after CALL_S seconds."""
        try:
            bounded(partial(self._call, call), CALL_S)
        except NeverReturnedError as error:
            raise RefusedCallError(NEVER_RETURNED, str(error)) from None

    def _call(self, call: Callable[[], object]) -> None:
        from kafka.errors import KafkaError

        try:
            call()
        except KafkaError as error:
            raise RefusedCallError(type(error).__name__, str(error), getattr(error, "errno", -1)) from error


LIBRARIES: dict[str, Callable[[ProducerConfig], LibraryClient]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
}


def open_client(library: str, config: ProducerConfig) -> LibraryClient:
    """Return a new producer of this library."""
    if library not in LIBRARIES:
        raise UsageError(f"there is no client library {library!r}", f"libraries are {', '.join(LIBRARIES)}")
    return LIBRARIES[library](config)
