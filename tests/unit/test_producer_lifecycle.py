"""Lifecycle of a client's producer: requests sent twice, fencing by a successor, calls that never return."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from harness.clients.client import Deadline
from harness.clients.client_spec import TransactionalSpec
from harness.clients.fencing_check import Known, Ours
from harness.clients.producer_lifecycle import ProducerLife
from harness.clients.producer_statistics import IdentityLog, RequestCounter
from harness.clients.progress import ClientProgress
from harness.evidence.history import HistoryFile, HistoryWriter, Info, Ok

SPEC = TransactionalSpec(
    run="abcd1234",
    client="c-1",
    number=3,
    bootstrap="b:1",
    history="h.jsonl",
    seconds=1.0,
    topic="t",
    partitions=2,
    transactional_id="x",
)


@pytest.fixture
def history(tmp_path: Path) -> HistoryWriter:
    return HistoryWriter(tmp_path / "c-1.jsonl", run="abcd1234", client="c-1", role="test")


def report(**brokers: dict[str, Any]) -> str:
    return msgspec.json.encode(
        {"brokers": brokers, "eos": {"producer_id": 7, "producer_epoch": 1}, "ts": 1}
    ).decode()


@pytest.fixture
def watch(history: HistoryWriter) -> RequestCounter:
    return RequestCounter(IdentityLog(3, history, ClientProgress()))


def test_an_end_sent_twice_is_in_doubt(watch: RequestCounter) -> None:
    watch.ask("EndTxn")
    watch.on_statistics(report(TxnCoordinator={"req": {"EndTxn": 1}}))
    assert (watch.doubt, watch.resent_ends) == ("", 0)

    watch.on_statistics(report(TxnCoordinator={"req": {"EndTxn": 3}}))

    assert watch.resent_ends == 2
    assert "EndTxn was sent 3 times for 1 calls" in watch.doubt


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"TxnCoordinator": {"req": {}}}, {"TxnCoordinator": {"disconnects": 1}}),
        ({"a": {"req": {"TxnOffsetCommit": 1}}}, {"a": {"req": {"TxnOffsetCommit": 2}}}),
        ({"a": {"req": {"TxnOffsetCommit": 1}}}, {"a": {"req": {}}}),
    ],
    ids=["its connection broke", "offsets were sent twice", "counters went back"],
)
def test_other_signs_of_a_second_copy_leave_a_doubt(
    watch: RequestCounter, before: dict[str, Any], after: dict[str, Any]
) -> None:
    watch.ask("TxnOffsetCommit")
    watch.on_statistics(report(**before))
    assert watch.doubt == ""
    watch.on_statistics(report(**after))
    assert watch.doubt


def test_a_coordinator_error_leaves_a_doubt_and_another_brokers_does_not(watch: RequestCounter) -> None:
    watch.on_error(KafkaError(KafkaError._TRANSPORT, "127.0.0.1:9/1: Disconnected"))
    assert watch.doubt == ""
    watch.on_error(KafkaError(KafkaError._TRANSPORT, "TxnCoordinator: 127.0.0.1:9: Disconnected"))
    assert watch.doubt


def test_missing_statistics_leave_a_doubt(watch: RequestCounter) -> None:
    watch.fresh(lambda _: None, lambda _: False)
    assert watch.doubt


def test_records_that_waited_for_their_partition_do_not_hide_a_retry(history: HistoryWriter) -> None:
    identity = IdentityLog(3, history, ClientProgress())
    partitions = {"-1": {"msgs": 50, "txmsgs": 0}, "0": {"msgs": 100, "txmsgs": 105}}
    identity.on_statistics(msgspec.json.encode({"topics": {"t": {"partitions": partitions}}}).decode())
    assert identity.resent == 5


def test_identities_are_written_once(history: HistoryWriter, watch: RequestCounter, tmp_path: Path) -> None:
    watch.on_statistics(report())
    watch.on_statistics(report())
    history.close()

    lines = [line for _, line in HistoryFile(tmp_path / "c-1.jsonl").read() if isinstance(line, Ok)]
    assert [(line.f, line.pid, line.epoch) for line in lines] == [("identity", 7, 1)]


OURS = Ours((7, 3), 1_000_000, 20_000, 25.0)


@pytest.mark.parametrize(
    ("ours", "known", "is_timeout"),
    [
        (OURS, Known("CompleteAbort", 7, 4, 1_000_100), True),
        (OURS._replace(age_s=5.0), Known("CompleteAbort", 7, 4, 1_000_100), False),
        (OURS._replace(identity=None), Known("CompleteAbort", 7, 4, 1_000_100), False),
        (OURS, Known("Empty", 7, 5, -1), False),
        (OURS, Known("Ongoing", 7, 4, 1_000_100), False),
        (OURS, Known("CompleteAbort", 7, 4, 1_030_000), False),
        (OURS, Known("CompleteAbort", 8, 0, 1_000_100), False),
    ],
)
def test_a_time_out_is_distinguished_from_a_successor(
    ours: Ours, known: Known, is_timeout: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.clients import fencing_check

    monkeypatch.setattr(fencing_check, "ask", lambda *_: known)
    assert fencing_check.timed_out("b:1", "x", ours) is is_timeout


def test_the_original_error_behind_a_fatal_one_is_reported(history: HistoryWriter) -> None:
    life = ProducerLife(SPEC, "x", history, ClientProgress(), Deadline(60))
    fatal = KafkaError(KafkaError._FATAL, "Local: Fatal error", True)
    fenced = KafkaError(KafkaError._FENCED, "an old epoch", True)

    class Fenced:
        def poll(self, _: float) -> None:
            raise KafkaException(fenced)

    life._producer = Fenced()  # type: ignore[assignment]
    assert life.cause(fatal).code() == KafkaError._FENCED
    other = KafkaError(KafkaError._TIMED_OUT, "late")
    assert life.cause(other) is other


def test_a_fatal_error_whose_report_was_lost_is_asked_for(history: HistoryWriter) -> None:
    life = ProducerLife(SPEC, "x", history, ClientProgress(), Deadline(60))
    errors = [KafkaError(KafkaError._STATE, "open"), KafkaError(KafkaError._FENCED, "an old epoch", True)]

    class Silent:
        def poll(self, _: float) -> None:
            """Report nothing: the report was lost in an earlier call."""

        def begin_transaction(self) -> None:
            raise KafkaException(errors.pop(0))

    life._producer = Silent()  # type: ignore[assignment]
    fatal = KafkaError(KafkaError._FATAL, "Local: Fatal error", True)
    assert life.cause(fatal) is fatal, "the library has no fatal error"
    assert life.cause(fatal).code() == KafkaError._FENCED
    assert life.cause(fatal).code() == KafkaError._FENCED, "it is asked once"


def test_a_call_that_the_library_drops_stays_undecided(
    tmp_path: Path, history: HistoryWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.clients.producer_lifecycle.GRACE_S", 0.05)
    life = ProducerLife(SPEC, "x", history, ClientProgress(), Deadline(60))
    for_ever = threading.Event()
    op = history.invoke("commit", producer=1, txn=1)

    error = life.attempt_within(0.05, op, lambda _: for_ever.wait())

    for_ever.set()
    assert error is not None
    assert (error.code(), error.retriable()) == (KafkaError._TIMED_OUT, False)
    [info] = [line for _, line in HistoryFile(tmp_path / "c-1.jsonl").read() if isinstance(line, Info)]
    assert info.error is not None
    assert (info.op, info.error.name) == (op, "_TIMED_OUT")


def test_requests_are_counted_over_all_producers_of_a_client(history: HistoryWriter) -> None:
    progress = ClientProgress()
    identity = IdentityLog(3, history, progress)
    for reports in (
        [{"txretries": 1}, {"txretries": 4, "disconnects": 2}],
        [{"txretries": 2, "req_timeouts": 1}],
    ):
        identity.totals.renew()
        for counters in reports:
            RequestCounter(identity).on_statistics(report(a=counters, b={"txretries": 10}))
    assert progress.statistics()["request retries"] == 14 + 12
    assert (progress.request_timeouts, progress.broken_connections) == (1, 2)
