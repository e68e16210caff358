"""The idempotent producer: bursts of records; each burst is one operation in its history."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from harness.clients.client import CannotGoOnError, ClientLog, Deadline, Pace, error_of, library_error, note
from harness.clients.client_settings import CALL_LIMIT_S, PRODUCER, STATISTICS_LIMIT_S, settings
from harness.clients.client_spec import IdempotentSpec, PipelineSpec
from harness.clients.poll_decoding import identify
from harness.clients.producer_statistics import IdentityLog
from harness.clients.progress import ClientProgress
from harness.evidence.history import Acked, HistoryWriter
from harness.evidence.record import LaneEncoder

MOST_OPEN_BURSTS: Final = 200
UNKNOWN_OFFSET: Final = -1
"""Offset of a record whose delivery librdkafka inferred from the answer to a later batch."""


class Burst:
    """The records of one operation, and the delivery report of each.

    With idempotence, reports arrive in the order of the records. If all records were delivered, the n-th
    offset therefore belongs to the n-th record. A record is decoded, to get its sequence, only if its
    delivery failed.
    """

    def __init__(self, op: int, lane: int, first: int, count: int, run: str, *, ordered: bool) -> None:
        self.op = op
        self.lane = lane
        self.first = first
        self.last = first + count - 1
        self.waiting = count
        self.error: KafkaError | None = None
        self._run = run
        self._ordered = ordered
        self._offsets: list[int] = []
        self._undelivered: list[int] = []

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Add the delivery report of one record."""
        if error is None:
            offset = message.offset()
            self._offsets.append(UNKNOWN_OFFSET if offset is None or offset < 0 else offset)
        else:
            self._failed(error, message)
        # Only now: if an exception interrupts this callback, the burst must stay unfinished.
        self.waiting -= 1

    def _failed(self, error: KafkaError, message: Message) -> None:
        self.error = error
        value = message.value()
        identity = identify(value if isinstance(value, bytes) else b"", self._run)
        if identity is not None:
            self._undelivered.append(identity.seq)

    @property
    def count(self) -> int:
        """Number of delivered records."""
        return len(self._offsets)

    @property
    def first_offset(self) -> int:
        """Offset of the first acknowledged record, or -1 if none is known."""
        return self._offsets[0] if self._offsets else -1

    def acked(self) -> list[Acked]:
        """Return the delivered records as intervals of consecutive sequences.

        If the offsets are known, they are consecutive within each interval too.
        """
        if self.waiting:
            # The missing reports may belong to any records of the burst, so return no record as delivered.
            return []
        if self._undelivered or not self._ordered:
            return self._known_without_offsets()
        intervals: list[Acked] = []
        first, start = self.first, 0
        offsets = self._offsets
        for i in range(1, len(offsets) + 1):
            if i == len(offsets) or offsets[i] != _behind(offsets[i - 1]):
                intervals.append((self.lane, first, first + i - 1 - start, offsets[start]))
                first, start = first + i - start, i
        return intervals

    def _known_without_offsets(self) -> list[Acked]:
        missing = sorted(self._undelivered)
        edges = [self.first - 1, *missing, self.last + 1]
        return [(self.lane, low + 1, high - 1, -1) for low, high in pairwise(edges) if high > low + 1]


def _behind(offset: int) -> int:
    return UNKNOWN_OFFSET if offset == UNKNOWN_OFFSET else offset + 1


class BurstProducer:
    """A producer without transactions, with the bursts whose results are not yet in its history."""

    def __init__(
        self,
        spec: IdempotentSpec | PipelineSpec,
        topic: str,
        history: HistoryWriter,
        progress: ClientProgress,
        *,
        idempotence: bool,
    ) -> None:
        self._spec = spec
        self._topic = topic
        self._history = history
        self._progress = progress
        self._log = ClientLog(progress)
        self._next = [0] * spec.partitions
        self.open: list[Burst] = []
        config: dict[str, Any] = settings(PRODUCER) | {"enable.idempotence": idempotence} | spec.settings
        config |= {**spec.servers(), "error_cb": self._log.error}
        self._watch = IdentityLog(spec.number, history, progress)
        config |= {"stats_cb": self._watch.on_statistics}
        self._idempotent = str(config["enable.idempotence"]).lower() == "true"
        history.producer(
            spec.number,
            [(topic, partition) for partition in range(spec.partitions)],
            idempotent=self._idempotent,
            acks=str(config["acks"]),
            in_flight=int(config.get("max.in.flight.requests.per.connection", 5)),
        )
        self._producer = Producer(config)

    def next_of(self, lane: int) -> int:
        """Return the sequence of the next record of a lane."""
        return self._next[lane]

    def go_back(self, lane: int) -> None:
        """Set the next sequence of a lane back to 0, like a faulty application that repeats its records."""
        self._next[lane] = 0

    def send(self, lane: int, values: list[bytes]) -> None:
        """Record the start of the operation in the history, then produce the burst."""
        count, first = len(values), self._next[lane]
        self._next[lane] = first + count
        op = self._history.invoke(
            "send",
            producer=self._spec.number,
            sent=[(lane, first, first + count - 1)],
            limit_ms=int(CALL_LIMIT_S * 1000),
        )
        burst = Burst(op, lane, first, count, self._spec.run, ordered=self._idempotent)
        self.open.append(burst)
        self._progress.sent += count
        produce, topic, delivered = self._producer.produce, self._topic, burst.delivered
        for value in values:
            try:
                produce(topic, value, partition=lane, on_delivery=delivered)
            except BufferError:
                self._produce_later(lane, value, burst)

    def _produce_later(self, lane: int, value: bytes, burst: Burst) -> None:
        """Produce a record that did not fit into the library's queue: serve callbacks until it fits."""
        while True:
            self.serve(0.1)
            try:
                self._producer.produce(self._topic, value, partition=lane, on_delivery=burst.delivered)
            except BufferError:
                continue
            return

    def serve(self, seconds: float) -> None:
        """Wait up to this time and serve the library's callbacks."""
        self._call_back(self._producer.poll, seconds)

    def flush(self, limit: float) -> None:
        """Wait, up to a limit, until nothing is in flight."""
        self._call_back(self._producer.flush, limit)

    def _call_back(self, call: Callable[[float], object], seconds: float) -> None:
        """Call the client library. If the call raises an error, only log the error.

        Each delivery that failed is reported separately.
        """
        try:
            call(seconds)
        except (KafkaException, SystemError) as exception:
            error = library_error(exception)
            if error is None:
                raise
            self._log.error(error)

    def note_resent(self) -> None:
        """Record in the history how many records were sent more than once.

        The number is from statistics that arrive after this call, so it includes the last record.
        """
        before, deadline = self._watch.reports, time.monotonic() + STATISTICS_LIMIT_S
        while self._watch.reports == before and time.monotonic() < deadline:
            self.serve(0.05)
        self._progress.resent = self._watch.resent
        note(self._history, "resent", self._spec.number, f"{self._watch.resent} records were sent again")

    def complete(self, *, final: bool = False) -> None:
        """Record the result of each burst that has all its delivery reports; with `final`, of every burst."""
        fatal: KafkaError | None = None
        still_open = []
        for burst in self.open:
            if burst.waiting and not final:
                still_open.append(burst)
                continue
            if burst.error is None and not burst.waiting:
                self._history.ok(burst.op, acked=burst.acked())
            else:
                # An undelivered record may still be in the log. Therefore record its fate as unknown, not as
                # failed.
                self._history.info(burst.op, error_of(burst.error), acked=burst.acked())
            self._progress.acknowledged += burst.count
            if burst.error is not None and burst.error.fatal():
                fatal = burst.error
        self.open = still_open
        self._progress.in_flight = sum(burst.waiting for burst in still_open)
        if fatal is not None:
            raise CannotGoOnError("the producer failed fatally", fatal)


class IdempotentClient:
    """One producer that writes each partition as its own lane, until asked to stop."""

    def __init__(
        self, spec: IdempotentSpec, history: HistoryWriter, progress: ClientProgress, stop: Deadline
    ) -> None:
        self._spec = spec
        self._stop = stop
        self._encoders = [
            LaneEncoder(spec.run, spec.number, lane, b"x" * spec.payload) for lane in range(spec.partitions)
        ]
        self._producer = BurstProducer(spec, spec.topic, history, progress, idempotence=spec.idempotence)

    def run(self) -> None:
        """Send bursts until the client's time is over, a stop is requested, or a fatal error occurs."""
        pace, lane = Pace(self._spec.rate), 0
        producer = self._producer
        while not self._stop:
            # Serve callbacks until the next burst is due.
            ahead = pace.ahead()
            producer.serve(ahead if len(producer.open) < MOST_OPEN_BURSTS else 0.05)
            if not ahead and len(producer.open) < MOST_OPEN_BURSTS:
                first = producer.next_of(lane)
                producer.send(lane, self._encoders[lane].batch(first, self._spec.burst))
                pace.sent(self._spec.burst)
                lane = (lane + 1) % self._spec.partitions
            producer.complete()
        producer.flush(self._stop.limit(CALL_LIMIT_S))
        producer.complete(final=True)
        producer.note_resent()
