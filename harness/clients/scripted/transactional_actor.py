"""A transactional producer that acts when it is told to, with a history like every client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, Producer

from harness.base.closing import Closing
from harness.clients.client import CannotGoOnError, Deadline
from harness.clients.client_settings import TRANSACTION_LIMIT_S, Value
from harness.clients.client_spec import Discipline, TransactionalSpec
from harness.clients.pipeline import output_of
from harness.clients.poll_decoding import Given
from harness.clients.producer_lifecycle import BrokenTransactionError
from harness.clients.progress import ClientProgress
from harness.clients.transactor import Ended, Transactor
from harness.evidence.history import HistoryWriter, Position
from harness.evidence.record import COMMIT, LaneEncoder

# A send leaves as one batch, because `flush` does not wait for the rest of the linger.
SETTINGS: dict[str, Value] = {"linger.ms": 200, "reconnect.backoff.max.ms": 200}
LIFE_S = 600.0


class TransactionalActor(Closing):
    """A transactional producer of one topic whose every partition is a lane.

    Errors are dealt with as the clients of a run do it (`Transactor`): a call that fails for good raises
    BrokenTransactionError, or CannotGoOnError when a successor has the transactional id; `error` keeps it.
    """

    def __init__(
        self,
        *,
        run: str,
        name: str,
        number: int,
        bootstrap: str,
        topic: str,
        partitions: int,
        transactional_id: str,
        histories: Path,
        timeout_s: float = TRANSACTION_LIMIT_S,
        discipline: Discipline = "reinit",
        settings: dict[str, Value] | None = None,
        payload: int = 0,
    ) -> None:
        spec = TransactionalSpec(
            run=run,
            client=name,
            number=number,
            bootstrap=bootstrap,
            history=str(histories / f"{name}.jsonl"),
            seconds=LIFE_S,
            topic=topic,
            partitions=partitions,
            transactional_id=transactional_id,
            transaction_timeout_ms=int(timeout_s * 1000),
            end_discipline=discipline,
            settings=SETTINGS | (settings or {}),
        )
        self.name = name
        self.number = number
        self.transactional_id = transactional_id
        self.error: KafkaError | None = None
        self.progress = ClientProgress(kind=spec.kind, client=name)
        self._history = HistoryWriter(Path(spec.history), run=run, client=name, role=spec.kind)
        self._transactor = Transactor(spec, self._history, self.progress, Deadline(LIFE_S))
        self._encoders = [LaneEncoder(run, number, lane, b"x" * payload) for lane in range(partitions)]

    @property
    def producer(self) -> Producer:
        """The client library's producer as it is now."""
        return self._transactor.producer

    @property
    def identity(self) -> tuple[int, int] | None:
        """Producer id and epoch as the client library's statistics last told them."""
        return self._transactor.identity

    @property
    def txn(self) -> int:
        """The number of the transaction that was begun last."""
        return self._transactor.txn

    def init(self) -> None:
        """Get an id and an epoch; what a predecessor left open is decided after it."""
        with self._noting():
            self._transactor.settle()

    def begin(self) -> None:
        """Begin a transaction, with a new producer where the last end left a doubt."""
        with self._noting():
            self._transactor.begin()

    def send(self, lane: int, count: int = 1, outcome: str = COMMIT) -> None:
        """Hand over records; `outcome` is what is meant to become of them."""
        first = self._transactor.next_of(lane)
        values = self._encoders[lane].batch(first, count, self.txn, outcome)
        with self._noting():
            self._transactor.send(lane, values)

    def send_outputs(self, lane: int, inputs: Sequence[Given], outcome: str = COMMIT) -> None:
        """Hand over the outputs of these inputs."""
        first, encoder = self._transactor.next_of(lane), self._encoders[lane]
        values = [
            output_of(record, encoder, first + i, (self.txn, outcome), processor=self.number)
            for i, record in enumerate(inputs)
        ]
        with self._noting():
            self._transactor.send(lane, values)

    def flush(self) -> None:
        """Wait until what was handed over is delivered."""
        with self._noting():
            self._transactor.flush()

    def send_offsets(self, group: str, positions: Sequence[Position], metadata: object) -> None:
        """Add a group's next positions to the transaction."""
        with self._noting():
            self._transactor.send_offsets(group, positions, metadata)

    def commit(self) -> Ended:
        """Commit, asking again where that may help; the answer is what the client knows."""
        with self._noting():
            return self._transactor.commit()

    def abort(self) -> Ended:
        """Abort."""
        with self._noting():
            return self._transactor.abort()

    def give_up(self, error: KafkaError) -> Ended:
        """End a transaction that broke: abort it, or leave that to a new producer."""
        with self._noting():
            return self._transactor.give_up(error)

    def serve(self, seconds: float) -> None:
        """Let the client library call back."""
        self._transactor.serve(seconds)

    def let_go(self) -> None:
        """Drop the producer without a word to anybody, as a process does that dies."""
        self._transactor.let_go()

    def close(self) -> None:
        """Drop the producer and end the history; an open transaction stands there without an end."""
        try:
            self._transactor.let_go()
        finally:
            self._history.close()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Keep the error of a call that failed for good, and let it through."""
        try:
            yield
        except (BrokenTransactionError, CannotGoOnError) as failed:
            if failed.error is not None:
                self.error = failed.error
            raise
