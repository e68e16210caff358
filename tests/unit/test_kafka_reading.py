"""Reading to the end offsets: which records count, when a partition is finished, where a reader continues."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka.record.default_records import DefaultRecordBatchBuilder

from harness.kafka import read_to_end as reading
from harness.kafka.admin import Admin
from harness.kafka.errors import KafkaAnswerError
from harness.kafka.log.fetch import fetch_batches, fetch_stored
from harness.kafka.read_to_end import read_to_end

T0, T1 = ("t", 0), ("t", 1)
NOT_LEADER = 6


class Message:
    """A message of a consumer: a record at an offset, or the event that a partition ends there."""

    def __init__(self, partition: int, offset: int, code: int | None = None) -> None:
        self._partition = partition
        self._offset = offset
        self._error = None if code is None else KafkaError(code)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


def end(partition: int, offset: int) -> Message:
    return Message(partition, offset, KafkaError._PARTITION_EOF)


class Polls:
    """Stub of a consumer: each poll returns the next list of messages, and later polls return nothing."""

    def __init__(self, polls: Sequence[Sequence[Message]]) -> None:
        self.polls = list(polls)
        self.assigned: list[tuple[int, int]] = []
        self.closed = 0

    def assign(self, partitions: Sequence[Any]) -> None:
        self.assigned = [(each.partition, each.offset) for each in partitions]

    def consume(self, _: int, timeout: float) -> Sequence[Message]:  # noqa: ARG002
        return self.polls.pop(0) if self.polls else []


def read(
    monkeypatch: pytest.MonkeyPatch,
    polls: Sequence[Sequence[Message]],
    positions: dict[tuple[str, int], int],
    ends: dict[tuple[str, int], int] | None,
) -> tuple[list[tuple[int, int]], list[tuple[str, int]], Polls]:
    consumer, records = Polls(polls), []

    def close(closed: object) -> None:
        assert closed is consumer
        consumer.closed += 1

    monkeypatch.setattr(reading, "Consumer", lambda _: consumer)
    unread = read_to_end(
        {},
        positions,
        lambda partition, message: records.append((partition[1], message.offset() or 0)),
        time.monotonic() + 0.05,
        ends=ends,
        close=close,
    )
    assert consumer.closed == bool(consumer.assigned)
    return records, unread, consumer


def test_records_at_and_after_the_end_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = {T0: 0, T1: 4}
    polls = [[Message(0, 0), Message(1, 4), Message(0, 1), Message(0, 2)], [Message(1, 7), Message(1, 8)]]
    records, unread, consumer = read(monkeypatch, polls, positions, {T0: 2, T1: 7})
    assert consumer.assigned == [(0, 0), (1, 4)]
    assert (records, unread) == ([(0, 0), (1, 4), (0, 1)], [])
    assert positions == {T0: 2, T1: 7}


def test_markers_before_the_end_finish_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = {T0: 0}
    records, unread, _ = read(monkeypatch, [[Message(0, 0), end(0, 1)], [end(0, 5)]], positions, {T0: 3})
    assert (records, unread, positions) == ([(0, 0)], [], {T0: 3})


def test_without_ends_each_partition_ends_at_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = {T0: 0, T1: 0}
    polls = [[Message(0, 0), end(0, 2), Message(0, 2)], [end(1, 0)], [Message(1, 0)]]
    records, unread, consumer = read(monkeypatch, polls, positions, None)
    assert (records, unread, positions) == ([(0, 0)], [], {T0: 2, T1: 0})
    assert len(consumer.polls) == 1, "it stops at the last end"


def test_an_unfinished_partition_is_returned_with_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = {T0: 0, T1: 3}
    records, unread, consumer = read(monkeypatch, [[Message(0, 0), end(0, 2)]], positions, {T0: 9, T1: 3})
    assert consumer.assigned == [(0, 0)], "a partition that is at its end is not read"
    assert (records, unread, positions) == ([(0, 0)], [T0], {T0: 2, T1: 3})


def test_an_error_is_raised_after_the_consumer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaException):
        read(monkeypatch, [[Message(0, 0, KafkaError._AUTO_OFFSET_RESET)]], {T0: 0}, None)


def stored(base: int, count: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number in range(count):
        builder.append(number, 1, None, b"v", [])
    data = bytearray(builder.build())
    data[:8] = base.to_bytes(8, "big")
    return bytes(data)


class Broker(Admin):
    """Broker that returns two batches per fetch, starting with the one that contains the requested offset."""

    def __init__(self, log: list[tuple[int, int]], code: int = 0) -> None:
        super().__init__({})
        self.log = log
        self.code = code
        self.offsets: list[int] = []

    def call(self, broker: int, request: Any) -> Any:
        assert broker == 3
        offset = request.topics[0].partitions[0].fetch_offset
        self.offsets.append(offset)
        batches = [(base, count) for base, count in self.log if base + count > offset][:2]
        data = b"".join(stored(base, count) for base, count in batches)
        partition = SimpleNamespace(error_code=self.code, records=data)
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[partition])])


LOG = [(0, 3), (3, 2), (8, 1), (9, 4)]


def bases(batches: Any) -> list[int]:
    return [batch.base_offset for batch in batches]


def test_fetches_continue_after_the_last_batch_until_nothing_is_left() -> None:
    broker = Broker(LOG)
    assert bases(fetch_stored(broker, 3, T0, 0)) == [0, 3, 8, 9]
    assert broker.offsets == [0, 5, 13]


def test_a_fetch_from_within_a_batch_returns_all_of_it_and_stops_before_the_end() -> None:
    broker = Broker(LOG)
    assert bases(fetch_batches(broker, 3, T0, 4, 9)) == [3, 8]
    assert bases(fetch_batches(broker, 3, T0, 4, 4)) == []
    assert broker.offsets == [4]


def test_no_fetch_is_sent_after_the_deadline() -> None:
    broker = Broker(LOG)
    assert bases(fetch_stored(broker, 3, T0, 0, deadline=time.monotonic() - 1)) == []
    assert broker.offsets == []


def test_an_error_code_of_a_fetch_names_the_partition_and_the_offset() -> None:
    with pytest.raises(KafkaAnswerError, match="fetch of t-0 at 7: NOT_LEADER_FOR_PARTITION"):
        next(iter(fetch_stored(cast(Admin, Broker(LOG, NOT_LEADER)), 3, T0, 7)))
