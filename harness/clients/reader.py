"""A reader that polls whole topics and records what it received, and when."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from harness.clients.client import CannotGoOnError, ClientPart, Deadline, bounded, error_of, kafka_error
from harness.clients.client_settings import (
    ATTEMPT_LIMIT_S,
    CONSUMER,
    GROUP,
    INIT_LIMIT_S,
    REQUEST_LIMIT_S,
    settings,
)
from harness.clients.client_spec import ReaderSpec
from harness.clients.poll_decoding import given, runs
from harness.clients.progress import ClientProgress
from harness.evidence.history import HistoryWriter

MOST_A_POLL: Final = 2000
POLL_S: Final = 0.5


class ReaderClient(ClientPart[ReaderSpec]):
    """One consumer that reads from the beginning until asked to stop."""

    def __init__(
        self, spec: ReaderSpec, history: HistoryWriter, progress: ClientProgress, stop: Deadline
    ) -> None:
        super().__init__(spec, history, progress, stop)
        config: dict[str, Any] = settings(GROUP[spec.protocol] if spec.group else CONSUMER)
        # A reader in a group may commit its position automatically, because it does not process the records.
        # A reader that replaces it starts at the committed position.
        config |= {"isolation.level": spec.isolation, "enable.auto.commit": spec.group is not None}
        config |= spec.settings
        config |= {**spec.servers(), "group.id": spec.group or spec.alone, "error_cb": self._log.error}
        self._consumer = Consumer(config)

    def run(self) -> None:
        """Poll and record until the reader's time is over, a stop is requested, or a fatal error occurs."""
        if self._spec.group:
            self._consumer.subscribe(self._spec.topics)
        else:
            self._consumer.assign(self._everything())
        while not self._stop:
            self._poll()
        try:
            bounded(self._consumer.close, ATTEMPT_LIMIT_S)
        except KafkaException as exception:
            self._log.error(kafka_error(exception))

    def _everything(self) -> list[TopicPartition]:
        limit = Deadline(INIT_LIMIT_S)
        while True:
            try:
                known = self._consumer.list_topics(timeout=REQUEST_LIMIT_S).topics
            except KafkaException as exception:
                error = kafka_error(exception)
                self._log.error(error)
                if self._stop or limit:
                    raise CannotGoOnError("the partitions could not be listed", error) from exception
                continue
            missing = [topic for topic in self._spec.topics if topic not in known or known[topic].error]
            if missing:
                raise CannotGoOnError(f"there is no topic {', '.join(missing)}")
            return [TopicPartition(t, p, 0) for t in self._spec.topics for p in sorted(known[t].partitions)]

    def _poll(self) -> None:
        # Polls with read_committed are the rule, so their lines do not repeat it.
        isolation = self._spec.isolation if self._spec.isolation != "read_committed" else None
        op = self._history.invoke("poll", group=self._spec.group, isolation=isolation)
        try:
            messages = self._consumer.consume(MOST_A_POLL, timeout=POLL_S)
        except KafkaException as exception:
            error = kafka_error(exception)
            self._history.info(op, error_of(error))
            raise CannotGoOnError("polling failed", error) from exception
        for message in messages:
            if (error_in := message.error()) is not None:
                self._log.error(error_in)
        records = list(given([m for m in messages if m.error() is None], self._spec.run))
        self._history.ok(op, read=runs(records))
        self._progress.read += len(records)
        self._progress.foreign += sum(record.identity is None for record in records)
