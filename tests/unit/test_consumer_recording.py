"""What readers and members of a group record, with a scripted consumer in place of the client library's.

The scripts only exercise the code that records; they are no claim about the behaviour of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from harness.clients import group_consumer, reader
from harness.clients.client import CannotGoOnError, Deadline, PositionLog
from harness.clients.client_spec import PipelineSpec, ReaderSpec
from harness.clients.group_consumer import GroupConsumer
from harness.clients.progress import ClientProgress
from harness.clients.reader import ReaderClient
from harness.evidence.history import HistoryFile, HistoryWriter, Info, Invoke, Ok
from harness.evidence.record import Identity, encode

RUN = "abcd1234"
COMMON: dict[str, Any] = {
    "run": RUN,
    "client": "c-1",
    "number": 3,
    "bootstrap": "b:1",
    "history": "h.jsonl",
    "seconds": 60.0,
}
GROUP: dict[str, Any] = {"group": "g"}


class Message:
    """Stub of a polled message: a record of producer 1, or an end of the partition."""

    def __init__(self, partition: int, offset: int, *, end: bool = False) -> None:
        self._partition, self._offset, self._end = partition, offset, end

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return encode(Identity(RUN, 1, self._partition, self._offset))

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._end else None


Step = Callable[["ScriptedConsumer"], list[Message]]


class ScriptedConsumer:
    """Stub of a consumer: each call of `consume` runs the next step of its script."""

    script: list[Step]
    ends: dict[int, int]
    last: ScriptedConsumer

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.calls: list[tuple[Any, ...]] = []
        self.places: list[int] = []
        self.fail: set[str] = set()
        ScriptedConsumer.last = self

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:  # noqa: ARG002
        self.callbacks = callbacks

    def list_topics(self, timeout: float) -> Any:  # noqa: ARG002
        topic = SimpleNamespace(error=None, partitions=dict.fromkeys(self.ends))
        return SimpleNamespace(topics={"t": topic})

    def assign(self, places: list[TopicPartition]) -> None:
        self.calls.append(("assign", *[(tp.partition, tp.offset) for tp in places]))

    def consume(self, most: int, timeout: float) -> list[Message]:  # noqa: ARG002
        return self.script.pop(0)(self) if self.script else []

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:  # noqa: ARG002
        return 0, self.ends[place.partition]

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.calls.append(("store", *[(tp.partition, tp.offset) for tp in offsets]))

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", partition) for partition in self.places]

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:  # noqa: ARG002
        return [TopicPartition("t", tp.partition, self.ends[tp.partition]) for tp in places]

    def seek(self, place: TopicPartition) -> None:
        if "seek" in self.fail:
            self.fail.clear()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self.calls.append(("seek", place.partition, place.offset))

    def consumer_group_metadata(self) -> object:
        return "metadata"

    def rebalance(self, what: str, *partitions: int) -> None:
        self.callbacks[what](cast(Consumer, self), [TopicPartition("t", p) for p in partitions])

    def close(self) -> None:
        self.calls.append(("close",))


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reader, group_consumer):
        monkeypatch.setattr(module, "Consumer", ScriptedConsumer)
    monkeypatch.setattr(ScriptedConsumer, "script", [], raising=False)
    monkeypatch.setattr(ScriptedConsumer, "ends", {0: 3}, raising=False)


def records(*offsets: int, partition: int = 0) -> Step:
    return lambda _: [Message(partition, offset) for offset in offsets]


def eof(offset: int, partition: int = 0) -> Step:
    return lambda _: [Message(partition, offset, end=True)]


def read(tmp_path: Path, *steps: Step, stop_at: int, **spec: Any) -> list[str]:
    """Run a reader that is asked to stop in the poll with this number; return its operations as text."""
    stop = Deadline(60)

    def ask(step: Step) -> Step:
        def stopping(consumer: ScriptedConsumer) -> list[Message]:
            stop.request_stop()
            return step(consumer)

        return stopping

    ScriptedConsumer.script = [ask(step) if at == stop_at else step for at, step in enumerate(steps)]
    path = tmp_path / "c-1.jsonl"
    with HistoryWriter(path, run=RUN, client="c-1", role="reader") as history:
        ReaderClient(ReaderSpec(**COMMON, topics=["t"], **spec), history, ClientProgress(), stop).run()
    return operations(path)


def operations(path: Path) -> list[str]:
    lines = [line for _, line in HistoryFile(path).read()]
    texts = []
    for line in lines:
        if isinstance(line, Invoke):
            positions = " ".join(f"{partition}@{offset}" for _, partition, offset in line.offsets)
            texts.append(f"{line.f}? {positions}".strip())
        elif isinstance(line, Ok | Info):
            offsets = " ".join(f"{row[1]}@{row[2]}+{row[6]}" for row in line.read)
            texts.append(f"{line.f} {'ok' if isinstance(line, Ok) else 'info'} {offsets}".strip())
    return texts


def test_an_assigned_reader_records_its_start_and_that_it_read_to_the_end(tmp_path: Path) -> None:
    done = read(tmp_path, records(0, 1), records(2), stop_at=0)

    assert done == [
        "assign? 0@0",
        "assign ok",
        "poll?",
        "poll ok 0@0+2",
        "poll?",
        "poll ok 0@2+1",
        "caught_up? 0@3",
        "caught_up ok",
    ]
    assert ScriptedConsumer.last.calls == [("assign", (0, 0)), ("close",)]


def test_an_end_of_a_partition_counts_as_read_to_its_offset(tmp_path: Path) -> None:
    done = read(tmp_path, records(0, 1), eof(3), stop_at=0)

    assert done[-2:] == ["caught_up? 0@3", "caught_up ok"]


def test_a_reader_that_does_not_reach_the_end_in_time_claims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CATCH_UP_LIMIT_S", 0.05)

    done = read(tmp_path, records(0), eof(2), stop_at=0)

    assert not [line for line in done if line.startswith("caught_up")]


def test_a_reader_claims_only_the_partitions_that_it_read_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CATCH_UP_LIMIT_S", 0.05)
    monkeypatch.setattr(ScriptedConsumer, "ends", {0: 3, 1: 7})

    done = read(tmp_path, records(0, 1, 2), records(0, 1, partition=1), stop_at=1)

    assert done[-2:] == ["caught_up? 0@3", "caught_up ok"]


def test_a_member_records_its_rebalances_inside_the_poll_that_reported_them(tmp_path: Path) -> None:
    def assigned(consumer: ScriptedConsumer) -> list[Message]:
        consumer.rebalance("on_assign", 0, 1)
        return [Message(0, 0), Message(0, 1), Message(1, 0)]

    def revoked(consumer: ScriptedConsumer) -> list[Message]:
        consumer.rebalance("on_revoke", 1)
        return [Message(0, 2), Message(1, 1)]

    done = read(tmp_path, assigned, revoked, stop_at=1, **GROUP)

    assert done == [
        "poll?",
        "assign? 0@-1 1@-1",
        "assign ok",
        "poll ok 0@0+2 1@0+1",
        "poll?",
        "revoke? 1@-1",
        "revoke ok",
        "poll ok 0@2+1 1@1+1",
        "caught_up? 0@3",
        "caught_up ok",
    ]


def test_a_member_stores_only_recorded_positions_of_partitions_that_it_has(tmp_path: Path) -> None:
    recorded: list[int] = []

    def assigned(consumer: ScriptedConsumer) -> list[Message]:
        consumer.rebalance("on_assign", 0, 1)
        consumer.store_offsets = lambda offsets: (  # type: ignore[method-assign]
            recorded.append((tmp_path / "c-1.jsonl").read_text().count('"ok"')),
            consumer.calls.append(("store", *[(tp.partition, tp.offset) for tp in offsets])),
        )
        return [Message(0, 0), Message(1, 0)]

    def lost(consumer: ScriptedConsumer) -> list[Message]:
        consumer.rebalance("on_lost", 1)
        return [Message(0, 1), Message(0, 2), Message(1, 1)]

    read(tmp_path, assigned, lost, stop_at=1, **GROUP)

    assert ScriptedConsumer.last.calls == [("store", (0, 1), (1, 1)), ("store", (0, 3)), ("close",)]
    assert recorded == [2, 4]  # the results of the rebalance and of the poll are in the history before
    assert ScriptedConsumer.last.config["enable.auto.offset.store"] is False


def test_a_worker_records_the_positions_to_which_it_returns(tmp_path: Path) -> None:
    path = tmp_path / "c-1.jsonl"
    spec = PipelineSpec(**COMMON, source="t", sink="s", partitions=1, transactional_id="x", **GROUP)

    def assigned(consumer: ScriptedConsumer) -> list[Message]:
        consumer.places = [0]
        consumer.rebalance("on_assign", 0)
        return [Message(0, 3), Message(0, 4)]

    ScriptedConsumer.script = [assigned]
    with HistoryWriter(path, run=RUN, client="c-1", role="pipeline") as history:
        source = GroupConsumer(spec, history, ClientProgress(), Deadline(60))
        source.open()
        assert len(source.take(10, 0.1)) == 2
        ScriptedConsumer.last.fail = {"seek"}
        source.rewind()
        source.close()

    assert operations(path) == [
        "poll?",
        "assign? 0@-1",
        "assign ok",
        "poll ok 0@3+2",
        "seek? 0@3",
        "seek info",
        "poll?",
        "poll ok",
        "seek? 0@3",
        "seek ok",
    ]
    assert ("seek", 0, 3) in ScriptedConsumer.last.calls


def test_a_rewind_without_partitions_records_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c-1.jsonl"
    spec = PipelineSpec(**COMMON, source="t", sink="s", partitions=1, transactional_id="x", **GROUP)
    with HistoryWriter(path, run=RUN, client="c-1", role="pipeline") as history:
        source = GroupConsumer(spec, history, ClientProgress(), Deadline(60))
        source.open()
        source.rewind()
        PositionLog(history, None).revoked([])

    assert operations(path) == []


def test_a_poll_of_a_reader_that_failed_is_unclear_and_ends_the_reader(tmp_path: Path) -> None:
    def fail(_: ScriptedConsumer) -> list[Message]:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    with pytest.raises(CannotGoOnError, match="polling failed"):
        read(tmp_path, records(0, 1), fail, stop_at=9)

    assert operations(tmp_path / "c-1.jsonl")[-2:] == ["poll?", "poll info"]
