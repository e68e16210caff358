"""State of a stateful worker: aggregates in memory, and the changelog from which they are rebuilt.

The aggregates in memory are correct as long as every transaction commits. After an abort or an error they are
dropped and rebuilt from the committed records of the changelog. The aggregates of a newly assigned partition
are rebuilt in the same way. The group's position may become visible before the marker of the last transaction
is written to the changelog. `restore` therefore reads the changelog up to the high watermark. A
read_committed consumer reaches the high watermark only after the marker is written.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message

from harness.base.errors import WaitTimeoutError
from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.clients.client import ClientPart, Deadline, bounded, error_of, kafka_error
from harness.clients.client_settings import (
    ATTEMPT_LIMIT_S,
    CONSUMER,
    REQUEST_LIMIT_S,
    RETRY_BACKOFF_S,
    settings,
)
from harness.clients.client_spec import PipelineSpec
from harness.clients.progress import ClientProgress
from harness.evidence.changelog_record import NOTHING, Totals, key_of, totals_in
from harness.evidence.history import HistoryWriter
from harness.kafka.admin import LATEST, admin_at
from harness.kafka.read_to_end import read_to_end


@dataclass
class _Committed:
    """The committed totals of one changelog partition, and the next offset to read."""

    next: int = 0
    totals: dict[int, Totals] = field(default_factory=dict)


class Changelog(ClientPart[PipelineSpec]):
    """Aggregates of a worker's partitions, including the changes of the open transaction."""

    def __init__(
        self, spec: PipelineSpec, history: HistoryWriter, progress: ClientProgress, stop: Deadline
    ) -> None:
        super().__init__(spec, history, progress, stop)
        self._state: dict[int, dict[int, Totals]] = {}
        self._changed: dict[int, set[int]] = defaultdict(set)
        self._committed: dict[int, _Committed] = defaultdict(_Committed)
        self._config: dict[str, Any] = {
            **settings(CONSUMER),
            **spec.servers(),
            "group.id": spec.alone,
            "isolation.level": "read_committed",
            "error_cb": self._log.error,
        }

    def restore(self, partitions: Iterable[int]) -> bool:
        """Rebuild the aggregates of newly assigned partitions.

        Return False if the changelog could not be read in time; the caller can try again later.
        """
        missing = sorted(set(partitions) - self._state.keys())
        if not missing:
            return True
        try:
            ends = wait_until(
                lambda: self._ends_of(missing),
                self._stop.limit(ATTEMPT_LIMIT_S),
                "the ends of the changelog",
                every=RETRY_BACKOFF_S,
            )
        except WaitTimeoutError as error:
            self._log.write(error.message)
            return False
        offsets = [(self._spec.changelog, *end) for end in ends.items()]
        op = self._history.invoke("restore", producer=self._spec.number, offsets=offsets)
        try:
            unread = self._read_to(ends, self._stop.limit(ATTEMPT_LIMIT_S))
        except KafkaException as exception:
            self._history.info(op, error_of(kafka_error(exception)))
            self._log.error(kafka_error(exception))
            return False
        if unread:
            self._history.info(op, error_of(None, f"partitions {unread} were not read to their ends"))
            return False
        self._history.ok(op)
        self._state |= {partition: dict(self._committed[partition].totals) for partition in missing}
        return True

    def add(self, partition: int, seq: int) -> None:
        state, key = self._state[partition], key_of(seq)
        state[key] = state.get(key, NOTHING).add(seq)
        self._changed[partition].add(key)

    def take_changes(self) -> Iterator[tuple[int, list[tuple[int, Totals]]]]:
        """Yield the aggregates that changed since the last call, by partition."""
        for partition, keys in sorted(self._changed.items()):
            yield partition, [(key, self._state[partition][key]) for key in sorted(keys)]
        self._changed.clear()

    def forget(self) -> None:
        """Drop every aggregate in memory."""
        self._state.clear()
        self._changed.clear()

    def _ends_of(self, partitions: list[int]) -> dict[int, int]:
        """Return the high watermark of each changelog partition.

        In contrast to the last stable offset, it does not stop at an open transaction.
        """
        admin = admin_at(self._spec.bootstrap, self._spec.security, REQUEST_LIMIT_S)
        return admin.list_offsets(self._spec.changelog, LATEST, partitions=partitions)

    def _read_to(self, ends: dict[int, int], limit: float) -> list[int]:
        """Read each changelog partition up to its offset in `ends`, from where the last call stopped.

        Return the partitions that were not read to the end.
        """
        topic = self._spec.changelog
        positions: dict[PartitionId, int] = {(topic, p): self._committed[p].next for p in ends}
        try:
            unread = read_to_end(
                self._config,
                positions,
                self._take,
                time.monotonic() + limit,
                ends={(topic, p): end for p, end in ends.items()},
                close=self._close,
            )
        finally:
            for (_, partition), position in positions.items():
                self._committed[partition].next = position
        return [partition for _, partition in unread]

    def _take(self, partition_id: PartitionId, message: Message) -> None:
        committed, offset = self._committed[partition_id[1]], message.offset() or 0
        if offset >= committed.next:  # skip a record that was read before: newer totals may have replaced it
            key, totals = totals_in(bytes(message.value() or b""))
            committed.totals[key] = totals
            committed.next = offset + 1

    def _close(self, consumer: Consumer) -> None:
        try:
            bounded(consumer.close, ATTEMPT_LIMIT_S)
        except KafkaException as exception:
            self._log.error(kafka_error(exception))
