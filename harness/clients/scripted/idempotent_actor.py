"""A producer that acts when it is told to: one burst at a time, with a history like every client."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError

from harness.base.closing import Closing
from harness.clients.client_settings import CALL_LIMIT_S, Value
from harness.clients.client_spec import IdempotentSpec
from harness.clients.idempotent import Burst, BurstProducer
from harness.clients.progress import ClientProgress
from harness.evidence.history import HistoryWriter
from harness.evidence.record import LaneEncoder

# A burst leaves as one batch, because a flush does not wait for the rest of the linger.
SETTINGS: dict[str, Value] = {
    "linger.ms": 200,
    "statistics.interval.ms": 100,
    "reconnect.backoff.max.ms": 200,
}


class Delivery(NamedTuple):
    """What the producer was told of a burst: the offset of its first record (-1: none), or the error."""

    offset: int
    delivered: int
    error: KafkaError | None


class Actor(Closing):
    """An idempotent producer of one topic whose every partition is a lane."""

    def __init__(
        self,
        *,
        run: str,
        name: str,
        number: int,
        bootstrap: str,
        topic: str,
        partitions: int,
        histories: Path,
        settings: dict[str, Value] | None = None,
        idempotence: bool = True,
        payload: int = 0,
    ) -> None:
        spec = IdempotentSpec(
            run=run,
            client=name,
            number=number,
            bootstrap=bootstrap,
            history=str(histories / f"{name}.jsonl"),
            seconds=CALL_LIMIT_S,
            topic=topic,
            partitions=partitions,
            idempotence=idempotence,
            settings=SETTINGS | (settings or {}),
        )
        self.name = name
        self._history = HistoryWriter(Path(spec.history), run=run, client=name, role=spec.kind)
        self._progress = ClientProgress(kind=spec.kind, client=name)
        self.producer = BurstProducer(spec, topic, self._history, self._progress, idempotence=idempotence)
        self._encoders = [LaneEncoder(run, number, lane, b"x" * payload) for lane in range(partitions)]

    def hand_over(self, lane: int, count: int = 1) -> Burst:
        """Give the client library a burst, and do not wait for it."""
        first = self.producer.next_of(lane)
        self.producer.send(lane, self._encoders[lane].batch(first, count))
        return self.producer.open[-1]

    def finish(self, limit: float = CALL_LIMIT_S) -> None:
        """Wait until nothing is in flight, and note the end of every burst."""
        self.producer.flush(limit)
        self.producer.complete()

    def send(self, lane: int, count: int = 1, limit: float = CALL_LIMIT_S) -> Delivery:
        """Send a burst and wait for what is said of it."""
        burst = self.hand_over(lane, count)
        self.finish(limit)
        return delivery_of(burst)

    def send_again(self, lane: int, count: int) -> Delivery:
        """Produce a lane's first records once more, as an application does that has forgotten."""
        self.producer.go_back(lane)
        return self.send(lane, count)

    def serve(self, seconds: float) -> None:
        """Let the client library call back."""
        self.producer.serve(seconds)
        self.producer.complete()

    @property
    def in_flight(self) -> int:
        """Records that nothing is known of yet."""
        return sum(burst.waiting for burst in self.producer.open)

    def close(self) -> None:
        """End the history; what nothing is known of by now stands there as unknown."""
        try:
            self.producer.complete(final=True)
        finally:
            self._history.close()


def delivery_of(burst: Burst) -> Delivery:
    """What is known of a burst by now."""
    return Delivery(burst.first_offset, burst.count, burst.error)
