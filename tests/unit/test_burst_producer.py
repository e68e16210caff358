"""The bursts of an idempotent client against a scripted client library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaException

from harness.clients import idempotent
from harness.clients.client import CannotGoOnError, bounded
from harness.clients.client_spec import IdempotentSpec
from harness.clients.idempotent import Burst, BurstProducer
from harness.clients.progress import ClientProgress
from harness.evidence.history import Completion, HistoryFile, HistoryWriter, Info, Ok
from harness.evidence.ledger import FATE_NAMES, fold
from harness.evidence.record import LaneEncoder
from tests.unit.scripted_library import FATAL, UNDELIVERED, Message, Script, ScriptedProducer, Step

SPEC = IdempotentSpec(
    run="abcd1234",
    client="c-1",
    number=3,
    bootstrap="b:1",
    history="h.jsonl",
    seconds=1.0,
    topic="t",
    partitions=2,
)


class Case:
    """A burst producer on a scripted library, with its history."""

    def __init__(self, folder: Path, script: Script) -> None:
        self.script = script
        self.path = folder / "c-1.jsonl"
        self.progress = ClientProgress()
        self.history = HistoryWriter(self.path, run=SPEC.run, client="c-1", role="idempotent")
        self.producer = BurstProducer(SPEC, "t", self.history, self.progress, idempotence=True)
        self._encoders = [LaneEncoder(SPEC.run, SPEC.number, lane) for lane in range(2)]

    def send(self, lane: int, count: int) -> None:
        first = self.producer.next_of(lane)
        self.producer.send(lane, self._encoders[lane].batch(first, count))

    def answers(self) -> list[Completion]:
        return [line for _, line in HistoryFile(self.path).read() if isinstance(line, Completion)]

    def fates(self) -> list[tuple[int, int, str]]:
        """Return the intervals of lane 0 with their fates."""
        rows = fold([HistoryFile(self.path)]).intervals
        lane_rows = zip(rows.lane, rows.first, rows.last, rows.fate, strict=True)
        return [(int(a), int(b), FATE_NAMES[int(fate)]) for lane, a, b, fate in lane_rows if lane == 0]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Case]:
    """Provide a factory of cases; its keyword arguments are the steps of the script."""

    def case(**steps: list[Step | None]) -> Case:
        script = Script(**steps)
        monkeypatch.setattr(idempotent, "Producer", lambda config: ScriptedProducer(config, script))
        return Case(tmp_path, script)

    return case


def test_a_delivered_burst_is_ok_with_its_offsets(make: Callable[..., Case]) -> None:
    case = make()
    case.send(0, 3)
    case.producer.flush(1)
    case.producer.complete()

    [answer] = case.answers()
    assert isinstance(answer, Ok)
    assert answer.acked == [(0, 0, 2, 0)]
    assert (case.progress.acknowledged, case.producer.open) == (3, [])


def test_a_burst_with_a_failed_record_is_unclear_and_lists_the_others(make: Callable[..., Case]) -> None:
    case = make(delivery=[None, UNDELIVERED, None])
    case.send(0, 3)
    case.producer.flush(1)
    case.producer.complete()

    [answer] = case.answers()
    assert isinstance(answer, Info)
    assert answer.acked == [(0, 0, 0, -1), (0, 2, 2, -1)]
    assert case.fates() == [(0, 0, "committed"), (1, 1, "unknown"), (2, 2, "committed")]
    assert case.progress.acknowledged == 2


def test_an_unfinished_burst_stays_open_and_is_unclear_at_the_end(make: Callable[..., Case]) -> None:
    case = make(flush=[lambda: 3])
    case.send(0, 3)
    case.producer.flush(1)
    case.producer.complete()
    assert (case.answers(), case.progress.in_flight) == ([], 3)

    case.producer.complete(final=True)

    [answer] = case.answers()
    assert isinstance(answer, Info)
    assert answer.acked == []
    assert answer.error is not None
    assert (answer.error.name, case.fates()) == ("NO_ANSWER", [(0, 2, "unknown")])


def test_a_burst_of_which_some_records_are_in_flight_is_unclear_at_the_end(make: Callable[..., Case]) -> None:
    case = make()
    case.send(0, 2)
    burst = case.producer.open[0]
    burst.delivered(None, Message(b"", 0))  # type: ignore[arg-type]
    case.producer.complete(final=True)
    assert isinstance(case.answers()[0], Info)
    assert case.fates() == [(0, 1, "unknown")]


def test_bursts_are_answered_out_of_order(make: Callable[..., Case]) -> None:
    case = make()
    case.send(1, 1)
    case.send(0, 2)
    for offset in (7, 8):
        case.producer.open[1].delivered(None, Message(b"", offset))  # type: ignore[arg-type]
    case.producer.complete()
    assert [answer.op for answer in case.answers()] == [1]
    assert case.fates() == [(0, 1, "committed")]


def test_a_fatal_error_is_recorded_before_the_client_ends(make: Callable[..., Case]) -> None:
    case = make(delivery=[None, FATAL])
    case.send(0, 2)
    case.producer.flush(1)

    with pytest.raises(CannotGoOnError, match="failed fatally"):
        case.producer.complete()

    [answer] = case.answers()
    assert isinstance(answer, Info)
    assert case.fates() == [(0, 0, "committed"), (1, 1, "unknown")]


def test_a_callback_that_was_interrupted_leaves_its_burst_unfinished() -> None:
    class Unreadable(Message):
        def offset(self) -> int | None:
            raise OSError("interrupted")

    burst = Burst(0, 0, 0, 1, SPEC.run, ordered=True)
    with pytest.raises(OSError, match="interrupted"):
        burst.delivered(None, Unreadable(b"", 0))  # type: ignore[arg-type]
    assert burst.waiting == 1


def test_an_exception_in_a_callback_ends_the_client_and_no_burst_is_ok(make: Callable[..., Case]) -> None:
    case = make(flush=[SystemError("a callback")])
    case.send(0, 2)
    with pytest.raises(SystemError):
        case.producer.flush(1)
    case.producer.complete()
    assert case.answers() == []


def test_a_system_error_that_the_library_caused_is_only_logged(make: Callable[..., Case]) -> None:
    error: Any = SystemError("a callback")
    error.__cause__ = KafkaException(FATAL)
    case = make(poll=[error])
    case.producer.serve(0)


def test_a_full_queue_delays_a_record(make: Callable[..., Case]) -> None:
    case = make(produce=[None, BufferError("full"), BufferError("still full")])
    case.send(0, 3)
    case.producer.flush(1)
    case.producer.complete()
    assert case.fates() == [(0, 2, "committed")]
    assert len(case.script.logs[0]) == 3


def test_two_bursts_of_a_lane_have_different_sequences(make: Callable[..., Case]) -> None:
    case = make()
    for count in (3, 2):
        case.send(0, count)
    case.producer.flush(1)
    case.producer.complete()

    assert case.producer.next_of(0) == 5
    assert case.fates() == [(0, 2, "committed"), (3, 4, "committed")]


@pytest.mark.parametrize(
    ("settings", "declared"),
    [
        ({}, (True, "all", 5)),
        ({"enable.idempotence": "false", "acks": "1"}, (False, "1", 5)),
        ({"enable.idempotence": False, "max.in.flight.requests.per.connection": 1}, (False, "all", 1)),
    ],
)
def test_a_history_declares_the_settings_that_apply(
    settings: dict[str, Any], declared: tuple[bool, str, int], make: Callable[..., Case], tmp_path: Path
) -> None:
    case = make()
    spec = msgspec.structs.replace(SPEC, settings=settings)
    path = tmp_path / "c-2.jsonl"
    history = HistoryWriter(path, run=SPEC.run, client="c-2", role="idempotent")
    BurstProducer(spec, "t", history, case.progress, idempotence=True)

    producer = fold([HistoryFile(path)]).producers[3].producer
    assert (producer.idempotent, producer.acks, producer.in_flight) == declared


def test_no_exception_of_a_chain_keeps_its_frames() -> None:
    def call() -> None:
        try:
            {}["first"]
        except KeyError as error:
            raise OSError("second") from error

    with pytest.raises(OSError, match="second") as caught:
        bounded(call, 5.0)

    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__traceback__ is None
