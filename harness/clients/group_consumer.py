"""Consuming half of a pipeline worker: group membership, records, and rewinding after an abort.

After a revocation, another member owns the partition. The worker therefore drops the records of the partition
and aborts the open transaction. The group metadata are stored together with the records. Metadata taken later
may belong to a newer membership. With them, the worker could commit offsets of partitions that it no longer
owns.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from harness.base.partition_id import PartitionId
from harness.clients.client import (
    CannotGoOnError,
    ClientPart,
    Deadline,
    NeverReturnedError,
    PositionLog,
    bounded,
    error_of,
    exception_of,
    kafka_error,
    library_error,
)
from harness.clients.client_settings import (
    ATTEMPT_LIMIT_S,
    END_LIMIT_S,
    GROUP,
    REQUEST_LIMIT_S,
    RETRY_BACKOFF_S,
    Config,
    settings,
)
from harness.clients.client_spec import PipelineSpec
from harness.clients.poll_decoding import Given, given, runs
from harness.clients.progress import ClientProgress
from harness.evidence.history import HistoryWriter, Position

POLL_S: Final = 0.5


class GroupConsumer(ClientPart[PipelineSpec]):
    """A member of the pipeline's group."""

    def __init__(
        self, spec: PipelineSpec, history: HistoryWriter, progress: ClientProgress, stop: Deadline
    ) -> None:
        super().__init__(spec, history, progress, stop)
        self._member: Consumer | None = None
        self._stranger: Consumer | None = None
        self._metadata: object = None
        self._moves = PositionLog(history, spec.group)
        self.disturbed = False

    def open(self) -> None:
        self._member = Consumer(self._config(GROUP[self._spec.protocol]))
        self._member.subscribe(
            [self._spec.source], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        if not self._spec.group_metadata:
            self._stranger = Consumer(self._config(GROUP["classic"]))

    def _config(self, table: Any) -> dict[str, Any]:
        config: Config = settings(table) | {"isolation.level": "read_committed"}
        return config | {
            # In a scenario, the settings of a pipeline apply to its producer. Settings with the prefix
            # `consumer.` apply to this consumer.
            **{
                k.removeprefix("consumer."): v
                for k, v in self._spec.settings.items()
                if k.startswith("consumer.")
            },
            **self._spec.servers(),
            "group.id": self._spec.group,
            "error_cb": self._log.error,
        }

    @property
    def consumer(self) -> Consumer:
        """The consumer; available after `open`."""
        assert self._member is not None
        return self._member

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._moves.assigned(map(partition_id_of, partitions))
        self._log.write(f"assigned {sorted(tp.partition for tp in partitions)}")

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._moves.revoked(map(partition_id_of, partitions))
        self._log.write(f"revoked {sorted(tp.partition for tp in partitions)}")
        self.disturbed = self.disturbed or bool(partitions)

    def take(self, most: int, limit: float) -> list[Given]:
        """Poll once and return the records. After a revocation, set `disturbed` and return no records."""
        op = self._history.invoke("poll", group=self._spec.group)
        try:
            messages = self.consumer.consume(most, timeout=min(limit, POLL_S))
        except KafkaException as exception:
            self._history.info(op, error_of(kafka_error(exception)))
            self._log.error(kafka_error(exception))
            self.disturbed = True
            return []
        for message in messages:
            if (error := message.error()) is not None:
                self._log.error(error)
                # After a fatal error or _MAX_POLL_EXCEEDED, the membership has ended, and the records must
                # not be processed. _MAX_POLL_EXCEEDED means that a poll came later than max.poll.interval.ms.
                self.disturbed = self.disturbed or error.fatal() or error.code() == error._MAX_POLL_EXCEEDED
        records = list(given([m for m in messages if m.error() is None], self._spec.run))
        self._history.ok(op, read=runs(records))
        if self.disturbed:
            return []
        if records:
            self._metadata = (self._stranger or self.consumer).consumer_group_metadata()
        self._progress.read += len(records)
        self._progress.foreign += sum(record.identity is None for record in records)
        return records

    @property
    def metadata(self) -> object:
        """The group metadata that belong to the last records.

        If the spec sets `group_metadata` to false, they are those of a consumer that never subscribed. This
        simulates a worker without KIP-447.
        """
        return self._metadata

    def rewind(self) -> None:
        """Seek to the group's committed positions, or rejoin the group if that fails."""
        self._progress.rewinds += 1
        self.disturbed = False
        deadline = time.monotonic() + self._stop.limit(END_LIMIT_S)
        while True:
            try:
                self._return_to_committed()
            except KafkaException as exception:
                error = kafka_error(exception)
                self._log.error(error)
                if time.monotonic() > deadline:
                    raise CannotGoOnError("the committed positions could not be read", error) from exception
                hangs = isinstance(exception, NeverReturnedError)
                if hangs or not (error.retriable() or error.code() == error._TIMED_OUT):
                    self._rejoin()
                    return
                # Poll while waiting, so that revocations are handled: another member may own the partitions
                # by now.
                self.take(1, RETRY_BACKOFF_S)
                self.disturbed = False
            else:
                return

    def _return_to_committed(self) -> None:
        places: list[TopicPartition] = []
        bounded(lambda: places.extend(self._committed()), ATTEMPT_LIMIT_S)
        if not places:
            return
        with self._moves.moving((*partition_id_of(place), max(0, place.offset)) for place in places):
            bounded(lambda: self._seek(places), ATTEMPT_LIMIT_S)

    def _committed(self) -> list[TopicPartition]:
        """Return the group's committed position of each assigned partition."""
        assignment = self.consumer.assignment()
        if not assignment:
            return []
        places = self.consumer.committed(assignment, timeout=self._stop.limit(REQUEST_LIMIT_S))
        _raise_first(places)
        return places

    def _seek(self, places: list[TopicPartition]) -> None:
        for place in places:
            if place.offset < 0:
                place.offset = OFFSET_BEGINNING
            self.consumer.seek(place)

    def _rejoin(self) -> None:
        self._log.write("joining the group again")
        self.close()
        self.open()

    def commit(self, positions: list[Position]) -> bool:
        """Commit positions outside of any transaction; return False if the result is uncertain."""
        op = self._history.invoke(
            "commit_offsets",
            producer=self._spec.number,
            group=self._spec.group,
            offsets=positions,
            limit_ms=int(ATTEMPT_LIMIT_S * 1000),
        )
        try:
            bounded(partial(self._commit, positions), ATTEMPT_LIMIT_S)
        except BaseException as exception:
            self._history.info(op, exception_of(exception))
            error = library_error(exception)
            if error is None:
                raise
            self._log.error(error)
            return False
        self._history.ok(op)
        return True

    def _commit(self, positions: list[Position]) -> None:
        offsets = [TopicPartition(*position) for position in positions]
        _raise_first(self.consumer.commit(offsets=offsets, asynchronous=False) or [])

    def close(self) -> None:
        """Leave the group; if that fails, the coordinator removes the member after its session time-out."""
        consumers = [consumer for consumer in (self._member, self._stranger) if consumer is not None]
        self._member = self._stranger = None
        for consumer in consumers:
            try:
                bounded(consumer.close, ATTEMPT_LIMIT_S)
            except KafkaException as exception:
                self._log.error(kafka_error(exception))


def partition_id_of(place: TopicPartition) -> PartitionId:
    """Return the topic and number of a partition."""
    return place.topic, place.partition


def _raise_first(places: list[TopicPartition]) -> None:
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)
