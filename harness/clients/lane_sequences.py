"""The sequences of one producer by lane, and those that its open transaction uses."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, Message

from harness.evidence.history import Acked, Sent

OnDelivery = Callable[[KafkaError | None, Message], None]


class Lanes:
    """Counter of the sequences of each lane; a sequence is never used twice."""

    def __init__(self, count: int) -> None:
        self.next = [0] * count
        self._first = [0] * count
        self._delivered: dict[int, dict[int, int]] = {}

    def begin(self) -> None:
        """Start counting a new transaction."""
        self._first = list(self.next)
        self._delivered = {}

    def take(self, lane: int, count: int) -> int:
        """Reserve sequences and return the first one."""
        first = self.next[lane]
        self.next[lane] = first + count
        return first

    @property
    def records(self) -> int:
        """Number of records in the transaction."""
        return sum(self.next) - sum(self._first)

    def sent(self) -> list[Sent]:
        """Return the intervals of sequences in the transaction."""
        return [
            (lane, first, last - 1)
            for lane, (first, last) in enumerate(zip(self._first, self.next, strict=True))
            if last > first
        ]

    def on_delivery(self, lane: int, seq: int) -> OnDelivery:
        """Return the delivery callback for one record."""
        offsets = self._delivered.setdefault(lane, {})

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            # Skip a record that is delivered without an offset: the library inferred the write from a later
            # batch's answer.
            if error is None and offset is not None and offset >= 0:
                offsets[seq] = offset

        return delivered

    def acked(self) -> list[Acked]:
        """Return the offsets of the first and last record of each lane: enough to detect a second copy."""
        acked: list[Acked] = []
        for lane, delivered in self._delivered.items():
            if not delivered:
                continue
            first, last = min(delivered), max(delivered)
            if delivered[last] - delivered[first] == last - first:
                acked.append((lane, first, last, delivered[first]))
            else:
                acked += [(lane, first, first, delivered[first]), (lane, last, last, delivered[last])]
        return acked
