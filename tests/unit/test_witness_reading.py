"""The plain consumer with a scripted client library: what it reads, and when its observation is complete."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from harness.base.errors import HarnessError
from harness.evidence.changelog_record import Totals, payload_of
from harness.evidence.observation import Observation, Window
from harness.evidence.record import HEADER, Identity, encode
from harness.kafka import read_to_end as reading
from harness.kafka.admin import Admin, Metadata, PartitionInfo
from harness.kafka.errors import KafkaAnswerError
from harness.witness import plain_consumer
from harness.witness.plain_consumer import freeze, limit_to, observe_topics

RUN = "r7k2m9qa"
EARLIEST, LATEST = -2, -1


class Brokers(Admin):
    """Stub of brokers: the log start, last stable offset and high watermark of each partition of t."""

    def __init__(self, *bounds: tuple[int, int, int]) -> None:
        super().__init__({})
        self.bounds = bounds

    def metadata(self, topics: Any = (), broker: int | None = None) -> Metadata:  # noqa: ARG002
        partitions = tuple(PartitionInfo("t", i, 1, 0, (1,), (1,)) for i in range(len(self.bounds)))
        return Metadata("c", frozenset({1}), partitions, {})

    def call(self, broker: int, request: Any) -> Any:  # noqa: ARG002
        asked = request.topics[0].partitions
        kind = {(EARLIEST, 0): 0, (LATEST, 1): 1, (LATEST, 0): 2}
        entries = [
            SimpleNamespace(
                partition_index=p.partition_index,
                error_code=0,
                offset=self.bounds[p.partition_index][kind[p.timestamp, request.isolation_level]],
            )
            for p in asked
        ]
        return SimpleNamespace(topics=[SimpleNamespace(partitions=entries)])


class Message:
    """A message of a consumer: a record with bytes, or the event that a partition ends at an offset."""

    def __init__(self, partition: int, offset: int, value: bytes | None, *, is_end: bool = False) -> None:
        self._place, self._offset, self._value = partition, offset, value
        self._error = KafkaError(KafkaError._PARTITION_EOF) if is_end else None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._place

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return b"key"

    def headers(self) -> None:
        return None

    def error(self) -> KafkaError | None:
        return self._error


def record(offset: int, seq: int | None = None, *, partition: int = 0, run: str = RUN) -> Message:
    value = encode(Identity(run, 1, partition, offset if seq is None else seq))
    return Message(partition, offset, value)


def end(offset: int, partition: int = 0) -> Message:
    return Message(partition, offset, None, is_end=True)


class Client:
    """Stub of a consumer: each poll returns the next list of messages, and later polls return nothing."""

    def __init__(self, config: dict[str, Any], polls: Sequence[Sequence[Message]]) -> None:
        self.config = config
        self.polls = list(polls)
        self.assigned: list[tuple[int, int]] = []

    def assign(self, partitions: Sequence[Any]) -> None:
        self.assigned = [(each.partition, each.offset) for each in partitions]

    def consume(self, _: int, timeout: float) -> Sequence[Message]:  # noqa: ARG002
        return self.polls.pop(0) if self.polls else []

    def close(self) -> None: ...


class Reader:
    """The plain consumer with scripted brokers and polls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *bounds: tuple[int, int, int]) -> None:
        self.patch = monkeypatch
        self.brokers = Brokers(*bounds)
        monkeypatch.setattr(plain_consumer, "admin_at", lambda *_: cast(Admin, self.brokers))
        self.clients: list[Client] = []

    def observe(self, *polls: Sequence[Message], **options: Any) -> Observation:
        def client(config: dict[str, Any]) -> Client:
            self.clients.append(Client(config, polls))
            return self.clients[-1]

        self.patch.setattr(reading, "Consumer", client)
        self.patch.setattr(reading.read_to_end, "__kwdefaults__", {"ends": None, "close": Client.close})
        return observe_topics("b:1", ["t"], RUN, limit_s=0.05, **options)


def sequences(observation: Observation) -> list[tuple[int, int, int]]:
    """Return partition, offset and sequence of every record that was read."""
    assert observation.runs is not None
    return [
        (int(row["partition"]), int(row["offset"]) + i, int(row["seq"]) + i)
        for row in observation.runs
        for i in range(int(row["count"]))
    ]


def test_every_partition_is_read_to_its_last_stable_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(monkeypatch, (0, 2, 5), (0, 1, 1))

    observation = reader.observe([record(0), record(1), record(2)], [record(0, partition=1), end(1, 1)])

    assert reader.clients[0].assigned == [(0, 0), (1, 0)]
    assert sequences(observation) == [(0, 0, 0), (0, 1, 1), (1, 0, 0)]
    assert observation.meta.windows == [Window("t", 0, 0, 2, 5, 2), Window("t", 1, 0, 1, 1, 1)]
    assert observation.meta.complete
    assert observation.meta.detail == ""
    assert 0 < observation.meta.frozen <= observation.meta.finished


def test_only_committed_records_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(monkeypatch, (0, 1, 1))

    reader.observe([record(0)])

    config = reader.clients[0].config
    assert config["isolation.level"] == "read_committed"
    assert config["enable.auto.commit"] is False
    assert config["check.crcs"] is True


def test_the_last_record_before_the_end_is_read_and_the_one_at_the_end_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observation = Reader(monkeypatch, (0, 3, 3)).observe([record(0)], [record(2), record(3)])

    assert [offset for _, offset, _ in sequences(observation)] == [0, 2]
    assert observation.meta.complete


def test_a_record_behind_the_end_is_not_read_although_a_marker_is_the_last_offset_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observation = Reader(monkeypatch, (0, 3, 3)).observe([record(0), record(1)], [record(3)])

    assert [offset for _, offset, _ in sequences(observation)] == [0, 1]
    assert observation.meta.complete


def test_an_event_before_the_end_does_not_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    observation = Reader(monkeypatch, (0, 3, 3)).observe(
        [record(0), end(1)], [], [record(1), end(2)], [record(2)]
    )

    assert [offset for _, offset, _ in sequences(observation)] == [0, 1, 2]
    assert observation.meta.complete


def test_an_early_event_alone_leaves_the_reading_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    observation = Reader(monkeypatch, (0, 3, 3)).observe([record(0), end(1)])

    assert not observation.meta.complete
    assert "not read to the end in time: t-0" in observation.meta.detail


def test_one_unread_partition_makes_the_reading_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    observation = Reader(monkeypatch, (0, 2, 2), (0, 2, 2)).observe(
        [record(0), record(1), record(0, partition=1)]
    )

    assert not observation.meta.complete
    assert observation.meta.detail == "not read to the end in time: t-1"
    assert [window.read_to for window in observation.meta.windows] == [2, 0], "no part of it counts as read"
    assert [window.lso for window in observation.meta.windows] == [2, 2]


def test_deleted_records_make_the_reading_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    observation = Reader(monkeypatch, (0, 1, 1), (3, 5, 5)).observe(
        [record(0), record(3, partition=1), record(4, partition=1)]
    )

    assert not observation.meta.complete
    assert observation.meta.detail == "t-1 begins at offset 3: earlier records were deleted"


def test_an_empty_partition_is_complete_without_a_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(monkeypatch, (0, 0, 0))

    observation = reader.observe()

    assert observation.meta.complete
    assert reader.clients == []


def test_markers_at_the_end_are_passed_by_the_event(monkeypatch: pytest.MonkeyPatch) -> None:
    observation = Reader(monkeypatch, (0, 3, 3)).observe([record(0), record(1)], [end(3)])

    assert observation.meta.complete
    assert observation.meta.records == 2


def test_records_of_other_runs_are_counted_as_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    observation = Reader(monkeypatch, (0, 3, 3)).observe(
        [record(0), record(1, run="another1"), Message(0, 2, b"anything")]
    )

    assert observation.meta.records == 1
    assert observation.meta.foreign.count == 2
    assert [spot.offset for spot in observation.meta.foreign.examples] == [1, 2]


def test_the_inputs_of_a_group_are_read_up_to_its_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    observation = Reader(monkeypatch, (0, 4, 4), (0, 4, 4)).observe(
        [record(0), record(1), record(2)], ends={("t", 0): 2, ("other", 0): 9}, group="g"
    )

    assert observation.meta.purpose == "consumed"
    assert observation.meta.complete
    assert [(w.partition, w.read_to) for w in observation.meta.windows] == [(0, 2)]
    assert [offset for _, offset, _ in sequences(observation)] == [0, 1]


def test_a_group_beyond_the_last_stable_offset_makes_the_reading_incomplete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observation = Reader(monkeypatch, (0, 1, 4)).observe([record(0)], ends={("t", 0): 3}, group="g")

    assert [window.read_to for window in observation.meta.windows] == [1]
    assert observation.meta.positions == [("t", 0, 3)]
    assert observation.meta.finished >= observation.meta.frozen > 0
    assert not observation.meta.complete
    assert "the group's offset 3 is after the last stable offset 1" in observation.meta.detail


def test_a_witness_reads_to_the_ends_that_another_one_froze(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = [Window("t", 0, 0, 2, 2, 2), Window("t", 1, 0, 5, 5, 5)]

    observation = Reader(monkeypatch, (0, 3, 3), (0, 4, 4)).observe(
        [record(0), record(1), record(2)], [record(3, partition=1)], shared=shared
    )

    assert observation.meta.windows == [Window("t", 0, 0, 3, 3, 2), Window("t", 1, 0, 4, 4, 4)]
    assert observation.meta.complete
    assert [(p, offset) for p, offset, _ in sequences(observation)] == [(0, 0), (0, 1), (1, 3)]


def test_shared_ends_of_other_partitions_change_nothing() -> None:
    assert limit_to([Window("u", 0, 0, 1, 1, 1)], [Window("t", 0, 0, 4, 4, 4)]) == [
        Window("t", 0, 0, 4, 4, 4)
    ]


def test_every_partition_of_every_topic_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    Reader(monkeypatch, (0, 2, 5), (1, 7, 9), (0, 3, 3))

    assert freeze("b:1", ["t"]) == [
        Window(topic="t", partition=0, start=0, lso=2, hw=5, read_to=2),
        Window(topic="t", partition=1, start=1, lso=7, hw=9, read_to=7),
        Window(topic="t", partition=2, start=0, lso=3, hw=3, read_to=3),
    ]


class Headed(Message):
    """A record whose identity is in its headers."""

    def __init__(self, *identities: bytes) -> None:
        super().__init__(0, 0, b"a value of the application")
        self._headers = [(HEADER, identity) for identity in identities]

    def headers(self) -> Any:
        return self._headers


def test_the_last_identity_of_the_headers_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = (encode(Identity(RUN, 1, 0, seq)) for seq in (3, 8))

    observation = Reader(monkeypatch, (0, 1, 1)).observe([Headed(first, last)], where="header")
    assert sequences(observation) == [(0, 0, 8)]


def total(offset: int, key: int, inputs: int, total_of_inputs: int) -> Message:
    value = encode(Identity(RUN, 9, 0, offset)) + payload_of(key, Totals(inputs, total_of_inputs))
    return Message(0, offset, value)


def test_the_last_totals_of_a_key_are_kept_and_others_are_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    polls = [total(0, 7, 1, 5), total(1, 8, 1, 2), total(2, 7, 2, 9), record(3)]

    observation = Reader(monkeypatch, (0, 4, 4)).observe(polls, totals=True)

    assert observation.aggregates is not None
    assert sorted(observation.aggregates.tolist()) == [(0, 7, 2, 9, 2), (0, 8, 1, 2, 1)]
    assert (observation.meta.foreign.count, observation.meta.purpose) == (1, "aggregates")


def test_batches_are_checked_against_their_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(monkeypatch, (0, 1, 1))
    reader.observe([record(0)])

    assert reader.clients[0].config["check.crcs"] is True


@pytest.mark.parametrize(("denied", "raised", "requests"), [(True, HarnessError, 1), (False, None, 2)])
def test_a_request_without_the_right_is_not_repeated(
    denied: bool, raised: type[Exception] | None, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    error = KafkaAnswerError("the offsets", 29 if denied else 6)
    assert error.denied is denied

    def frozen(*_: object) -> list[Window]:
        asked.append(1)
        if len(asked) == 1:
            raise error
        return []

    monkeypatch.setattr(plain_consumer, "admin_at", lambda *_: None)
    monkeypatch.setattr(plain_consumer, "freeze_windows", frozen)
    if raised is None:
        assert freeze("b:1", ["t"]) == []
    else:
        with pytest.raises(raised, match="the offsets"):
            freeze("b:1", ["t"])
    assert len(asked) == requests
