"""Counters of one producer's sequences.

They provide the next sequence of each lane, and the sequences that the open transaction uses.
"""

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

    def give_back(self, lane: int, seq: int) -> None:
        """Return the reserved sequences of a lane from `seq` on. The client library refused their records."""
        self.next[lane] = seq

    @property
    def records(self) -> int:
        """Number of records in the open transaction."""
        return sum(self.next) - sum(self._first)

    def sent(self) -> list[Sent]:
        """Return the intervals of sequences that the open transaction uses."""
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
            # Skip a record that was delivered without an offset: the library inferred its delivery from the
            # answer to a later batch.
            if error is None and offset is not None and offset >= 0:
                offsets[seq] = offset

        return delivered

    def acked(self) -> list[Acked]:
        """Return the acknowledged offsets of the open transaction, for each lane.

        Only the first and the last record with a known offset are compared. If their offsets show that all
        records between them are consecutive, one entry covers all of them. Otherwise each of the two records
        has its own entry. The checkers compare these offsets with those that the witnesses read, and so
        detect a batch that was written twice.
        """
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
