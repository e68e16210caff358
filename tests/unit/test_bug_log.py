"""The record of a planted bug: which of its actions certainly did harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import UsageError
from harness.clients.bug_log import FILE, BugLog, read_counts
from harness.evidence.history import Error, HistoryWriter

LANE = [(0, 0, 9)]
LATE = Error(code=0, name="LATE")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> BugLog:
    followed = BugLog()
    for owner, attribute, value in followed.patches():
        monkeypatch.setattr(owner, attribute, value)
    return followed


@pytest.fixture
def history(tmp_path: Path, log: BugLog) -> HistoryWriter:  # noqa: ARG001 - it must follow this history
    return HistoryWriter(tmp_path / "c.jsonl", run="abcd1234", client="c", role="transactional")


def test_a_firing_in_a_transaction_is_harmful_when_it_commits(log: BugLog, history: HistoryWriter) -> None:
    history.ok(history.invoke("begin"))
    log.fired_in_transaction()
    log.fired_while_sending()
    op = history.invoke("commit", sent=LANE)
    assert log.counts == {"fired": 2}
    history.ok(op)
    assert log.counts == {"fired": 2, "harmful": 2}
    history.ok(history.invoke("commit", sent=LANE))
    assert log.counts["harmful"] == 2


@pytest.mark.parametrize("f", ["abort", "abandon", "init", "seek", "revoke"])
def test_a_firing_in_a_transaction_that_does_not_commit_is_not_harmful(
    f: str, log: BugLog, history: HistoryWriter
) -> None:
    log.fired_in_transaction()
    history.ok(history.invoke(f, sent=LANE if f == "abort" else []))
    history.ok(history.invoke("commit", sent=LANE))
    assert log.counts == {"fired": 1}


def test_a_commit_without_an_answer_or_without_records_proves_no_harm(
    log: BugLog, history: HistoryWriter
) -> None:
    log.fired_in_transaction()
    history.info(history.invoke("commit", sent=LANE), LATE)
    assert log.counts == {"fired": 1}
    history.ok(history.invoke("init"))
    log.fired_in_transaction()
    history.ok(history.invoke("commit", sent=[]))
    assert log.counts == {"fired": 2}


def test_a_firing_in_an_operation_is_harmful_when_that_operation_succeeds(
    log: BugLog, history: HistoryWriter
) -> None:
    first = history.invoke("send", sent=LANE)
    log.fired_in_operation()
    second = history.invoke("send", sent=LANE)
    log.fired_while_sending()
    log.fired_while_sending()
    history.info(first, LATE)
    history.ok(second)
    assert log.counts == {"fired": 3, "harmful": 2}


def test_a_firing_while_an_operation_is_recorded_belongs_to_it(
    log: BugLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = HistoryWriter.invoke

    def firing(self: HistoryWriter, f: str, **fields: object) -> int:
        log.fired_in_operation()
        return original(self, f, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(HistoryWriter, "invoke", firing)
    for owner, attribute, value in log.patches():
        monkeypatch.setattr(owner, attribute, value)
    with HistoryWriter(tmp_path / "c.jsonl", run="abcd1234", client="c", role="idempotent") as history:
        first, second = history.invoke("send", sent=LANE), history.invoke("send", sent=LANE)
        history.ok(second)
        assert log.counts["harmful"] == 1
        history.info(first, LATE)
        assert log.counts["harmful"] == 1


def test_positions_outside_a_transaction_are_harmful_only_if_it_aborts(
    log: BugLog, history: HistoryWriter
) -> None:
    log.fired_before_abort()
    history.ok(history.invoke("commit", sent=LANE))
    history.ok(history.invoke("abort", sent=LANE))
    assert log.counts == {"fired": 1}
    log.fired_before_abort()
    history.ok(history.invoke("abort", sent=LANE))
    assert log.counts == {"fired": 2, "harmful": 1}


def test_the_counts_of_all_clients_are_added(tmp_path: Path) -> None:
    assert read_counts(tmp_path) == {}
    for client in ("a", "b~1"):
        log = BugLog(tmp_path / f"{client}.{FILE}")
        log.fired()
        log.harmful(2)
    (tmp_path / "a.log").write_text("no record")
    assert read_counts(tmp_path) == {"fired": 2, "harmful": 4}
    (tmp_path / f"c.{FILE}").write_text("no json\n")
    with pytest.raises(UsageError, match=r"c\.planted-bug\.jsonl cannot be read"):
        read_counts(tmp_path)
