"""Runs on an external cluster: only one at a time, and each deletes only what it created."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.base.closing import Closing
from harness.base.errors import ExitCode, HarnessError, RefusedError
from harness.base.events import EventHandler, PhaseEvent, ProgressEvent
from harness.cluster.external.external_cluster import describe_level
from harness.cluster.state_directory import State
from harness.kafka.errors import KafkaAnswerError
from harness.run.external import external_session as running
from harness.run.external.external_session import Session, execute
from harness.run.external.preflight import Consent
from harness.scenario import Scenario
from tests.unit.external_stand_in import FILE, GROUP, ID, TOPIC, Observed, planned


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Observed:
    """Return an external cluster of two brokers, 0 and 7, to which every run in the test attaches."""
    found = Observed(tmp_path)
    monkeypatch.setattr(running, "attach", lambda _file, _state: found)
    monkeypatch.setattr(running, "beware", lambda: None)
    return found


def do(theirs: Observed, folder: Path, *, keep: bool = False) -> Any:
    session = Session(FILE, theirs.state, Consent(ID), keep)
    return execute(session, *planned(folder), folder / "runs", listeners=list, report=lambda _: None)


def ready(monkeypatch: pytest.MonkeyPatch, folder: Path, ended: Any) -> None:
    """Let every run pass the checks, and call `ended` instead of executing the run."""
    made = SimpleNamespace(scenario=planned(folder)[0])
    monkeypatch.setattr(running, "_check", lambda *_: None)
    monkeypatch.setattr(running, "make_run", lambda *_, **__: made)
    monkeypatch.setattr(running, "_guarded", ended)


def test_a_second_run_is_refused_before_it_can_disturb_the_first(theirs: Observed, tmp_path: Path) -> None:
    theirs.made.note_topic(TOPIC)
    theirs.fake_brokers.topics = [TOPIC]
    first = State(theirs.state.path)
    with first.locked("run first"), pytest.raises(RefusedError, match="`eos run first`"):
        do(theirs, tmp_path)
    assert theirs.proxied == []
    assert theirs.fake_brokers.deleted == []
    assert theirs.made.topics() == [TOPIC]


def test_the_lock_is_held_until_cleanup_and_admits_the_run_itself(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another() -> None:
        with pytest.raises(RefusedError, match="`eos run one`"), State(theirs.state.path).locked("heal"):
            pytest.fail("two hold the cluster")

    def ended(*_: object) -> str:
        with theirs.locked("run one"):  # the run itself may take its lock again
            another()
        another()
        return "its outcome"

    monkeypatch.setattr(theirs, "end_proxies", another)
    ready(monkeypatch, tmp_path, ended)
    assert do(theirs, tmp_path) == "its outcome"
    with State(theirs.state.path).locked("heal"):
        pass


def test_resources_kept_by_one_run_are_not_deleted_by_another(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str) -> Any:
        def ended(*_: object) -> str:
            theirs.made.note_topic(name)
            theirs.fake_brokers.topics.append(name)
            return name

        return ended

    ready(monkeypatch, tmp_path, made(TOPIC))
    do(theirs, tmp_path, keep=True)
    ready(monkeypatch, tmp_path, made("eos-chaos-orders.ffffffff"))
    do(theirs, tmp_path)
    assert theirs.fake_brokers.topics == [TOPIC]


def test_a_toxiproxy_interrupted_during_its_start_is_ended(
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
def test_only_a_missing_right_or_a_policy_counts_as_refusal(
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
    """Stub of a run that sends two events and ends."""

    def __init__(self, folder: Path, scenario: Scenario, *, interrupted: bool) -> None:
        self.scenario = scenario
        self.stop = print
        self._folder = folder
        self._interrupted = interrupted
        self._handlers: list[EventHandler] = []

    def add_handler(self, handler: EventHandler) -> None:
        self._handlers.append(handler)

    def execute(self) -> Any:
        for handler in self._handlers:
            handler.start(self._folder)
            handler.handle(PhaseEvent(name="steady"))
            handler.handle(
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
            handler.shutdown()
        return SimpleNamespace(interrupted=self._interrupted)


@pytest.mark.parametrize("interrupted", [True, False])
def test_the_guard_ends_before_log_capture_and_its_failure_keeps_the_outcome(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    done: list[str] = []

    class Watcher(Closing):
        stopped_because = "the deadline has passed"

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
    messages: list[str] = []
    assert running._guarded(theirs, ran, messages.append).interrupted is interrupted
    assert done == ["begun", "closed", "collected"]
    # The guard's message is expected only if the guard interrupted the run. A deadline that passes after the
    # verdict no longer interrupts the run.
    assert "could not write the captured broker logs: No space left" in messages[0]
    assert messages[1:] == (["stopped by the guard: the deadline has passed"] if interrupted else [])
    noted = [json.loads(line) for line in (theirs.state.path / "audit.jsonl").read_text().splitlines()]
    assert [line["event"] for line in noted] == ["phase"]


def test_secrets_are_redacted_from_the_moment_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(running, "beware", lambda: done.append("wary"))
    monkeypatch.setattr(running, "load_cluster_file", lambda *_: done.append("read") or FILE)
    running.open_session(tmp_path / "live.toml", State(tmp_path), Consent())
    assert done == ["wary", "read"]


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (30, "metadata.version 30, of Kafka 4.3"),
        (27, "metadata.version 27, of Kafka 4.1"),
        (25, "metadata.version 25, of Kafka 4.0"),
        (21, "metadata.version 21, of Kafka 3.9"),
        (20, "metadata.version 20"),
        (31, "metadata.version 31"),
        (0, "metadata.version unknown"),
    ],
)
def test_the_feature_level_of_a_cluster_is_printed_with_its_release(level: int, text: str) -> None:
    assert describe_level(level) == text


def test_a_dry_run_refuses_an_application_as_a_run_does(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Any:
        raise RefusedError("a scenario with [app] cannot run", "leave out --cluster")

    monkeypatch.setattr(running, "refusals_of_dry_run", lambda *_: ([], ["the proxies"]))
    session = Session(FILE, theirs.state, Consent(""))
    lines, reasons = running.dry_run(session, *planned(tmp_path))
    assert reasons == []
    assert lines[-1] == "not checked: the proxies"
    monkeypatch.setattr(running, "make_run", refused)
    assert running.dry_run(session, *planned(tmp_path))[1] == ["a scenario with [app] cannot run"]


def test_a_run_with_keep_reports_what_it_leaves(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> str:
        theirs.made.note_topic(TOPIC)
        theirs.fake_brokers.topics.append(TOPIC)
        theirs.made.note_groups([GROUP])
        return "ended"

    ready(monkeypatch, tmp_path, ended)
    lines: list[str] = []
    session = Session(FILE, theirs.state, Consent(ID), keep=True)
    execute(session, *planned(tmp_path), tmp_path / "runs", listeners=list, report=lines.append)
    assert any(line.startswith(f"kept {TOPIC}, {GROUP}: ") for line in lines)
    assert theirs.made.groups() == []
