"""The histories of scripted clients list every sequence, also after calls that the library refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from harness.clients.client_spec import TransactionalSpec
from harness.clients.scripted import client_libraries, transactional_producer
from harness.clients.scripted.client_libraries import RefusedCallError
from harness.clients.scripted.library_producer import RECORDS, LibraryProducer
from harness.clients.scripted.transactional_producer import TransactionalProducer
from harness.evidence.history import HistoryFile, Invoke
from harness.evidence.ledger import FATE_NAMES, fold


def spec(folder: Path) -> TransactionalSpec:
    return TransactionalSpec(
        run="abcd1234",
        client="c-1",
        number=3,
        bootstrap="b:1",
        history=str(folder / "c-1.jsonl"),
        seconds=1.0,
        topic="t",
        partitions=2,
        transactional_id="x",
    )


class Library:
    """Stand-in for a client library; `refuses` is the number of the send that it refuses."""

    refuses = 0
    sends = 0

    def __init__(self, *_: object) -> None:
        """Accept any settings."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def close(self) -> None: ...

    def end(self, how: str) -> None: ...

    def send(self, *_: object) -> None:
        Library.sends += 1
        if Library.sends == Library.refuses:
            raise RefusedCallError("refused", "by the library")


def test_a_transaction_without_an_end_is_abandoned_when_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(client_libraries.LIBRARIES, "mine", Library)
    monkeypatch.setattr(Library, "refuses", 2)
    monkeypatch.setattr(Library, "sends", 0)
    producer = LibraryProducer(spec(tmp_path), "mine", [0, 1])
    producer.init()
    producer.whole("commit", 0)
    with pytest.raises(RefusedCallError):
        producer.whole("commit", 0)
    producer.init()
    producer.whole("commit", 0)
    producer.whole("abort", 0)
    producer.close()

    ledger = fold([HistoryFile(tmp_path / "c-1.jsonl")])

    assert ledger.problems == []
    assert [FATE_NAMES[fate] for fate in ledger.intervals.fate.tolist()] == [
        "committed",
        "aborted",
        "committed",
        "aborted",
    ]
    assert ledger.intervals.first.tolist() == [RECORDS * n for n in range(4)]
    ends = [line.f for _, line in HistoryFile(tmp_path / "c-1.jsonl").read() if isinstance(line, Invoke)]
    assert ends.count("abandon") == 1


class RefusingProducer:
    """Stand-in for the producer of confluent-kafka; it accepts the next `accepts` records."""

    def __init__(self, _: object) -> None:
        self.accepts = 0

    def produce(self, *_: object, **__: Any) -> None:
        if not self.accepts:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.accepts -= 1

    def begin_transaction(self) -> None: ...

    def commit_transaction(self, _: float) -> None: ...

    def flush(self, _: float) -> None: ...

    def purge(self) -> None: ...


def test_refused_records_take_no_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_producer, "Producer", RefusingProducer)
    producer = TransactionalProducer(spec(tmp_path))
    library: Any = producer.producer

    assert not producer.hand_over(0, 2).ok
    producer.begin()
    library.accepts = 3
    assert not producer.hand_over(0, 5).ok
    library.accepts = 2
    assert producer.hand_over(0, 2).ok
    producer.commit()
    producer.close()

    ledger = fold([HistoryFile(tmp_path / "c-1.jsonl")])

    assert ledger.problems == []
    assert list(zip(ledger.intervals.first.tolist(), ledger.intervals.last.tolist(), strict=True)) == [(0, 4)]


@pytest.mark.parametrize(("delivered", "named"), [(None, "_FATAL"), (KafkaError._TIMED_OUT, "_TIMED_OUT")])
def test_a_flush_whose_exception_was_lost_returns_the_error_of_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivered: int | None, named: str
) -> None:
    monkeypatch.setattr(transactional_producer, "Producer", RefusingProducer)
    producer = TransactionalProducer(spec(tmp_path))
    library: Any = producer.producer

    def flush(_: float) -> None:
        if delivered is not None:
            producer._delivered(lambda *_: None, KafkaError(delivered), None)
        raise SystemError("<method 'flush'> returned NULL without setting an exception")

    library.flush = flush
    answer = producer.flush()
    producer.close()

    assert (answer.ok, answer.name) == (False, named)
