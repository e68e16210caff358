"""The sequences of one producer, lane by lane, and what its open transaction has taken of them."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, Message

from harness.evidence.history import Acked, Sent

OnDelivery = Callable[[KafkaError | None, Message], None]


class Lanes:
    """Counts the sequences of each lane; one that was taken is never used again."""

    def __init__(self, count: int) -> None:
        self.next = [0] * count
        self._first = [0] * count
        self._told: dict[int, dict[int, int]] = {}

    def begin(self) -> None:
        """Begin a transaction."""
        self._first = list(self.next)
        self._told = {}

    def take(self, lane: int, count: int) -> int:
        """Take sequences; return the first of them."""
        first = self.next[lane]
        self.next[lane] = first + count
        return first

    @property
    def records(self) -> int:
        """How many records the transaction has taken."""
        return sum(self.next) - sum(self._first)

    def sent(self) -> list[Sent]:
        """The intervals that the transaction has taken."""
        return [
            (lane, first, last - 1)
            for lane, (first, last) in enumerate(zip(self._first, self.next, strict=True))
            if last > first
        ]

    def on_delivery(self, lane: int, seq: int) -> OnDelivery:
        """What to call when the client knows the offset of one record."""
        told = self._told.setdefault(lane, {})

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            # Without an error and without an offset: a later batch's answer said that this one was written.
            if error is None and offset is not None and offset >= 0:
                told[seq] = offset

        return delivered

    def acked(self) -> list[Acked]:
        """The offsets of the first and the last record of each lane: two are enough to find a second copy."""
        acked: list[Acked] = []
        for lane, told in self._told.items():
            if not told:
                continue
            first, last = min(told), max(told)
            if told[last] - told[first] == last - first:
                acked.append((lane, first, last, told[first]))
            else:
                acked += [(lane, first, first, told[first]), (lane, last, last, told[last])]
        return acked
