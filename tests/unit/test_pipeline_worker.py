"""A pipeline worker against a scripted client library: positions, revocations, and going back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
