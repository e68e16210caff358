"""A run on a live cluster from lock to clearing: one at a time, and nothing but its own is deleted."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.base.closing import Closing
from harness.base.errors import ExitCode, HarnessError, RefusedError
from harness.base.events import PhaseEvent, ProgressEvent
from harness.cluster.state_directory import State
from harness.kafka.connection import KafkaAnswerError
from harness.run.external import external_session as running
from harness.run.external.external_session import Session, execute
from harness.run.external.preflight import Consent
from harness.scenario import Scenario
from tests.unit.external_stand_in import FILE, ID, TOPIC, Observed, planned


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Observed:
    """A live cluster of two brokers, 0 and 7, that whoever attaches gets."""
    found = Observed(tmp_path)
    monkeypatch.setattr(running, "attach", lambda _file, _state: found)
    monkeypatch.setattr(running, "beware", lambda: None)
    return found


def do(theirs: Observed, folder: Path, *, keep: bool = False) -> Any:
    session = Session(FILE, theirs.state, Consent(ID), keep)
    return execute(session, *planned(folder), folder / "runs", listeners=list, report=lambda _: None)


def ready(monkeypatch: pytest.MonkeyPatch, folder: Path, ended: Any) -> None:
    """Let every run be accepted, and do what the test says."""
    made = SimpleNamespace(scenario=planned(folder)[0], again="", directory=SimpleNamespace(path=folder))
    monkeypatch.setattr(running, "_check", lambda *_: None)
    monkeypatch.setattr(running, "make_run", lambda *_: made)
    monkeypatch.setattr(running, "_guarded", ended)


def test_a_second_run_is_refused_before_it_could_end_anything_of_the_first(
    theirs: Observed, tmp_path: Path
) -> None:
    theirs.made.note_topic(TOPIC)
    theirs.brokers_say.topics = [TOPIC]
    first = State(theirs.state.path)
    with first.locked("run first"), pytest.raises(RefusedError, match="`eos run first`"):
        do(theirs, tmp_path)
    assert theirs.proxied == []
    assert theirs.brokers_say.deleted == []
    assert theirs.made.topics() == [TOPIC]


def test_the_lock_is_held_until_all_is_deleted_and_does_not_refuse_the_run_itself(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another() -> None:
        with pytest.raises(RefusedError, match="`eos run one`"), State(theirs.state.path).locked("heal"):
            pytest.fail("two hold the cluster")

    def ended(*_: object) -> str:
        with theirs.locked("run one"):  # as the run does
            another()
        another()
        return "its outcome"

    monkeypatch.setattr(theirs, "end_proxies", another)
    ready(monkeypatch, tmp_path, ended)
    assert do(theirs, tmp_path) == "its outcome"
    with State(theirs.state.path).locked("heal"):
        pass


def test_what_one_run_kept_no_other_deletes(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str) -> Any:
        def ended(*_: object) -> str:
            theirs.made.note_topic(name)
            theirs.brokers_say.topics.append(name)
            return name

        return ended

    ready(monkeypatch, tmp_path, made(TOPIC))
    do(theirs, tmp_path, keep=True)
    ready(monkeypatch, tmp_path, made("eos-chaos-orders.ffffffff"))
    do(theirs, tmp_path)
    assert theirs.brokers_say.topics == [TOPIC]


def test_a_toxiproxy_that_is_interrupted_while_it_starts_is_ended(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(theirs, "start_proxies", interrupted)
    with pytest.raises(KeyboardInterrupt):
        do(theirs, tmp_path)
    assert theirs.proxied == ["end"]


@pytest.mark.parametrize(
    ("code", "exit_code"), [(29, ExitCode.REFUSED), (44, ExitCode.REFUSED), (7, 2), (38, 2)]
)
def test_only_a_missing_right_and_a_policy_are_a_refusal(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, exit_code: int
) -> None:
    def ended(*_: object) -> None:
        raise KafkaAnswerError("creation of topic eos-chaos-orders", code)

    ready(monkeypatch, tmp_path, ended)
    with pytest.raises(HarnessError, match="creation of topic") as found:
        do(theirs, tmp_path)
    assert found.value.exit_code == exit_code
    assert ("rights" in found.value.hint) == (exit_code is ExitCode.REFUSED)


class Ran:
    """A run that tells two events and is over."""

    def __init__(self, folder: Path, scenario: Scenario, *, interrupted: bool) -> None:
        self.directory = SimpleNamespace(path=folder)
        self.scenario = scenario
        self.stop = print
        self._interrupted = interrupted
        self._listeners: list[Any] = []

    def listen(self, listener: Any) -> None:
        self._listeners.append(listener)

    def execute(self) -> Any:
        for listener in self._listeners:
            listener(PhaseEvent(name="steady"))
            listener(
                ProgressEvent(
                    phase="steady",
                    acknowledged=1,
                    rate=1,
                    committed=0,
                    aborted=0,
                    unknown=0,
                    in_flight=0,
                    active=[],
                    lso_lag=None,
                )
            )
        return SimpleNamespace(interrupted=self._interrupted)


@pytest.mark.parametrize("interrupted", [True, False])
def test_nobody_watches_while_logs_are_collected_and_what_fails_there_loses_no_outcome(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    done: list[str] = []

    class Watcher(Closing):
        stopped_because = "the deadline is over"

        def close(self) -> None:
            done.append("closed")

    class Logs:
        def __init__(self, *_: object) -> None:
            self.begin = lambda: done.append("begun")

        def collect(self, _: Path) -> None:
            done.append("collected")
            raise OSError("No space left")

    monkeypatch.setattr(running, "Guard", lambda *_: Watcher())
    monkeypatch.setattr(running, "LogEvidence", Logs)
    ran = cast(Any, Ran(tmp_path, planned(tmp_path)[0], interrupted=interrupted))
    told: list[str] = []
    assert running._guarded(theirs, ran, told.append).interrupted is interrupted
    assert done == ["begun", "closed", "collected"]
    # A deadline that was over when all was judged has stopped nothing.
    assert told[:-1] == (["refused to go on: the deadline is over"] if interrupted else [])
    assert "could not be written: No space left" in told[-1]
    noted = [json.loads(line) for line in (theirs.state.path / "audit.jsonl").read_text().splitlines()]
    assert [line["event"] for line in noted] == ["phase"]


def test_from_the_file_on_what_looks_like_a_secret_is_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(running, "beware", lambda: done.append("wary"))
    monkeypatch.setattr(running, "load_cluster_file", lambda *_: done.append("read") or FILE)
    running.open_session(tmp_path / "live.toml", State(tmp_path), Consent())
    assert done == ["wary", "read"]
