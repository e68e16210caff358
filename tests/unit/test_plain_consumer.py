"""The plain consumer: capture of end offsets, retries during a fail-over, errors that a retry cannot cure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from harness.base.errors import HarnessError, UsageError
from harness.evidence.observation import Window
from harness.kafka.admin import Admin, Metadata, PartitionInfo
from harness.kafka.errors import KafkaAnswerError
from harness.witness import plain_consumer

TOPIC_AUTHORIZATION_FAILED = 29


class Brokers(Admin):
    """Stub of brokers: each metadata request returns the next leader of `leaders`; the offsets are fixed."""

    def __init__(self, leaders: list[int]) -> None:
        super().__init__({})
        self.leaders = leaders
        self.offset_requests: list[tuple[int, int]] = []

    def metadata(self, topics: Any = (), broker: int | None = None) -> Metadata:  # noqa: ARG002
        leader = self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]
        return Metadata("c", frozenset({1}), (PartitionInfo("orders", 0, leader, 0, (1,), (1,)),), {})

    def call(self, broker: int, request: Any) -> Any:  # noqa: ARG002
        timestamp = request.topics[0].partitions[0].timestamp
        self.offset_requests.append((timestamp, request.isolation_level))
        offset = {(-2, 0): 3, (-1, 0): 9, (-1, 1): 7}[timestamp, request.isolation_level]
        entry = SimpleNamespace(partition_index=0, error_code=0, offset=offset)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[entry])])


def at(monkeypatch: pytest.MonkeyPatch, brokers: object) -> None:
    monkeypatch.setattr(plain_consumer, "admin_at", lambda *_: cast(Admin, brokers))


def test_the_ends_of_a_leaderless_partition_are_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers([1, -1, 1])
    at(monkeypatch, brokers)
    assert plain_consumer.freeze("b:1", ["orders"]) == [
        Window(topic="orders", partition=0, start=3, lso=7, hw=9, read_to=7)
    ]
    # The last stable offset is requested before the high watermark, so the high watermark is never lower.
    assert brokers.offset_requests == [(-1, 1), (-1, 0), (-2, 0)]


def test_a_missing_topic_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, Brokers([1]))
    with pytest.raises(UsageError, match="there is no topic 'oders'") as refused:
        plain_consumer.freeze("b:1", ["oders"])
    assert refused.value.hint == "did you mean orders? topics are orders"


def test_no_topics_have_no_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, Brokers([1]))
    assert plain_consumer.freeze("b:1", []) == []


def test_a_denied_request_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> Admin:
        raise KafkaAnswerError("offsets of orders-0", TOPIC_AUTHORIZATION_FAILED)

    monkeypatch.setattr(plain_consumer, "admin_at", denied)
    with pytest.raises(HarnessError, match="TOPIC_AUTHORIZATION_FAILED"):
        plain_consumer.group_positions("b:1", "billing")


def test_an_error_of_the_client_library_is_an_error_of_the_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, "no leader"))

    at(monkeypatch, Brokers([1]))
    monkeypatch.setattr(plain_consumer, "read_to_end", fails)
    with pytest.raises(HarnessError, match="the reader could not read: no leader"):
        plain_consumer.observe_topics("b:1", ["orders"], "r7k2m9qa")
