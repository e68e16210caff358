"""A pipeline worker against a scripted client library: positions, revocations, and going back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from harness.clients import group_consumer, producer_lifecycle
from harness.clients.client import Deadline
from harness.clients.client_spec import PipelineSpec
from harness.clients.pipeline import PipelineClient
from harness.clients.progress import ClientProgress
from harness.evidence.history import Completion, HistoryFile, HistoryWriter, Invoke
from harness.evidence.record import Identity, decode, encode
from tests.unit.scripted_library import (
    ABORTABLE,
    TIMED_OUT,
    Message,
    Script,
    ScriptedConsumer,
    ScriptedProducer,
    Step,
)

RUN = "abcd1234"
SPEC = PipelineSpec(
    run=RUN,
    client="w-1",
    number=9,
    bootstrap="b:1",
    history="h.jsonl",
    seconds=1.0,
    source="in",
    group="g",
    sink="out",
    partitions=1,
    transactional_id="x",
    records=(3, 3),
    abort_share=0.0,
    linger=0.01,
)


def inputs(first: int, count: int) -> list[Message]:
    """Return input records of producer 1 with consecutive sequences; the offsets begin at 100."""
    return [
        Message(encode(Identity(RUN, 1, 0, seq)), 100 + seq, topic="in")
        for seq in range(first, first + count)
    ]


class Case:
    """A pipeline worker on a scripted library, with its history."""

    def __init__(self, folder: Path, script: Script, **fields: Any) -> None:
        self.script = script
        self.path = folder / "w-1.jsonl"
        history = HistoryWriter(self.path, run=RUN, client="w-1", role="pipeline")
        spec = PipelineSpec(**({name: getattr(SPEC, name) for name in SPEC.__struct_fields__} | fields))
        self.worker = PipelineClient(spec, history, ClientProgress(), Deadline(60))
        self.worker._outputs.settle()
        self.worker._source.open()

    def batch(self) -> None:
        """Let the worker process one batch of its input."""
        self.worker._batch()

    def answered(self, f: str) -> list[Completion]:
        lines = [line for _, line in HistoryFile(self.path).read()]
        return [line for line in lines if isinstance(line, Completion) and line.f == f]

    def asked(self, f: str) -> list[Invoke]:
        lines = [line for _, line in HistoryFile(self.path).read()]
        return [line for line in lines if isinstance(line, Invoke) and line.f == f]

    def origins(self) -> list[int]:
        """Return the input sequence of each output that was delivered."""
        identities = [decode(value) for value in self.script.logs[0] if value is not None]
        return [identity.origin.seq for identity in identities if identity.origin is not None]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Case]:
    """Provide a factory of cases; its keyword arguments are the steps of the script."""

    def case(spec: dict[str, Any] | None = None, **steps: list[Step | None]) -> Case:
        script = Script(**steps)
        monkeypatch.setattr(producer_lifecycle, "Producer", lambda config: ScriptedProducer(config, script))
        monkeypatch.setattr(group_consumer, "Consumer", lambda config: ScriptedConsumer(config, script))
        return Case(tmp_path, script, **(spec or {}))

    return case


def test_a_worker_commits_the_position_after_its_last_input(make: Callable[..., Case]) -> None:
    case = make()
    case.script.inputs = [inputs(0, 3)]
    case.batch()

    assert case.origins() == [0, 1, 2]
    assert [(p.topic, p.partition, p.offset) for p in case.script.positions] == [("in", 0, 103)]
    assert case.asked("send_offsets")[0].offsets == [("in", 0, 103)]
    assert case.script.calls[-2:] == ["flush", "commit"]


def test_records_of_a_revoked_partition_are_not_processed(make: Callable[..., Case]) -> None:
    case = make(consume=[lambda: "revoked"])
    case.script.inputs = [inputs(0, 3)]
    case.batch()

    assert case.origins() == []
    assert not {"begin", "produce"} & set(case.script.calls)
    assert "commit" not in case.script.calls
    assert "seek" in case.script.calls


def test_a_revocation_within_a_transaction_aborts_it(make: Callable[..., Case]) -> None:
    case = make(consume=[None, lambda: "revoked"])
    case.script.inputs = [inputs(0, 2), inputs(2, 1)]
    case.batch()

    assert case.asked("abort")
    assert not case.asked("commit")
    assert case.script.calls[-1] == "seek"


@pytest.mark.parametrize("commit", [ABORTABLE, TIMED_OUT], ids=["aborted", "unclear"])
def test_a_worker_goes_back_after_a_transaction_that_did_not_commit(
    commit: Step, make: Callable[..., Case]
) -> None:
    case = make(commit=[commit])
    case.script.inputs = [inputs(0, 3)]
    case.batch()

    assert case.script.calls[-2:] == ["committed", "seek"]


@pytest.mark.parametrize("call", ["committed", "seek"])
def test_a_worker_that_cannot_go_back_does_not_go_on(call: str, make: Callable[..., Case]) -> None:
    case = make(commit=[ABORTABLE], **{call: [OSError("a callback failed")]})
    case.script.inputs = [inputs(0, 3), inputs(3, 3)]

    with pytest.raises(OSError, match="a callback failed"):
        case.batch()


def test_a_worker_rejoins_its_group_if_the_library_cannot_go_back(make: Callable[..., Case]) -> None:
    case = make(commit=[ABORTABLE], seek=[ABORTABLE])
    case.script.inputs = [inputs(0, 3)]
    case.batch()

    assert case.script.calls[-2:] == ["close", "subscribe"]


@pytest.mark.parametrize("error", [TIMED_OUT, OSError("a callback failed")], ids=["library", "exception"])
def test_positions_outside_a_transaction_are_unclear_after_an_error(
    error: Step, make: Callable[..., Case]
) -> None:
    case = make({"transactional_id": "x", "positions": "apart"}, commit_offsets=[error])
    case.script.inputs = [inputs(0, 3)]
    if isinstance(error, OSError):
        with pytest.raises(OSError, match="a callback failed"):
            case.batch()
    else:
        case.batch()

    [answer] = case.answered("commit_offsets")
    assert type(answer).__name__ == "Info"


def test_a_worker_goes_back_when_the_transaction_is_decided(make: Callable[..., Case]) -> None:
    case = make(commit=[TIMED_OUT])
    case.script.inputs = [inputs(0, 3)]
    case.batch()

    assert case.script.calls[-4:] == ["create", "init", "committed", "seek"]


def test_positions_are_not_committed_apart_from_outputs_of_unknown_fate(make: Callable[..., Case]) -> None:
    case = make({"transactional_id": "x", "positions": "apart"}, commit=[TIMED_OUT])
    case.script.inputs = [inputs(0, 3)]
    case.batch()

    assert not case.asked("commit_offsets")


def test_totals_of_an_aborted_transaction_are_forgotten(make: Callable[..., Case]) -> None:
    forgotten: list[str] = []
    case = make(commit=[None, ABORTABLE])
    totals: Any = SimpleNamespace(
        restore=lambda _: True,
        add=lambda *_: None,
        take_changes=list,
        forget=lambda: forgotten.append("forgotten"),
    )
    case.worker._totals = totals
    case.script.inputs = [inputs(0, 3), inputs(3, 3)]
    case.batch()
    assert forgotten == []

    case.batch()
    assert forgotten == ["forgotten"]


def test_a_transaction_has_only_the_positions_of_its_own_inputs(make: Callable[..., Case]) -> None:
    case = make()
    other = [Message(encode(Identity(RUN, 1, 1, seq)), 50 + seq, "in", 1) for seq in range(3)]
    case.script.inputs = [inputs(0, 3), other]
    case.batch()
    case.batch()

    assert [line.offsets for line in case.asked("send_offsets")] == [[("in", 0, 103)], [("in", 1, 53)]]


def test_every_input_has_all_its_outputs_and_a_foreign_record_none(make: Callable[..., Case]) -> None:
    case = make({"outputs": 2})
    case.script.inputs = [[*inputs(0, 2), Message(b"not ours", 102, topic="in")]]
    case.batch()

    identities = [decode(value) for value in case.script.logs[0] if value is not None]
    assert [(i.origin.seq, i.origin.part) for i in identities if i.origin] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert case.asked("send_offsets")[0].offsets == [("in", 0, 103)]


@pytest.mark.parametrize(("share", "outcome"), [(0.0, "c"), (1.0, "a")])
def test_outputs_carry_the_outcome_that_their_transaction_is_meant_to_have(
    share: float, outcome: str, make: Callable[..., Case]
) -> None:
    case = make({"abort_share": share})
    sent: list[bytes] = []
    send = case.worker._outputs.send
    case.worker._outputs.send = lambda lane, values: sent.extend(values) or send(lane, values)  # type: ignore
    case.script.inputs = [inputs(0, 3)]
    case.batch()

    assert [decode(value)[4:6] for value in sent] == [(1, outcome)] * 3


def test_only_a_revocation_of_partitions_disturbs_and_it_does_so_until_the_worker_goes_back(
    make: Callable[..., Case],
) -> None:
    source = make().worker._source
    disturbed = []
    for partitions in ([], [TopicPartition("in", 0)], []):
        source._revoked(source.consumer, partitions)
        disturbed.append(source.disturbed)

    assert disturbed == [False, True, True]


def test_a_committed_position_with_an_error_is_not_used(make: Callable[..., Case]) -> None:
    case = make(commit=[ABORTABLE])
    place = SimpleNamespace(topic="in", partition=0, offset=5, error=ABORTABLE)
    case.worker._source.consumer.committed = lambda *_, **__: [place]  # type: ignore[method-assign]
    case.script.inputs = [inputs(0, 3)]
    case.batch()

    assert case.script.calls[-2:] == ["close", "subscribe"]
    assert "seek" not in case.script.calls


def test_a_commit_of_positions_with_an_error_is_unclear(make: Callable[..., Case]) -> None:
    case = make({"transactional_id": "x", "positions": "apart"})
    answer = SimpleNamespace(error=TIMED_OUT)
    case.worker._source.consumer.commit = lambda **_: [answer]  # type: ignore[method-assign]
    case.script.inputs = [inputs(0, 3)]
    case.batch()

    [recorded] = case.answered("commit_offsets")
    assert type(recorded).__name__ == "Info"


class Expired(Message):
    """The event that the membership has ended, because a poll came too late."""

    def error(self) -> Any:
        return KafkaError(KafkaError._MAX_POLL_EXCEEDED)


def test_the_records_of_an_expired_membership_are_not_processed(make: Callable[..., Case]) -> None:
    case = make()
    case.script.inputs = [[*inputs(0, 2), Expired(b"", 102, topic="in")]]
    case.batch()

    assert case.origins() == []
    assert case.script.calls[-1] == "seek"


def test_a_poll_that_failed_is_unclear_and_the_worker_goes_back(make: Callable[..., Case]) -> None:
    case = make(consume=[TIMED_OUT])
    case.batch()

    assert [type(answer).__name__ for answer in case.answered("poll")] == ["Info"]
    assert case.script.calls[-1] == "seek"


def test_a_group_without_positions_goes_back_to_the_beginning(make: Callable[..., Case]) -> None:
    case = make(commit=[ABORTABLE])
    case.script.inputs = [inputs(0, 3)]
    case.batch()

    assert case.script.positions[-1].offset == OFFSET_BEGINNING


def test_positions_are_sent_with_the_metadata_of_the_last_records(make: Callable[..., Case]) -> None:
    case = make()
    generations = iter(["first", "second"])
    case.worker._source.consumer.consumer_group_metadata = lambda: next(generations)  # type: ignore
    used: list[object] = []
    send = case.worker._outputs.send_offsets
    case.worker._outputs.send_offsets = lambda *more: used.append(more[2]) or send(*more)  # type: ignore
    case.script.inputs = [inputs(0, 3), inputs(3, 3)]
    case.batch()
    case.batch()

    assert used == ["first", "second"]


def test_a_worker_reads_committed_records_only(make: Callable[..., Case]) -> None:
    consumer: Any = make().worker._source.consumer

    assert consumer.config["isolation.level"] == "read_committed"
