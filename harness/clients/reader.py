"""A reader that polls whole topics and records what it received, and when."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from harness.base.partition_id import PartitionId, partition_name
from harness.clients.client import (
    CannotGoOnError,
    ClientPart,
    Deadline,
    PositionLog,
    bounded,
    error_of,
    kafka_error,
)
from harness.clients.client_settings import (
    ATTEMPT_LIMIT_S,
    CATCH_UP_LIMIT_S,
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
    """One consumer that reads from the beginning until asked to stop, and then to the current end."""

    def __init__(
        self, spec: ReaderSpec, history: HistoryWriter, progress: ClientProgress, stop: Deadline
    ) -> None:
        super().__init__(spec, history, progress, stop)
        config: dict[str, Any] = settings(GROUP[spec.protocol] if spec.group else CONSUMER)
        # A reader in a group may commit its position automatically, because it does not process the records.
        # A reader that replaces it starts at the committed position.
        config |= {"isolation.level": spec.isolation, "enable.auto.commit": spec.group is not None}
        config |= spec.settings
        # The reader itself stores the positions to commit, after it has recorded what it was given. So the
        # group never commits a position behind records that no history lists.
        config |= {"enable.auto.offset.store": False, "enable.partition.eof": True}
        config |= {**spec.servers(), "group.id": spec.group or spec.alone, "error_cb": self._log.error}
        self._consumer = Consumer(config)
        self._moves = PositionLog(history, spec.group)
        self._next: dict[PartitionId, int] = {}
        """Assigned partitions, with the offset before which the reader was given all readable records."""

    def run(self) -> None:
        """Poll and record until the reader's time is over, a stop is requested, or a fatal error occurs."""
        if self._spec.group:
            self._consumer.subscribe(
                self._spec.topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
            )
        else:
            places = self._everything()
            self._next = dict.fromkeys(places, 0)
            self._moves.assigned(places, 0)
            self._consumer.assign([TopicPartition(*place, 0) for place in places])
        while not self._stop:
            self._poll()
        self._catch_up()
        try:
            bounded(self._consumer.close, ATTEMPT_LIMIT_S)
        except KafkaException as exception:
            self._log.error(kafka_error(exception))

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        places = [(tp.topic, tp.partition) for tp in partitions]
        self._moves.assigned(places)
        self._next |= dict.fromkeys(places, 0)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        places = [(tp.topic, tp.partition) for tp in partitions]
        self._moves.revoked(places)
        for place in places:
            self._next.pop(place, None)

    def _everything(self) -> list[PartitionId]:
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
            return [(topic, p) for topic in self._spec.topics for p in sorted(known[topic].partitions)]

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
        records = list(given([m for m in messages if m.error() is None], self._spec.run))
        self._history.ok(op, read=runs(records))
        self._note_positions(messages)
        self._progress.read += len(records)
        self._progress.foreign += sum(record.identity is None for record in records)

    def _note_positions(self, messages: list[Message]) -> None:
        """Note how far the messages reach, and store the positions that the group is to commit."""
        stored: dict[PartitionId, int] = {}
        for message in messages:
            place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
            error = message.error()
            if error is None:
                stored[place] = offset + 1
            elif error.code() != KafkaError._PARTITION_EOF:
                self._log.error(error)
                continue
            if place in self._next:
                self._next[place] = offset + (error is None)
        if self._spec.group is None:
            return
        positions = [
            TopicPartition(*place, offset) for place, offset in stored.items() if place in self._next
        ]
        try:
            if positions:
                self._consumer.store_offsets(offsets=positions)
        except KafkaException as exception:
            self._log.error(kafka_error(exception))

    def _catch_up(self) -> None:
        """Read on to the ends that the partitions have now, and record the partitions that were read so far.

        In a group, a partition that is revoked meanwhile is left to its next owner.
        """
        deadline = time.monotonic() + self._stop.limit(CATCH_UP_LIMIT_S)
        ends: dict[PartitionId, int] = {}
        while time.monotonic() < deadline:
            for place in self._next.keys() - ends.keys():
                if (end := self._end_of(place)) is not None:
                    ends[place] = end
            if all(place in ends and reached >= ends[place] for place, reached in self._next.items()):
                break
            self._poll()
        caught_up = {place: end for place, end in ends.items() if self._next.get(place, -1) >= end}
        for place in self._next.keys() - caught_up.keys():
            self._log.write(f"{partition_name(place)} was not read to its end")
        self._moves.caught_up((*place, end) for place, end in caught_up.items())

    def _end_of(self, place: PartitionId) -> int | None:
        """Return the end of a partition for the reader's isolation level, or None without an answer."""
        try:
            ends = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=REQUEST_LIMIT_S)
        except KafkaException as exception:
            self._log.error(kafka_error(exception))
            return None
        return None if ends is None else ends[1]
