"""The idempotent producer: bursts of records, each burst one operation of its history."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from harness.history import Error, HistoryWriter
from harness.record import LaneEncoder
from harness.workload.settings import CALL_LIMIT_S, PRODUCER, settings
from harness.workload.spec import ClientSpec, load_spec

MOST_OPEN_BURSTS = 200


class _Burst:
    """The records of one operation, and what was said of each."""

    def __init__(self, op: int, lane: int, first: int, count: int) -> None:
        self.op = op
        self.lane = lane
        self.first = first
        self.waiting = count
        self.offsets: dict[int, int] = {}
        self.error: KafkaError | None = None

    def on_delivery(self, seq: int) -> Callable[[KafkaError | None, Message], None]:
        """What to call when the client knows the fate of one record."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            self.waiting -= 1
            if error is None:
                self.offsets[seq] = message.offset() or 0
            else:
                self.error = error

        return delivered

    def acked(self) -> list[tuple[int, int, int, int]]:
        """What was acknowledged, in intervals that are dense in sequence and in offset."""
        intervals: list[tuple[int, int, int, int]] = []
        for seq, offset in sorted(self.offsets.items()):
            if intervals:
                lane, first, last, start = intervals[-1]
                if seq == last + 1 and offset == start + seq - first:
                    intervals[-1] = (lane, first, seq, start)
                    continue
            intervals.append((self.lane, seq, seq, offset))
        return intervals


class IdempotentClient:
    """One producer that writes each partition as a lane of its own, until it is told to stop."""

    def __init__(self, spec: ClientSpec, history: HistoryWriter) -> None:
        self._spec = spec
        self._history = history
        self._encoders = [
            LaneEncoder(spec.run, spec.number, lane, b"x" * spec.payload) for lane in range(spec.partitions)
        ]
        self._next = [0] * spec.partitions
        self._open: list[_Burst] = []
        self._stopping = False
        config: dict[str, Any] = settings(PRODUCER) | spec.settings
        config |= {"bootstrap.servers": spec.bootstrap, "client.id": spec.client, "error_cb": _say}
        history.producer(
            spec.number,
            [(spec.topic, partition) for partition in range(spec.partitions)],
            idempotent=str(config["enable.idempotence"]).lower() == "true",
            acks=str(config["acks"]),
            in_flight=int(config.get("max.in.flight.requests.per.connection", 5)),
            timeout_ms=int(config["message.timeout.ms"]),
        )
        self._producer = Producer(config)

    def stop(self, *_: object) -> None:
        """Send nothing more; what is in flight is waited for."""
        self._stopping = True

    def run(self) -> bool:
        """Send until the time is over or the client can no more; False if it could no more."""
        start = time.monotonic()
        sent = 0
        lane = 0
        while not self._stopping and (elapsed := time.monotonic() - start) < self._spec.seconds:
            ahead = sent - elapsed * self._spec.rate
            # Serving the client's callbacks is also how this loop waits for its next turn.
            self._producer.poll(max(0.0, ahead / self._spec.rate))
            if ahead <= 0 and len(self._open) < MOST_OPEN_BURSTS:
                sent += self._send(lane)
                lane = (lane + 1) % self._spec.partitions
            if not self._complete():
                return False
        self._producer.flush(CALL_LIMIT_S)
        return self._complete(final=True)

    def _send(self, lane: int) -> int:
        count, first = self._spec.burst, self._next[lane]
        self._next[lane] += count
        op = self._history.invoke(
            "send",
            producer=self._spec.number,
            sent=[(lane, first, first + count - 1)],
            limit_ms=int(CALL_LIMIT_S * 1000),
        )
        burst = _Burst(op, lane, first, count)
        self._open.append(burst)
        for seq, value in enumerate(self._encoders[lane].batch(first, count), first):
            self._produce(lane, value, burst.on_delivery(seq))
        return count

    def _produce(
        self, lane: int, value: bytes, on_delivery: Callable[[KafkaError | None, Message], None]
    ) -> None:
        while True:
            try:
                self._producer.produce(self._spec.topic, value, partition=lane, on_delivery=on_delivery)
            except BufferError:  # the client's queue is full: what it holds must be delivered first
                self._producer.poll(0.1)
            else:
                return

    def _complete(self, *, final: bool = False) -> bool:
        """Write the end of every burst whose fate is known; at the end, of every burst."""
        fatal = False
        still_open = []
        for burst in self._open:
            if burst.waiting and not final:
                still_open.append(burst)
            elif burst.error is None and not burst.waiting:
                self._history.ok(burst.op, acked=burst.acked())
            else:
                # An undelivered record may be in the log all the same: unknown, never failed.
                self._history.info(burst.op, _error(burst.error), acked=burst.acked())
                fatal = fatal or (burst.error is not None and burst.error.fatal())
        self._open = still_open
        return not fatal


def _error(error: KafkaError | None) -> Error:
    if error is None:
        return Error(code=0, name="NO_ANSWER", message="the client was closed before it knew")
    flags = [name for name, raised in (("fatal", error.fatal()), ("retriable", error.retriable())) if raised]
    return Error(code=error.code(), name=error.name(), flags=flags, message=error.str())


def _say(error: KafkaError) -> None:
    print(f"{time.strftime('%H:%M:%S')} {error.name()}: {error.str()}", file=sys.stderr)


def main(spec_file: str) -> int:
    """Run the client that the file describes; 0 if it could go on until it was told to stop."""
    spec = load_spec(Path(spec_file))
    with HistoryWriter(Path(spec.history), run=spec.run, client=spec.client, role="idempotent") as history:
        client = IdempotentClient(spec, history)
        signal.signal(signal.SIGTERM, client.stop)
        try:
            return 0 if client.run() else 1
        except KafkaException as error:
            _say(error.args[0])
            return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
