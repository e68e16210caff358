"""Code that all clients share: deadlines, pacing, calls with a time limit, and recording of errors."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException

from harness.base.partition_id import PartitionId
from harness.clients.client_settings import FINISH_LIMIT_S
from harness.clients.progress import ClientProgress
from harness.evidence.history import COMMITTED_POSITION, Error, HistoryWriter, Position

S = TypeVar("S")
LEAST_LIMIT_S: Final = 0.5
"""Smallest time limit of a call, in seconds. It applies even when the client should have stopped already."""
MOST_BEHIND_S: Final = 1.0


class CannotGoOnError(Exception):
    """Error after which the client must stop early; the message gives the reason."""

    def __init__(self, why: str, error: KafkaError | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.error = error


class NeverReturnedError(KafkaException):
    """Error of a library call that did not return within its limit; the call continues in its own thread."""

    def __init__(self, limit: float) -> None:
        super().__init__(KafkaError(KafkaError._TIMED_OUT, f"the call did not return within {limit:.0f} s"))


def bounded(call: Callable[[], object], limit: float) -> None:
    """Run a call in a thread, and raise NeverReturnedError if it exceeds the limit.

    Some library calls have no limit, or ignore the limit that they are given. After NeverReturnedError, do
    not use the called object again, because the call still runs in its thread. Any exception of the call is
    raised, without the stack frames of the thread. These frames would form a reference cycle, which would
    keep the producer in memory until the next garbage collection. Nothing would poll the producer during that
    time.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as exception:  # noqa: BLE001 - the caller must not take any of them for a success
            raised.append(_without_frames(exception))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        raise NeverReturnedError(limit)
    if raised:
        raise raised.pop()


def _without_frames(exception: BaseException) -> BaseException:
    """Remove the stack frames of an exception and of those that led to it."""
    chain: BaseException | None = exception
    while chain is not None:
        chain.__traceback__ = None
        chain = chain.__cause__ or chain.__context__
    return exception


class Deadline:
    """Time budget of a client: when it must stop, and how long a call may still take."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self._requested_at: float | None = None

    def request_stop(self, *_: object) -> None:
        """Request that the client stops. This method can be used as a signal handler."""
        if self._requested_at is None:
            self._requested_at = time.monotonic()

    def __bool__(self) -> bool:
        if time.monotonic() >= self._ends:
            self.request_stop()
        return self._requested_at is not None

    def limit(self, seconds: float) -> float:
        """Return how many seconds a call may take.

        After a stop request, the result is at most the remaining part of FINISH_LIMIT_S, and at least
        LEAST_LIMIT_S.
        """
        if self._requested_at is None:
            return seconds
        return max(LEAST_LIMIT_S, min(seconds, self._requested_at + FINISH_LIMIT_S - time.monotonic()))


class Pace:
    """Schedule that spaces records evenly over time.

    After an outage, a client sends the records that became due in the last MOST_BEHIND_S seconds at once. It
    skips the records that became due earlier.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = time.monotonic()

    def ahead(self) -> float:
        """Return the seconds until the next record is due, or 0 if one is due now."""
        now = time.monotonic()
        self._due = max(self._due, now - MOST_BEHIND_S)
        return max(0.0, self._due - now)

    def sent(self, records: int) -> None:
        self._due += records / self._rate


class ClientLog:
    """Log of a client. It goes to standard error, and its last line also to the client's progress file."""

    def __init__(self, progress: ClientProgress) -> None:
        self._progress = progress

    def write(self, text: str) -> None:
        """Write a line with the time of day."""
        self._progress.last_error = text
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def error(self, error: KafkaError) -> None:
        """Log an error of the client library. The library calls this method as its error callback."""
        self.write(f"{error.name()}: {error.str()}")


CLEARED: Final = "returned NULL without setting an exception"
"""The end of the message of a SystemError whose exception a callback cleared."""


def kafka_error(error: KafkaException) -> KafkaError:
    """Return the KafkaError inside an exception of the library."""
    inside = error.args[0]
    assert isinstance(inside, KafkaError)
    return inside


def library_error(exception: BaseException) -> KafkaError | None:
    """Return the error that the client library reported with this exception; None if it reported none.

    After a fatal error, confluent-kafka runs callbacks while an exception is already set. Python then raises
    SystemError. Its cause is the exception of the library, unless a callback cleared this exception. In that
    case, the error has only the code `_FATAL`.
    """
    if isinstance(exception, SystemError) and str(exception).endswith(CLEARED):
        return KafkaError(KafkaError._FATAL, "confluent-kafka lost the details of a fatal error", fatal=True)
    reported = exception.__cause__ if isinstance(exception, SystemError) else exception
    return kafka_error(reported) if isinstance(reported, KafkaException) else None


def exception_of(exception: BaseException) -> Error:
    """Convert an exception into the form that a history stores."""
    error = library_error(exception)
    if error is not None:
        return error_of(error)
    return Error(code=0, name=type(exception).__name__, message=str(exception))


def error_of(
    error: KafkaError | None, otherwise: str = "the client was closed before the result arrived"
) -> Error:
    """Convert an error into the form that a history stores.

    `error` is None if no answer arrived. In this case the message is `otherwise`.
    """
    if error is None:
        return Error(code=0, name="NO_ANSWER", message=otherwise)
    raised = (
        ("fatal", error.fatal()),
        ("retriable", error.retriable()),
        ("abortable", error.txn_requires_abort()),
    )
    flags = [name for name, is_raised in raised if is_raised]
    return Error(code=error.code(), name=error.name(), flags=flags, message=error.str())


def note(history: HistoryWriter, what: str, number: int, why: str) -> None:
    """Record an action that the client took by itself, such as `reinit`, and the reason for it."""
    op = history.invoke(what, producer=number)
    history.info(op, Error(code=0, name=what.upper(), message=why))


class PositionLog:
    """Notes of a consumer in its history: partitions that it got, lost, moved to, or read to the end."""

    def __init__(self, history: HistoryWriter, group: str | None) -> None:
        self._history = history
        self._group = group

    def assigned(self, places: Iterable[PartitionId], offset: int = COMMITTED_POSITION) -> None:
        """Record that the consumer reads these partitions from now on.

        It starts at `offset`, or at the group's committed position.
        """
        self._note("assign", [(*place, offset) for place in places])

    def revoked(self, places: Iterable[PartitionId]) -> None:
        """Record that the consumer no longer reads these partitions."""
        self._note("revoke", [(*place, COMMITTED_POSITION) for place in places])

    @contextmanager
    def moving(self, positions: Iterable[Position]) -> Iterator[None]:
        """Record that the client moves the consumer to these positions, and whether it succeeded."""
        op = self._history.invoke("seek", group=self._group, offsets=sorted(positions))
        try:
            yield
        except KafkaException as exception:
            self._history.info(op, error_of(kafka_error(exception)))
            raise
        self._history.ok(op)

    def caught_up(self, ends: Iterable[Position]) -> None:
        """Record that the consumer was given all readable records before these offsets."""
        self._note("caught_up", list(ends))

    def _note(self, what: str, offsets: list[Position]) -> None:
        if offsets:
            self._history.ok(self._history.invoke(what, group=self._group, offsets=sorted(offsets)))


class ClientPart(Generic[S]):
    """Base class for parts of a client that use Kafka. It holds spec, history, progress, deadline and log."""

    def __init__(self, spec: S, history: HistoryWriter, progress: ClientProgress, stop: Deadline) -> None:
        self._spec = spec
        self._history = history
        self._progress = progress
        self._stop = stop
        self._log = ClientLog(progress)
