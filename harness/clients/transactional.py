"""The transactional producer: transactions of random size that commit or abort, over all its partitions."""

from __future__ import annotations

import random
from typing import Final

from harness.clients.client import Deadline, Pace
from harness.clients.client_spec import SeederSpec, TransactionalSpec
from harness.clients.producer_lifecycle import BrokenTransactionError
from harness.clients.progress import ClientProgress
from harness.clients.transactor import Transactor
from harness.evidence.history import HistoryWriter
from harness.evidence.record import ABORT, COMMIT, LaneEncoder

TURNS_A_SECOND: Final = 50
MOST_A_TURN: Final = 100


class TransactionalClient:
    """One producer that writes each partition as its own lane, transaction after transaction."""

    def __init__(
        self,
        spec: TransactionalSpec | SeederSpec,
        history: HistoryWriter,
        progress: ClientProgress,
        stop: Deadline,
    ) -> None:
        self._spec = spec
        self._stop = stop
        self._draw = random.Random(spec.seed)
        self._encoders = [
            LaneEncoder(spec.run, spec.number, lane, b"x" * spec.payload) for lane in range(len(spec.places))
        ]
        self._turn = max(1, min(MOST_A_TURN, spec.rate // TURNS_A_SECOND))
        self._lane = 0
        self._transactor = Transactor(spec, history, progress, stop)

    def run(self) -> None:
        """Run transactions until the time is over, a stop is requested, or a fatal error occurs."""
        self._transactor.settle()
        pace = Pace(self._spec.rate)
        while not self._stop:
            self._transaction(pace)
        self._transactor.close()

    def _transaction(self, pace: Pace) -> None:
        size = self._draw.randint(*self._spec.records)
        outcome = ABORT if self._draw.random() < self._spec.abort_share else COMMIT
        transactor = self._transactor
        try:
            transactor.begin()
            left = size
            while left and not (self._stop and left < size):
                while (ahead := pace.ahead()) and not self._stop:
                    transactor.serve(ahead)
                count = min(left, self._turn)
                self._send(count, outcome)
                pace.sent(count)
                left -= count
        except BrokenTransactionError as broken:
            transactor.give_up(broken.error)
        else:
            transactor.abort() if outcome == ABORT else transactor.commit()

    def _send(self, count: int, outcome: str) -> None:
        lane = self._lane
        self._lane = (lane + 1) % len(self._encoders)
        self._send_to(lane, count, outcome)

    def _send_to(self, lane: int, count: int, outcome: str) -> None:
        """Send the next records of a lane."""
        first = self._transactor.next_of(lane)
        self._transactor.send(lane, self._encoders[lane].batch(first, count, self._transactor.txn, outcome))
