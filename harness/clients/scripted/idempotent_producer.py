"""An idempotent producer that sends one burst at a time."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError

from harness.clients.client_settings import CALL_LIMIT_S
from harness.clients.client_spec import IdempotentSpec
from harness.clients.idempotent import Burst, BurstProducer
from harness.clients.progress import ClientProgress
from harness.evidence.history import HistoryWriter
from harness.evidence.record import LaneEncoder


class Delivery(NamedTuple):
    """The delivery report of a burst.

    It has the offset of the first record (-1: unknown), the number of delivered records, and the error.
    """

    offset: int
    delivered: int
    error: KafkaError | None


class IdempotentProducer:
    """An idempotent producer of one topic; every partition is a lane."""

    def __init__(self, spec: IdempotentSpec) -> None:
        self.name = spec.client
        self._history = HistoryWriter(Path(spec.history), run=spec.run, client=spec.client, role=spec.kind)
        progress = ClientProgress(kind=spec.kind, client=spec.client)
        self.producer = BurstProducer(spec, spec.topic, self._history, progress, idempotence=spec.idempotence)
        self._encoders = [
            LaneEncoder(spec.run, spec.number, lane, b"x" * spec.payload) for lane in range(spec.partitions)
        ]

    def hand_over(self, lane: int, count: int = 1) -> Burst:
        """Pass a burst to the client library without waiting for its delivery."""
        first = self.producer.next_of(lane)
        self.producer.send(lane, self._encoders[lane].batch(first, count))
        return self.producer.open[-1]

    def finish(self, limit: float = CALL_LIMIT_S) -> None:
        """Wait until nothing is in flight, and record the result of each burst that has all its reports."""
        self.producer.flush(limit)
        self.producer.complete()

    def send(self, lane: int, count: int = 1, limit: float = CALL_LIMIT_S) -> Delivery:
        """Send a burst and wait for its delivery report."""
        burst = self.hand_over(lane, count)
        self.finish(limit)
        return delivery_of(burst)

    def send_again(self, lane: int, count: int) -> Delivery:
        """Send the first records of a lane again, like an application that has lost its state."""
        self.producer.go_back(lane)
        return self.send(lane, count)

    def serve(self, seconds: float) -> None:
        """Let the client library run its callbacks."""
        self.producer.serve(seconds)
        self.producer.complete()

    @property
    def in_flight(self) -> int:
        """Number of records without a delivery report."""
        return sum(burst.waiting for burst in self.producer.open)

    def close(self) -> None:
        """Close the history; a burst without a delivery report is recorded as unknown."""
        try:
            self.producer.complete(final=True)
        finally:
            self._history.close()


def delivery_of(burst: Burst) -> Delivery:
    """Return the current delivery report of a burst."""
    return Delivery(burst.first_offset, burst.count, burst.error)
