"""What the observer asks of the client library, where no cluster is needed to see it."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from harness.base.errors import UsageError
from harness.witness import plain_consumer


def test_an_end_that_the_client_library_does_not_tell_is_asked_for_again() -> None:
    place, answers = TopicPartition("t", 0), [-1001, -1001, 7]

    class Untold:
        def list_offsets(self, *_: object, **__: object) -> dict[TopicPartition, Future[SimpleNamespace]]:
            told: Future[SimpleNamespace] = Future()
            told.set_result(SimpleNamespace(offset=answers.pop(0)))
            return {place: told}

    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    found = plain_consumer._offsets(Untold(), [place], latest, IsolationLevel.READ_COMMITTED)  # type: ignore[arg-type]
    assert (found, answers) == ({("t", 0): 7}, [])


def test_a_topic_that_there_is_not_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    there = SimpleNamespace(topics={"orders": SimpleNamespace(partitions={})})
    admin = SimpleNamespace(list_topics=lambda **_: there)
    monkeypatch.setattr(plain_consumer, "AdminClient", lambda _: admin)
    with pytest.raises(UsageError, match="there is no topic 'oders'") as refused:
        plain_consumer.freeze("b:1", ["oders"])
    assert refused.value.hint == "did you mean orders?"
