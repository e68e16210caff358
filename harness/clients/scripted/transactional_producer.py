"""A transactional producer of confluent-kafka that makes one call at a time and returns its result.

After an error, an application would retry, abort or replace its producer. This class does not, because
walkthroughs and tests examine the errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from harness.clients.client import error_of, exception_of, kafka_error, library_error
from harness.clients.client_settings import CLASSIC, settings, transaction_settings
from harness.clients.client_spec import TransactionalSpec
from harness.clients.pipeline import output_of
from harness.clients.poll_decoding import Given
from harness.clients.scripted.transaction_history import TransactionHistory
from harness.evidence.history import Position
from harness.evidence.record import ABORT, COMMIT

LIMIT_S: Final = 30.0
OK: Final = "ok"


class Answer(NamedTuple):
    """The result of a call.

    `name` is `ok` or the name of the client library's error. The other fields are the flags of the error, the
    seconds that the call took, and the message of the error.
    """

    name: str
    flags: list[str]
    seconds: float
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the call succeeded. If so, `name` is `ok`."""
        return self.name == OK


class TransactionalProducer(TransactionHistory):
    """One transactional producer; an error of a call is in the returned Answer, and is not raised."""

    def __init__(self, spec: TransactionalSpec) -> None:
        super().__init__(spec, range(spec.partitions))
        self._outsiders: dict[str, Consumer] = {}
        self._undelivered: list[KafkaError] = []
        self.producer = Producer(
            {
                **transaction_settings(spec.transactional_id, spec.transaction_timeout_ms, spec.settings),
                "bootstrap.servers": spec.bootstrap,
                "client.id": spec.client,
                "log_level": 0,  # no log: the answers contain the errors
            }
        )

    def init(self, limit: float = LIMIT_S) -> Answer:
        return self._call(self._invoke_init(), partial(self.producer.init_transactions, limit))

    def begin(self) -> Answer:
        return self._call(self._invoke_begin(), self.producer.begin_transaction)

    def send(self, lane: int, count: int = 1, outcome: str = COMMIT) -> Answer:
        """Send records and wait for their delivery."""
        answer = self.hand_over(lane, count, outcome)
        return self.flush() if answer.ok else answer

    def hand_over(self, lane: int, count: int = 1, outcome: str = COMMIT) -> Answer:
        """Pass records to the client library without waiting for their delivery."""
        first = self._lanes.take(lane, count)
        return self._produce(lane, first, self._encoders[lane].batch(first, count, self.txn, outcome))

    def hand_over_outputs(self, lane: int, inputs: Sequence[Given], outcome: str = COMMIT) -> Answer:
        """Pass the outputs of these inputs to the client library: one output for each input."""
        first, encoder = self._lanes.take(lane, len(inputs)), self._encoders[lane]
        values = [
            output_of(record, encoder, seq, (self.txn, outcome), processor=self.number)
            for seq, record in enumerate(inputs, first)
        ]
        return self._produce(lane, first, values)

    def flush(self) -> Answer:
        """Wait until nothing is in flight. Return the error of the first undelivered record, or `ok`.

        If the call itself fails, its error is returned, unless it lost its details.
        """
        started, failure = time.monotonic(), None
        try:
            self.producer.flush(LIMIT_S)
        except (KafkaException, SystemError) as exception:
            failure = library_error(exception)
            if failure is None:
                raise
        undelivered, self._undelivered = self._undelivered, []
        if failure is None or failure.code() == KafkaError._FATAL:
            failure = next(iter(undelivered), failure)
        return _answer(failure, started)

    def offsets(self, group: str, topic: str, partition: int, offset: int, metadata: object = None) -> Answer:
        """Add one position of a group to the transaction."""
        return self.send_offsets(group, [(topic, partition, offset)], metadata)

    def send_offsets(self, group: str, positions: Sequence[Position], metadata: object = None) -> Answer:
        """Add positions of a group to the transaction.

        Without metadata, the producer uses the metadata of a consumer that never subscribed.
        """
        metadata = self._outsider(group).consumer_group_metadata() if metadata is None else metadata
        op = self._history.invoke(
            "send_offsets", producer=self.number, txn=self.txn, group=group, offsets=list(positions)
        )
        places = [TopicPartition(*position) for position in positions]
        return self._call(op, lambda: self.producer.send_offsets_to_transaction(places, metadata, LIMIT_S))

    def commit(self, limit: float = LIMIT_S) -> Answer:
        return self._end("commit", partial(self.producer.commit_transaction, limit))

    def abort(self, limit: float = LIMIT_S) -> Answer:
        return self._end("abort", partial(self.producer.abort_transaction, limit))

    def whole(self, sends: dict[int, int], *, commits: bool = True) -> Answer:
        """Make a complete transaction, and return the result of its commit or abort.

        `sends` maps each lane to its number of records. If the call `begin` fails, nothing is sent, and the
        result of `begin` is returned.
        """
        begun = self.begin()
        if not begun.ok:
            return begun
        for lane, count in sends.items():
            self.hand_over(lane, count, COMMIT if commits else ABORT)
        self.flush()
        return self.commit() if commits else self.abort()

    def close(self) -> None:
        """Close the history; an open transaction stays open."""
        for outsider in self._outsiders.values():
            outsider.close()
        self._outsiders.clear()
        self.producer.purge()
        self._history.close()

    def _produce(self, lane: int, first: int, values: list[bytes]) -> Answer:
        started, seq = time.monotonic(), first
        try:
            for seq, value in enumerate(values, first):
                note_offset = self._lanes.on_delivery(lane, seq)
                self.producer.produce(
                    self.spec.topic,
                    value,
                    partition=self.partitions[lane],
                    on_delivery=partial(self._delivered, note_offset),
                )
        except KafkaException as exception:
            # The library accepted no record from this one on, so the next records have these sequences.
            self._lanes.give_back(lane, seq)
            return _answer(kafka_error(exception), started)
        return Answer(OK, [], 0.0)

    def _delivered(self, note_offset: Callable[..., None], error: KafkaError | None, message: Any) -> None:
        note_offset(error, message)
        if error is not None:
            self._undelivered.append(error)

    def _outsider(self, group: str) -> Consumer:
        config = {**settings(CLASSIC), "bootstrap.servers": self.spec.bootstrap, "log_level": 0}
        if group not in self._outsiders:
            self._outsiders[group] = Consumer({**config, "group.id": group})
        return self._outsiders[group]

    def _end(self, how: str, call: Callable[[], object]) -> Answer:
        return self._call(self._invoke_end(how), call, acked=self._lanes.acked)

    def _call(self, op: int, call: Callable[[], object], acked: Callable[[], Any] = tuple) -> Answer:
        started = time.monotonic()
        try:
            call()
        except BaseException as exception:
            self._history.info(op, exception_of(exception))
            error = library_error(exception)
            if error is None:
                raise
            return _answer(error, started)
        self._history.ok(op, acked=acked())
        return _answer(None, started)


def _answer(error: KafkaError | None, started: float) -> Answer:
    seconds = round(time.monotonic() - started, 3)
    if error is None:
        return Answer(OK, [], seconds)
    return Answer(error.name(), error_of(error).flags, seconds, error.str())
