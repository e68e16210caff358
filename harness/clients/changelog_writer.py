"""State of a stateful worker: aggregates in memory, and the changelog from which they are rebuilt.

The aggregates in memory are correct as long as every transaction commits. After an abort or an error they are
dropped and rebuilt from the committed records of the changelog. A newly assigned partition is rebuilt the
same way. The group's position may become visible before the marker of the last transaction is written to the
changelog. The restore therefore reads to the high watermark: a read_committed consumer waits there for the
marker.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from harness.clients.client import Deadline, Log, bounded, error_of, kafka_error
from harness.clients.client_settings import (
    ATTEMPT_LIMIT_S,
    COMMON,
    CONSUMER,
    GRACE_S,
    REQUEST_LIMIT_S,
    RETRY_BACKOFF_S,
    settings,
)
from harness.clients.client_spec import PipelineSpec
from harness.clients.progress import ClientProgress
from harness.evidence.changelog_record import NOTHING, Totals, key_of, totals_in
from harness.evidence.history import HistoryWriter

MOST_A_POLL: Final = 2000
POLL_S: Final = 0.1
_UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED


@dataclass
class _Reading:
    """How far a partition was read, and the committed value of each key."""

    next: int = 0
    committed: dict[int, Totals] = field(default_factory=dict)

    def take(self, message: Message) -> None:
        """Add a record, or an end-of-partition event with its offset."""
        error, offset = message.error(), message.offset() or 0
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if offset < self.next:
            return
        self.next = offset
        if error is None:
            key, totals = totals_in(bytes(message.value() or b""))
            self.committed[key] = totals
            self.next = offset + 1


class Changelog:
    """Aggregates of a worker's partitions, as they will be if the open transaction commits."""

    def __init__(
        self, spec: PipelineSpec, history: HistoryWriter, progress: ClientProgress, stop: Deadline
    ) -> None:
        self._spec = spec
        self._history = history
        self._stop = stop
        self._log = Log(progress)
        self._state: dict[int, dict[int, Totals]] = {}
        self._changed: dict[int, set[int]] = defaultdict(set)
        self._read: dict[int, _Reading] = {}
        self._admin = AdminClient({**settings(COMMON), **spec.servers()})
        self._config: dict[str, Any] = {
            **settings(CONSUMER),
            **spec.servers(),
            "group.id": spec.alone,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "error_cb": self._log.error,
        }

    def restore(self, partitions: Iterable[int]) -> bool:
        """Rebuild the aggregates of newly assigned partitions; return False if that is not possible now."""
        missing = sorted(set(partitions) - self._state.keys())
        if not missing:
            return True
        try:
            ends = self._ends_of(missing)
        except (KafkaException, TimeoutError) as error:
            return self._not_now(f"cannot get the ends of the changelog: {error}")
        if unknown := [partition for partition, end in ends.items() if end < 0]:
            return self._not_now(f"no end offset for partitions {unknown} of the changelog")
        offsets = [(self._spec.changelog, *end) for end in ends.items()]
        op = self._history.invoke("restore", producer=self._spec.number, offsets=offsets)
        try:
            behind = self._read_on(ends, self._stop.limit(ATTEMPT_LIMIT_S))
        except KafkaException as exception:
            self._history.info(op, error_of(kafka_error(exception)))
            self._log.error(kafka_error(exception))
            return False
        if behind:
            self._history.info(op, error_of(None, f"partitions {behind} were not read to their ends"))
            return False
        self._history.ok(op)
        self._state |= {partition: dict(self._read[partition].committed) for partition in missing}
        return True

    def _not_now(self, why: str) -> bool:
        """Log the reason and pause briefly, because the caller retries at once."""
        self._log.write(why)
        self._admin.poll(RETRY_BACKOFF_S)
        return False

    def add(self, partition: int, seq: int) -> None:
        state, key = self._state[partition], key_of(seq)
        state[key] = state.get(key, NOTHING).add(seq)
        self._changed[partition].add(key)

    def take_changes(self) -> Iterator[tuple[int, list[tuple[int, Totals]]]]:
        """Return the changes since the last call, by partition."""
        for partition, keys in sorted(self._changed.items()):
            yield partition, [(key, self._state[partition][key]) for key in sorted(keys)]
        self._changed.clear()

    def forget(self) -> None:
        """Drop every aggregate in memory."""
        self._state.clear()
        self._changed.clear()

    def _ends_of(self, partitions: list[int]) -> dict[int, int]:
        """Return the high watermarks, which include open transactions.

        librdkafka may return offset -1001 instead of an error while a partition has no leader.
        """
        places = {p: TopicPartition(self._spec.changelog, p) for p in partitions}
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self._admin.list_offsets(
            dict.fromkeys(places.values(), latest),
            isolation_level=_UNCOMMITTED,
            request_timeout=REQUEST_LIMIT_S,
        )
        return {p: int(asked[at].result(REQUEST_LIMIT_S + GRACE_S).offset) for p, at in places.items()}

    def _read_on(self, ends: dict[int, int], limit: float) -> list[int]:
        """Continue reading up to these ends; return the partitions that have not reached them."""
        deadline = time.monotonic() + limit
        reading = {p: self._read.setdefault(p, _Reading()) for p in ends}

        def behind() -> list[int]:
            return [p for p, end in ends.items() if reading[p].next < end]

        if not (left := behind()):
            return []
        # A new consumer for each restore: records fetched for an earlier assignment cannot be mixed in.
        consumer = Consumer(self._config)
        try:
            consumer.assign([TopicPartition(self._spec.changelog, p, reading[p].next) for p in left])
            while behind() and time.monotonic() < deadline:
                for message in consumer.consume(MOST_A_POLL, timeout=POLL_S):
                    reading[message.partition() or 0].take(message)
        finally:
            self._close(consumer)
        return behind()

    def _close(self, consumer: Consumer) -> None:
        try:
            bounded(consumer.close, ATTEMPT_LIMIT_S)
        except KafkaException as exception:
            self._log.error(kafka_error(exception))
