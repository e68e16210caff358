"""What the observer asks of the client library, where no cluster is needed to see it."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from harness.wire import observer


def test_an_end_that_the_client_library_does_not_tell_is_asked_for_again() -> None:
    place, answers = TopicPartition("t", 0), [-1001, -1001, 7]

    class Untold:
        def list_offsets(self, *_: object, **__: object) -> dict[TopicPartition, Future[SimpleNamespace]]:
            told: Future[SimpleNamespace] = Future()
            told.set_result(SimpleNamespace(offset=answers.pop(0)))
            return {place: told}

    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    found = observer._offsets(Untold(), [place], latest, IsolationLevel.READ_COMMITTED)  # type: ignore[arg-type]
    assert (found, answers) == ({("t", 0): 7}, [])
