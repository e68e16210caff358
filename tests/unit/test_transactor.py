"""The transactions of a client against a scripted client library: each answer gives the right history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from harness.clients import fencing_check, producer_lifecycle
from harness.clients.client import CannotGoOnError, Deadline
from harness.clients.client_spec import TransactionalSpec
from harness.clients.lane_sequences import Lanes
from harness.clients.progress import ClientProgress
from harness.clients.transactor import Ended, Transactor
from harness.evidence.history import Completion, HistoryFile, HistoryWriter, Invoke
from harness.evidence.ledger import FATE_NAMES, fold
from tests.unit.scripted_library import (
    ABORTABLE,
    FENCED,
    RETRIABLE,
    TIMED_OUT,
    Message,
    Script,
    ScriptedProducer,
    Step,
)

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


class Case:
    """A transactor on a scripted library, with its history."""

    def __init__(self, folder: Path, script: Script, spec: TransactionalSpec = SPEC) -> None:
        self.script = script
        self.path = folder / "c-1.jsonl"
        self.progress = ClientProgress()
        self.history = HistoryWriter(self.path, run=SPEC.run, client="c-1", role="transactional")
        self.transactor = Transactor(spec, self.history, self.progress, Deadline(60))

    def begin(self, records: int = 3) -> None:
        """Begin a transaction with records in both lanes."""
        self.transactor.begin()
        self.transactor.send(0, [b"v"] * records)
        self.transactor.send(1, [b"v"])

    def lines(self) -> list[str]:
        """Return the requests and answers in the history, such as `commit` and `commit ok`."""
        lines = [line for _, line in HistoryFile(self.path).read()]
        return [
            line.f if isinstance(line, Invoke) else f"{line.f} {type(line).__name__.lower()}"
            for line in lines
            if isinstance(line, Invoke | Completion)
        ]

    def fates(self) -> list[str]:
        """Return the fate of each transaction, as the ledger computes it from the history."""
        return [FATE_NAMES[fate] for fate in fold([HistoryFile(self.path)]).groups.fate.tolist()]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Case]:
    """Provide a factory of cases; its keyword arguments are the steps of the script."""

    def case(spec: TransactionalSpec = SPEC, **steps: list[Step | None]) -> Case:
        script = Script(**steps)
        monkeypatch.setattr(producer_lifecycle, "Producer", lambda config: ScriptedProducer(config, script))
        return Case(tmp_path, script, spec)

    return case


def test_an_acknowledged_commit_is_committed_with_its_records_and_offsets(make: Callable[..., Case]) -> None:
    case = make()
    case.begin()

    assert case.transactor.commit() is Ended.COMMITTED

    assert case.lines() == ["init", "init ok", "begin", "begin ok", "commit", "commit ok"]
    ledger = fold([HistoryFile(case.path)])
    assert ledger.intervals.first.tolist() == [0, 0]
    assert ledger.intervals.last.tolist() == [2, 0]
    assert ledger.acks[:, 1:4].tolist() == [[0, 2, 0], [0, 0, 0]]
    assert (case.progress.committed, case.progress.acknowledged, case.fates()) == (1, 4, ["committed"])


def test_an_acknowledged_abort_is_aborted(make: Callable[..., Case]) -> None:
    case = make()
    case.begin()

    assert case.transactor.abort() is Ended.ABORTED

    assert case.lines()[-2:] == ["abort", "abort ok"]
    assert (case.progress.aborted, case.progress.committed, case.fates()) == (1, 0, ["aborted"])


def test_an_unclear_commit_is_unknown_and_is_not_abandoned(make: Callable[..., Case]) -> None:
    case = make(commit=[TIMED_OUT])
    case.begin()

    assert case.transactor.commit() is Ended.UNKNOWN

    assert case.lines()[-2:] == ["commit", "commit info"]
    assert (case.progress.unknown, case.fates()) == (1, ["unknown"])


def test_an_unclear_commit_and_an_unclear_abort_are_unknown_and_not_abandoned(
    make: Callable[..., Case],
) -> None:
    case = make(commit=[RETRIABLE, ABORTABLE], abort=[TIMED_OUT])
    case.begin()

    assert case.transactor.commit() is Ended.UNKNOWN

    assert case.lines()[-6:] == ["commit", "commit info", "commit", "commit info", "abort", "abort info"]
    assert case.fates() == ["unknown"]


def test_a_commit_that_the_library_refuses_is_aborted(make: Callable[..., Case]) -> None:
    case = make(commit=[ABORTABLE])
    case.begin()

    assert case.transactor.commit() is Ended.ABORTED

    assert case.lines()[-4:] == ["commit", "commit info", "abort", "abort ok"]
    assert case.fates() == ["aborted"]


def test_a_retriable_error_repeats_the_commit(make: Callable[..., Case]) -> None:
    case = make(commit=[RETRIABLE, RETRIABLE])
    case.begin()

    assert case.transactor.commit() is Ended.COMMITTED

    assert case.lines()[-6:] == ["commit", "commit info"] * 2 + ["commit", "commit ok"]
    assert case.fates() == ["committed"]


def test_an_unclear_abort_without_a_commit_is_abandoned(make: Callable[..., Case]) -> None:
    case = make(abort=[TIMED_OUT])
    case.begin()

    assert case.transactor.abort() is Ended.ABORTED

    assert case.lines()[-4:] == ["abort", "abort info", "abandon", "abandon ok"]
    assert case.fates() == ["aborted"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_records_that_were_not_delivered_are_never_committed(end: str, make: Callable[..., Case]) -> None:
    case = make(flush=[lambda: 2])
    case.begin()

    assert getattr(case.transactor, end)() is Ended.ABORTED

    assert case.lines()[-2:] == ["abandon", "abandon ok"]
    assert "commit" not in case.script.calls
    assert case.fates() == ["aborted"]


def test_a_failed_delivery_aborts_the_transaction(make: Callable[..., Case]) -> None:
    case = make(flush=[ABORTABLE])
    case.begin()

    assert case.transactor.commit() is Ended.ABORTED

    assert case.script.calls[-2:] == ["flush", "abort"]
    assert case.lines()[-2:] == ["abort", "abort ok"]


def test_a_failed_delivery_is_no_acknowledgement(make: Callable[..., Case]) -> None:
    case = make(delivery=[TIMED_OUT], commit=[TIMED_OUT])
    case.begin(records=1)
    case.transactor.flush()
    assert case.transactor._lanes.acked() == [(1, 0, 0, 0)]


@pytest.mark.parametrize("call", ["init", "begin", "send_offsets", "commit", "abort"])
@pytest.mark.parametrize("exception", [OSError(28, "disk full"), SystemError("a callback"), KeyError("ours")])
def test_an_exception_that_is_no_error_of_the_library_is_unclear_and_ends_the_client(
    call: str, exception: Exception, make: Callable[..., Case]
) -> None:
    case = make(**{call: [exception]})
    calls: dict[str, Callable[[], object]] = {
        "init": case.begin,
        "begin": case.begin,
        "send_offsets": lambda: case.transactor.send_offsets("g", [("in", 0, 5)], "metadata"),
        "commit": case.transactor.commit,
        "abort": case.transactor.abort,
    }
    if call not in ("init", "begin"):
        case.begin()

    with pytest.raises(type(exception)):
        calls[call]()

    assert case.lines()[-2:] == [call, f"{call} info"]
    last = [line for _, line in HistoryFile(case.path).read()][-1]
    assert isinstance(last, Completion)
    assert last.error is not None
    assert last.error.name == type(exception).__name__
    if call == "commit":
        assert case.fates() == ["unknown"]


def test_a_system_error_that_the_library_caused_is_an_unclear_answer(make: Callable[..., Case]) -> None:
    from confluent_kafka import KafkaException

    error = SystemError("a callback returned a result with an exception set")
    error.__cause__ = KafkaException(TIMED_OUT)
    case = make(commit=[error])
    case.begin()

    assert case.transactor.commit() is Ended.UNKNOWN
    assert case.fates() == ["unknown"]


def test_a_full_queue_delays_a_record(make: Callable[..., Case]) -> None:
    case = make(produce=[None, BufferError("full"), BufferError("still full")])
    case.begin()

    assert case.transactor.commit() is Ended.COMMITTED
    assert {partition: len(log) for partition, log in case.script.logs.items()} == {0: 3, 1: 1}


def test_a_produce_that_fails_breaks_the_transaction(make: Callable[..., Case]) -> None:
    case = make(produce=[None, ABORTABLE])
    with pytest.raises(producer_lifecycle.BrokenTransactionError) as broken:
        case.begin()

    assert case.transactor.give_up(broken.value.error) is Ended.ABORTED
    assert case.lines()[-2:] == ["abort", "abort ok"]
    assert fold([HistoryFile(case.path)]).intervals.last.tolist() == [2]


def test_offsets_are_added_again_after_a_retriable_error(make: Callable[..., Case]) -> None:
    case = make(send_offsets=[RETRIABLE])
    case.begin()

    case.transactor.send_offsets("g", [("in", 0, 5)], "metadata")

    assert case.lines()[-4:] == ["send_offsets", "send_offsets info", "send_offsets", "send_offsets ok"]
    assert [(p.topic, p.partition, p.offset) for p in case.script.positions] == [("in", 0, 5)]


def test_a_new_producer_is_created_after_an_unclear_end(make: Callable[..., Case]) -> None:
    case = make(commit=[TIMED_OUT])
    case.begin()
    case.transactor.commit()
    case.begin()

    assert case.transactor.commit() is Ended.COMMITTED

    assert case.script.calls.count("create") == 2
    assert case.progress.reinits == 1
    assert case.fates() == ["unknown", "committed"]
    ledger = fold([HistoryFile(case.path)])
    assert sorted(ledger.intervals.first.tolist()) == [0, 0, 1, 3]


@pytest.mark.parametrize(("timed_out", "ended"), [(True, Ended.UNKNOWN), (False, None)])
def test_a_fenced_client_stops_only_if_a_successor_has_its_id(
    timed_out: bool, ended: Ended | None, make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*_: object) -> bool:
        return timed_out

    monkeypatch.setattr(fencing_check, "timed_out", answer)
    case = make(commit=[FENCED])
    case.begin()

    if ended is None:
        with pytest.raises(CannotGoOnError, match="a successor has the transactional id"):
            case.transactor.commit()
    else:
        assert case.transactor.commit() is ended
    assert (case.progress.unknown, case.fates()) == (1, ["unknown"])


def test_the_end_of_the_client_decides_the_last_transaction(make: Callable[..., Case]) -> None:
    case = make(commit=[TIMED_OUT])
    case.begin()
    case.transactor.commit()
    case.transactor.close()

    assert case.lines()[-2:] == ["init", "init ok"]


def test_a_sequence_is_never_used_by_two_transactions(make: Callable[..., Case]) -> None:
    case = make(abort=[TIMED_OUT])
    sizes = [3, 1, 4]
    for size, end in zip(sizes, ("commit", "abort", "commit"), strict=True):
        case.begin(records=size)
        getattr(case.transactor, end)()
    ledger = fold([HistoryFile(case.path)])
    assert not ledger.problems
    lane: Any = ledger.intervals.lane == 0
    assert ledger.intervals.first[lane].tolist() == np.cumsum([0, 3, 1]).tolist()


def test_an_end_is_expected_only_from_a_transaction_with_records(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: list[str] = []
    monkeypatch.setattr(producer_lifecycle.RequestCounter, "ask", lambda _, name: expected.append(name))
    case = make()
    case.transactor.begin()
    case.transactor.commit()
    assert expected == []

    case.begin()
    case.transactor.commit()
    assert expected == ["EndTxn"]


def test_an_earlier_commit_does_not_keep_a_transaction_from_being_abandoned(
    make: Callable[..., Case],
) -> None:
    case = make(abort=[TIMED_OUT])
    case.begin()
    case.transactor.commit()
    case.begin()

    assert case.transactor.abort() is Ended.ABORTED
    assert case.lines()[-2:] == ["abandon", "abandon ok"]


@pytest.mark.parametrize("error", [ABORTABLE, TIMED_OUT], ids=["abortable", "not retriable"])
def test_offsets_that_cannot_be_added_break_the_transaction(error: Step, make: Callable[..., Case]) -> None:
    case = make(send_offsets=[error])
    case.begin()

    with pytest.raises(producer_lifecycle.BrokenTransactionError):
        case.transactor.send_offsets("g", [("in", 0, 5)], "metadata")
    assert case.lines()[-2:] == ["send_offsets", "send_offsets info"]


def test_a_begin_that_fails_breaks_the_transaction(make: Callable[..., Case]) -> None:
    case = make(begin=[ABORTABLE])

    with pytest.raises(producer_lifecycle.BrokenTransactionError):
        case.begin()


def test_an_end_that_was_requested_twice_is_in_doubt_until_there_is_a_new_producer(
    make: Callable[..., Case],
) -> None:
    case = make(commit=[RETRIABLE])
    case.begin()
    case.transactor.commit()
    assert "requested again" in case.transactor._life.watch.doubt

    case.begin()
    assert case.script.calls.count("create") == 2
    assert case.script.calls.index("purge") < len(case.script.calls) - case.script.calls[::-1].index("create")


def test_records_of_an_unknown_or_aborted_transaction_are_not_acknowledged(make: Callable[..., Case]) -> None:
    case = make(commit=[TIMED_OUT])
    case.begin()
    case.transactor.commit()
    case.begin()
    case.transactor.abort()

    assert case.progress.acknowledged == 0


def test_an_abandoned_transaction_lists_its_records(make: Callable[..., Case]) -> None:
    case = make(flush=[lambda: 2])
    case.begin()
    case.transactor.commit()

    assert fold([HistoryFile(case.path)]).intervals.last.tolist() == [2, 0]


def test_a_delivery_without_an_offset_is_no_acknowledgement() -> None:
    lanes = Lanes(1)
    lanes.begin()
    lanes.take(0, 2)
    for seq, offset in ((0, -1001), (1, 7)):
        lanes.on_delivery(0, seq)(None, Message(b"", offset))  # type: ignore[arg-type]

    assert lanes.acked() == [(0, 1, 1, 7)]


def test_a_doubt_that_arises_during_the_init_is_over_with_it(make: Callable[..., Case]) -> None:
    made: list[Case] = []

    def break_connection() -> None:
        made[0].transactor._life.watch.doubt = "a connection broke"

    made.append(make(init=[break_connection]))
    for _ in range(2):
        made[0].begin()
        made[0].transactor.commit()

    assert made[0].script.calls.count("create") == 1


def test_an_init_of_a_fenced_producer_is_not_repeated(make: Callable[..., Case]) -> None:
    case = make(init=[FENCED])

    with pytest.raises(CannotGoOnError, match="could not be initialised"):
        case.begin()
    assert case.script.calls.count("init") == 1


@pytest.mark.parametrize(("error", "producers"), [(TIMED_OUT, 2), (RETRIABLE, 1)])
def test_an_unclear_init_is_repeated_with_a_new_producer(
    error: Step, producers: int, make: Callable[..., Case]
) -> None:
    case = make(init=[error])
    case.begin()

    assert (case.script.calls.count("create"), case.script.calls.count("init")) == (producers, 2)


@pytest.mark.parametrize(("faster", "examined"), [(0.0, 1), (0.001, 0)])
def test_an_end_that_took_as_long_as_a_retry_is_examined(
    faster: float, examined: int, make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh: list[object] = []
    monkeypatch.setattr(producer_lifecycle.RequestCounter, "fresh", lambda *_: fresh.append(1))
    case = make()
    case.begin()

    case.transactor._life.look_for_repeats(producer_lifecycle.QUICKEST_RETRY_S - faster)

    assert len(fresh) == examined


@pytest.mark.parametrize(("quickest_s", "examined"), [(0.0, 1), (60.0, 0)])
def test_positions_that_took_as_long_as_a_retry_are_examined(
    quickest_s: float, examined: int, make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh: list[object] = []
    monkeypatch.setattr(producer_lifecycle.RequestCounter, "fresh", lambda *_: fresh.append(1))
    monkeypatch.setattr(producer_lifecycle, "QUICKEST_RETRY_S", quickest_s)
    case = make()
    case.begin()

    case.transactor.send_offsets("g", [("in", 0, 5)], "metadata")

    assert len(fresh) == examined


def test_a_new_producer_for_each_transaction_if_the_discipline_asks_for_it(make: Callable[..., Case]) -> None:
    always = make(msgspec.structs.replace(SPEC, end_discipline="always"))
    for _ in range(3):
        always.begin()
        assert always.transactor.commit() is Ended.COMMITTED
    always.transactor.close()

    assert always.script.calls.count("create") == 3
    assert always.progress.reinits == 2


def test_an_impatient_client_aborts_with_records_in_flight_and_keeps_its_producer(
    make: Callable[..., Case],
) -> None:
    case = make(msgspec.structs.replace(SPEC, delivery_limit_s=0.2), flush=[lambda: 2, None])
    case.begin()
    assert case.transactor.commit() is Ended.ABORTED
    case.begin()
    assert case.transactor.commit() is Ended.COMMITTED
    case.transactor.close()

    assert case.fates() == ["aborted", "committed"]
    assert case.script.calls.count("create") == 1
    assert "abandon" not in case.lines()
    assert case.script.limits[0] == pytest.approx(0.2, abs=0.05)
