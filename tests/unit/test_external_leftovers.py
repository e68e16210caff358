"""Checks of an external cluster before a run: leftovers of earlier runs, foreign resources, broker ids."""

from __future__ import annotations

import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.base import processes
from harness.base.errors import HarnessError, RefusedError, UsageError
from harness.base.processes import FoundProcess
from harness.cluster.layout import BROKER_IDS, node_name
from harness.cluster.state_directory import State
from harness.kafka.errors import KafkaAnswerError
from harness.run import make_run
from harness.run.external import dry_run_report, preflight
from harness.run.external import external_session as running
from harness.run.external.preflight import Moved, check_left_over, foreign_moves
from tests.unit.external_stand_in import FILE, GROUP, TOPIC, Observed, planned

KILL = '[[fault]]\nfault = "kill"\ntarget = "kafka-7"\nat = "1s"\n'


@pytest.fixture
def theirs(tmp_path: Path) -> Observed:
    """Return an external cluster of two brokers, 0 and 7."""
    return Observed(tmp_path)


def test_a_run_killed_between_faults_blocks_the_next_one(
    theirs: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_left_over(theirs)
    theirs.made.note_topic(TOPIC)
    check_left_over(theirs)  # no error: the run was killed before the topic existed
    theirs.fake_brokers.topics = [TOPIC]
    theirs.made.note_groups([GROUP])
    with pytest.raises(RefusedError, match="2 topics and groups were not deleted") as found:
        check_left_over(theirs)
    assert TOPIC in found.value.message
    assert "eos heal --cluster" in found.value.hint
    theirs.made.keep()
    monkeypatch.setattr(processes, "find", lambda mark: [FoundProcess(1, f"{mark}x")] * 2)
    with pytest.raises(RefusedError, match="2 client processes still run"):
        check_left_over(theirs)


def test_a_group_is_deleted_once_it_is_empty(theirs: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.base.waits.time.sleep", lambda _: None)
    theirs.made.note_groups([GROUP, "eos-chaos-other.ab12cd34"])
    theirs.fake_brokers.group_codes = [68, 14, 0, 69]
    assert theirs.made.delete_groups() == [GROUP, "eos-chaos-other.ab12cd34"]
    assert theirs.fake_brokers.deleted == [GROUP, "eos-chaos-other.ab12cd34"]
    assert theirs.made.groups() == []


def test_a_group_that_cannot_be_deleted_is_reported_and_stays_recorded(theirs: Observed) -> None:
    theirs.made.note_groups([GROUP])
    theirs.fake_brokers.group_codes = [30]
    with pytest.raises(HarnessError, match="GROUP_AUTHORIZATION_FAILED"):
        theirs.made.delete_groups()
    assert theirs.made.groups() == [GROUP]


def test_heal_deletes_topics_and_groups(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "load_cluster_file", lambda *_: FILE)
    monkeypatch.setattr(running, "attach", lambda _file, _state: theirs)
    monkeypatch.setattr(running, "beware", lambda: None)
    monkeypatch.setattr(running, "heal", lambda *_: 1)
    theirs.made.note_topic(TOPIC)
    theirs.fake_brokers.topics = [TOPIC]
    theirs.made.note_groups([GROUP])
    theirs.fake_brokers.group_codes = [0]
    messages: list[str] = []
    assert running.heal_external(tmp_path / "live.toml", theirs.state, messages.append) == 3
    assert messages == [f"deleted topic {TOPIC}", f"deleted group {GROUP}"]
    assert running.heal_external(tmp_path / "live.toml", theirs.state, messages.append) == 1


@pytest.mark.parametrize(
    "error", [TimeoutError("timed out"), EOFError("closed"), KafkaAnswerError("groups", 14)]
)
def test_brokers_that_do_not_answer_the_preflight_refuse_the_run(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def silent(*_: object) -> None:
        raise error

    monkeypatch.setattr(theirs.fake_brokers, "call", silent)
    with pytest.raises(RefusedError, match="determine what its node faults would move") as found:
        foreign_moves(theirs, planned(tmp_path, KILL)[1])
    assert found.value.hint == "try again when the brokers answer"


def test_broker_id_0_is_a_valid_role_holder(theirs: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cluster.cluster.ROLE_LIMIT_S", 0)
    assert theirs.leader_of(TOPIC, 0) == theirs.group_coordinator(GROUP) == theirs.txn_coordinator("x") == 0
    theirs.fake_brokers.holder = -1
    with pytest.raises(HarnessError, match="a leader of"):
        theirs.leader_of(TOPIC, 0)


def test_a_dry_run_lists_every_name_and_a_run_only_a_few(theirs: Observed, tmp_path: Path) -> None:
    names = [f"payments-{i}" for i in range(5)]
    moved = Moved("kafka-7", names, 5, names, names)
    assert all("payments-2 and 2 more" in line for line in moved.lines() if "replicas" not in line)
    listed = "\n".join(dry_run_report.format_dry_run(theirs, *planned(tmp_path, KILL), [moved]))
    assert listed.count("payments-4)") == 3


def test_an_unknown_broker_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    ours = SimpleNamespace(owned=False, broker_ids=BROKER_IDS, name_of=node_name)
    with pytest.raises(UsageError, match="there is no node 'kafka-7'") as found:
        make_run(cast(Any, ours), *planned(tmp_path, KILL), tmp_path / "runs")
    assert found.value.hint == "the brokers are kafka-1, kafka-2, kafka-3"
    assert not (tmp_path / "runs").exists()


def refused_by_dry_run(theirs: Observed, folder: Path) -> tuple[list[str], list[str]]:
    return preflight.refusals_of_dry_run(theirs, *planned(folder), [], preflight.Consent())


def test_a_dry_run_refuses_what_an_earlier_run_left(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "refusals", lambda *_: ["the rest"])
    monkeypatch.setattr(theirs, "passed_by", lambda *, upstream: ["broker 0"] if upstream else [])
    passed_by = "clients would be redirected past the proxies: broker 0"
    assert refused_by_dry_run(theirs, tmp_path) == (["the rest", passed_by], [])
    theirs.made.note_groups([GROUP])
    (left, *rest), _ = refused_by_dry_run(theirs, tmp_path)
    assert "1 topics and groups were not deleted" in left
    assert "eos heal --cluster" in left
    assert rest == ["the rest", passed_by]
    with State(theirs.state.path).locked("run first"):
        (busy, *rest), _ = refused_by_dry_run(theirs, tmp_path)
    assert "`eos run first`" in busy
    assert rest == ["the rest", passed_by]


def test_a_dry_run_reports_a_certificate_that_only_the_proxies_match_as_not_checked(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(cause: Exception) -> Any:
        def passed_by(*, upstream: bool) -> list[str]:
            assert upstream
            raise ConnectionError("through broker:9094: no") from cause

        return passed_by

    monkeypatch.setattr(preflight, "refusals", lambda *_: [])
    monkeypatch.setattr(theirs, "passed_by", silent(ssl.SSLCertVerificationError("other host")))
    refused, unchecked = refused_by_dry_run(theirs, tmp_path)
    assert (refused, len(unchecked)) == ([], 1)
    monkeypatch.setattr(theirs, "passed_by", silent(TimeoutError("timed out")))
    refused, unchecked = refused_by_dry_run(theirs, tmp_path)
    assert (len(refused), unchecked) == (1, [])
