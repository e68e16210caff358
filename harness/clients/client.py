"""What all clients share: when to stop, how long to wait, how an error is written down."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from harness.clients.client_settings import FINISH_LIMIT_S
from harness.clients.progress import ClientProgress
from harness.evidence.history import Error, HistoryWriter

LEAST_LIMIT_S: Final = 0.5
"""A call that is asked at all gets this long, however late it is."""
MOST_BEHIND_S: Final = 1.0


class CannotGoOnError(Exception):
    """The client must end before its time: the message says why."""

    def __init__(self, why: str, error: KafkaError | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.error = error


class NeverReturnedError(KafkaException):
    """A call of the client library that did not come back within its limit; it goes on in its own thread."""

    def __init__(self, limit: float) -> None:
        super().__init__(KafkaError(KafkaError._TIMED_OUT, f"the call did not return within {limit:.0f} s"))


def bounded(call: Callable[[], object], limit: float, handed_on: type[Exception] = KafkaException) -> None:
    """Make a call that knows no limit, or may not keep the one it is given, and leave it when that is over.

    Whatever object it was made on must not be used again: it still holds the call. It lives no longer than
    that: an exception that is kept among its own frames would keep the call's object too, unpolled, until
    somebody collects garbage, and a client that makes little of it never does.
    """
    raised: list[Exception] = []

    def run() -> None:
        try:
            call()
        except handed_on as exception:
            raised.append(exception.with_traceback(None))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        raise NeverReturnedError(limit)
    if raised:
        raise raised.pop()


class Deadline:
    """Whether the client was told to stop, or its time is over, and how long calls may take until then."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self._told: float | None = None

    def tell(self, *_: object) -> None:
        """Begin nothing more; usable as a signal handler."""
        if self._told is None:
            self._told = time.monotonic()

    def __bool__(self) -> bool:
        if time.monotonic() >= self._ends:
            self.tell()
        return self._told is not None

    def limit(self, seconds: float) -> float:
        """Seconds that a wait may take: once the client was told to stop, what is left to finish in."""
        if self._told is None:
            return seconds
        return max(LEAST_LIMIT_S, min(seconds, self._told + FINISH_LIMIT_S - time.monotonic()))


class Pace:
    """Spreads records evenly over time; what an outage kept back is not made up for in one rush."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = time.monotonic()

    def ahead(self) -> float:
        """Seconds until the next record is due, 0 if it is."""
        now = time.monotonic()
        self._due = max(self._due, now - MOST_BEHIND_S)
        return max(0.0, self._due - now)

    def sent(self, records: int) -> None:
        """Count records that were handed over."""
        self._due += records / self._rate


class Log:
    """Where a client says what it met: its output, and the last of it in its progress."""

    def __init__(self, progress: ClientProgress) -> None:
        self._progress = progress

    def say(self, text: str) -> None:
        """Write a line with the time of day."""
        self._progress.last_error = text
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def error(self, error: KafkaError) -> None:
        """Write an error that the client library reports; usable as its error callback."""
        self.say(f"{error.name()}: {error.str()}")


def kafka_error(error: KafkaException) -> KafkaError:
    """The library's error inside its exception."""
    inside = error.args[0]
    assert isinstance(inside, KafkaError)
    return inside


def error_of(error: KafkaError | None, otherwise: str = "the client was closed before it knew") -> Error:
    """An error as the history has it; with none, that there was no answer."""
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
    """Write into the history why a client does something that nobody asked it for."""
    op = history.invoke(what, producer=number)
    history.info(op, Error(code=0, name=what.upper(), message=why))
