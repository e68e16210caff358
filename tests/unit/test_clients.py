"""The parts of the clients that need no cluster: specs, limits, sequences, progress."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from harness.base.errors import UsageError
from harness.clients import client_settings as table
from harness.clients.client import Deadline, NeverReturnedError, Pace, bounded, error_of, library_error
from harness.clients.client_process import ClientProcess
from harness.clients.client_spec import (
    ClientSpec,
    IdempotentSpec,
    PipelineSpec,
    ReaderSpec,
    TransactionalSpec,
    load_spec,
)
from harness.clients.idempotent import Burst
from harness.clients.lane_sequences import Lanes
from harness.clients.poll_decoding import Given, identify, runs
from harness.clients.progress import ClientProgress, ProgressFile, load_progress
from harness.evidence.history import HistoryFile, Info
from harness.evidence.record import Identity, encode

# Runs a client, and pauses the end of its interpreter after this has restored the default action of SIGTERM.
ENDS_SLOWLY = """
import os, runpy, sys, time

class Slow:
    def __del__(self, write=os.write, sleep=time.sleep):
        write(1, b"ending")
        sleep(1)

sys.slow = Slow()
runpy.run_module("harness.clients", run_name="__main__")
"""
COMMON: dict[str, Any] = {
    "run": "abcd1234",
    "client": "c-1",
    "number": 3,
    "bootstrap": "b:1",
    "history": "h.jsonl",
    "seconds": 1.0,
}
SPECS: list[ClientSpec] = [
    IdempotentSpec(**COMMON, topic="t", partitions=2),
    TransactionalSpec(**COMMON, topic="t", partitions=2, transactional_id="x"),
    PipelineSpec(**COMMON, source="s", group="g", sink="t", partitions=2, transactional_id="x"),
    ReaderSpec(**COMMON, topics=["t"]),
]


class Delivered:
    """Stub of a delivered message: its offset and value."""

    def __init__(self, offset: int | None, value: bytes = b"") -> None:
        self._offset, self._value = offset, value

    def offset(self) -> int | None:
        return self._offset

    def value(self) -> bytes:
        return self._value


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_spec_survives_saving_and_loading(spec: ClientSpec, tmp_path: Path) -> None:
    spec.save(tmp_path / "spec.json")

    assert load_spec(tmp_path / "spec.json") == spec
    assert msgspec.json.decode((tmp_path / "spec.json").read_bytes())["kind"] == spec.kind


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "oracle"}, "oracle"),
        ({"run": "short"}, "run"),
        ({"partitions": 0}, "partitions"),
        ({"rat": 5}, "rat"),
        ({"abort_share": 1.5}, "abort_share"),
    ],
)
def test_an_invalid_spec_is_reported_with_the_wrong_field(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "spec.json"
    SPECS[1].save(path)
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) | change))

    with pytest.raises(UsageError, match=message):
        load_spec(path)


def test_every_limit_of_a_client_is_finite_and_fits_the_next() -> None:
    assert table.REQUEST_LIMIT_S < table.TRANSACTION_LIMIT_S < table.DELIVERY_LIMIT_S
    assert table.SESSION_LIMIT_S > 4.5  # longer than a fail-over, which must not cause a rebalance
    for settings in (table.PRODUCER, table.TRANSACTIONS, table.CLASSIC, table.NEXT_GENERATION):
        config = table.settings(settings)
        assert all(int(config[name]) > 0 for name in config if name.endswith("timeout.ms"))
    assert "session.timeout.ms" not in table.settings(table.NEXT_GENERATION)
    short = table.transaction_settings("x", 3000, {})
    assert {short[f"{name}.timeout.ms"] for name in ("message", "socket", "request", "transaction")} == {3000}


def test_a_stop_request_limits_calls_to_the_finishing_time() -> None:
    stop = Deadline(60)
    assert not stop
    assert stop.limit(1000) == 1000

    stop.request_stop()

    assert stop
    assert table.FINISH_LIMIT_S - 1 < stop.limit(1000) <= table.FINISH_LIMIT_S
    assert Deadline(0)


def test_pacing_does_not_catch_up_all_of_an_outage() -> None:
    pace = Pace(10)
    pace.sent(20)
    assert 1.5 < pace.ahead() <= 2

    late = Pace(10)
    late._due -= 100
    late.ahead()
    late.sent(15)
    assert late.ahead() > 0


def test_a_call_that_never_returns_is_abandoned() -> None:
    for_ever = threading.Event()
    with pytest.raises(NeverReturnedError, match="did not return"):
        bounded(for_ever.wait, 0.05)
    for_ever.set()

    def fails() -> None:
        raise KafkaException(KafkaError(KafkaError._STATE, "no"))

    with pytest.raises(KafkaException, match="no"):
        bounded(fails, 5)
    bounded(lambda: None, 5)


@pytest.mark.parametrize(
    "exception", [OSError(28, "disk full"), SystemError("a callback"), SystemExit(3), KeyboardInterrupt()]
)
def test_every_exception_of_a_bounded_call_is_raised(exception: BaseException) -> None:
    def fails() -> None:
        raise exception

    with pytest.raises(type(exception)):
        bounded(fails, 5)


@pytest.mark.parametrize("late", [False, True], ids=["within its limit", "after it"])
def test_the_object_of_a_failed_call_is_released_with_the_call(late: bool) -> None:
    go_on, ended = threading.Event(), threading.Event()

    class Library:
        def fail(self) -> None:
            go_on.wait()
            raise KafkaException(KafkaError(KafkaError._STATE, "no"))

        def __del__(self) -> None:
            ended.set()

    if not late:
        go_on.set()
    gc.disable()
    try:
        with pytest.raises(KafkaException) as raised:
            bounded(Library().fail, 0.05 if late else 5)
        assert isinstance(raised.value, NeverReturnedError) == late
        del raised
        go_on.set()
        assert ended.wait(5)
    finally:
        gc.enable()


def test_an_error_keeps_its_flags() -> None:
    error = error_of(KafkaError(KafkaError._FENCED, "away", True, False, False))
    assert (error.name, error.flags, error.message) == ("_FENCED", ["fatal"], "away")
    assert error_of(None).name == "NO_ANSWER"


def test_a_fatal_error_whose_exception_was_cleared_is_an_error_of_the_library() -> None:
    error = library_error(SystemError("<method 'flush'> returned NULL without setting an exception"))

    assert error is not None
    assert (error.code(), error.fatal()) == (KafkaError._FATAL, True)
    assert library_error(SystemError("a callback")) is None


def test_a_lane_never_gives_a_sequence_twice() -> None:
    lanes = Lanes(3)
    lanes.begin()
    assert [lanes.take(0, 5), lanes.take(2, 1), lanes.take(0, 2)] == [0, 0, 5]
    assert lanes.sent() == [(0, 0, 6), (2, 0, 0)]
    lanes.begin()
    assert (lanes.sent(), lanes.records) == ([], 0)
    assert lanes.take(0, 1) == 7


def test_two_offsets_prove_a_whole_interval_only_if_they_fit() -> None:
    lanes = Lanes(2)
    lanes.begin()
    for lane, seq, offset in ((0, 0, 100), (0, 9, 109), (1, 0, 50), (1, 4, 60)):
        lanes.on_delivery(lane, seq)(None, Delivered(offset))  # type: ignore[arg-type]

    assert lanes.acked() == [(0, 0, 9, 100), (1, 0, 0, 50), (1, 4, 4, 60)]


def burst(offsets: list[int | None], *, ordered: bool = True) -> Burst:
    one = Burst(0, 1, 10, len(offsets), "abcd1234", ordered=ordered)
    for seq, offset in enumerate(offsets, 10):
        value = encode(Identity("abcd1234", 3, 1, seq))
        error = KafkaError(KafkaError._MSG_TIMED_OUT) if offset is None else None
        one.delivered(error, Delivered(offset or 0, value))  # type: ignore[arg-type]
    return one


def test_delivered_records_of_a_burst_are_reported_as_intervals() -> None:
    assert burst([7, 8, 9]).acked() == [(1, 10, 12, 7)]
    assert burst([7, 8, 20, 21]).acked() == [(1, 10, 11, 7), (1, 12, 13, 20)]
    assert burst([7, None, 9]).acked() == [(1, 10, 10, -1), (1, 12, 12, -1)]
    assert burst([9, 8, 7], ordered=False).acked() == [(1, 10, 12, -1)]
    waiting = Burst(0, 1, 10, 2, "abcd1234", ordered=True)
    assert waiting.acked() == []


def test_a_record_delivered_without_an_offset_counts_as_delivered() -> None:
    one = Burst(0, 1, 10, 5, "abcd1234", ordered=True)
    for offset in (None, -1001, 0, 1, None):  # no offset: the ack of a later batch implied the delivery
        one.delivered(None, Delivered(offset))  # type: ignore[arg-type]
    assert one.acked() == [(1, 10, 11, -1), (1, 12, 13, 0), (1, 14, 14, -1)]


def test_runs_are_dense_in_offset_and_sequence() -> None:
    def record(offset: int, seq: int, producer: int = 1) -> Given:
        return Given(0, offset, b"", Identity("abcd1234", producer, 0, seq), "t")

    stranger = Given(0, 14, b"", None, "t")
    got = [record(10, 5), record(11, 6), record(13, 7), stranger, record(15, 0, producer=2)]
    assert runs(got) == [("t", 0, 10, 1, 0, 5, 2), ("t", 0, 13, 1, 0, 7, 1), ("t", 0, 15, 2, 0, 0, 1)]
    assert identify(encode(Identity("abcd1234", 1, 0, 5)), "other123") is None


def test_progress_is_written_and_read(tmp_path: Path) -> None:
    client = ClientProcess(SPECS[0], tmp_path)
    assert client.progress() == ClientProgress()
    progress = ClientProgress(kind="idempotent", client="c-1", state="running")
    with ProgressFile(tmp_path / "progress.json", progress):
        progress.acknowledged = 5
    assert (client.progress().acknowledged, client.progress().state) == (5, "running")
    assert load_progress(tmp_path / "progress.json").wall > 0


def test_a_request_to_stop_a_client_that_has_finished_does_not_change_its_exit_code(tmp_path: Path) -> None:
    refused = {"history": str(tmp_path / "h.jsonl"), "settings": {"fetch.min.bytes": "-5"}}
    ReaderSpec(**(COMMON | refused), topics=["t"]).save(tmp_path / "spec.json")
    command = [sys.executable, "-c", ENDS_SLOWLY, str(tmp_path / "spec.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
        assert client.stdout is not None
        assert client.stdout.read(6) == b"ending"
        client.terminate()
        assert client.wait(30) == 1


def test_a_client_that_gives_up_reports_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.clients import __main__ as program
    from harness.clients.client import CannotGoOnError

    spec = ReaderSpec(**(COMMON | {"history": str(tmp_path / "h.jsonl")}), topics=["t"])
    spec.save(tmp_path / "spec.json")

    class Dies:
        def run(self) -> None:
            raise CannotGoOnError("a successor has it", KafkaError(KafkaError._FENCED, "away"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "client_of", lambda *_: Dies())
        patch.setattr(signal, "signal", lambda *_: None)
        assert program.main(str(tmp_path / "spec.json")) == 1

    assert "a successor has it" in capsys.readouterr().err
    lines = [line for _, line in HistoryFile(tmp_path / "h.jsonl").read()]
    info = next(line for line in lines if isinstance(line, Info))
    assert info.f == "give_up"
    assert info.error is not None
    assert (info.error.name, info.error.message) == ("_FENCED", "a successor has it: away")
    assert load_progress(tmp_path / "progress.json").state == "gave up"
