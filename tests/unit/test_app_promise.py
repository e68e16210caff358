"""The list of an application's starts is promised by a run that starts one, and demanded by the check."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.evidence.app_list import AppList, AppStart
from harness.evidence.checkers.model import Verdict
from harness.evidence.checkers.verdict import judge
from harness.run.verification import expectation
from harness.scenario import find, load
from tests.planted.cases_contract import RUN, AppCase
from tests.unit.test_app_scenario import GOOD, RUNNING

STARTED = AppList(run=RUN, clock="clock", starts=[AppStart(instance="app-1", number=1, started=1)])
EMPTY = AppList(run=RUN, clock="clock")


def reasons(app: AppList | None, *, promised: bool = True) -> list[str]:
    """Return the reasons of the verdict on an application that did everything right."""
    evidence = AppCase().evidence()
    evidence.app = app
    evidence.expect = msgspec.structs.replace(evidence.expect, app=promised)
    judgement = judge(evidence)
    found = [reason for result in judgement.results for reason in result.reasons]
    assert judgement.verdict is (Verdict.UNKNOWN if found else Verdict.VALID)
    return found


def test_a_run_without_the_list_that_it_promised_is_unknown_and_names_it() -> None:
    assert reasons(None) == ["app.json is missing, so it is not known how the application ran"]
    assert reasons(EMPTY) == ["app.json lists no start, so it is not known how the application ran"]
    assert reasons(STARTED) == []


def test_a_run_that_starts_no_application_needs_no_list() -> None:
    assert reasons(None, promised=False) == []


@pytest.mark.parametrize(("text", "promised"), [(GOOD, True), (RUNNING, False)], ids=["started", "running"])
def test_a_run_promises_the_list_if_it_starts_the_application(
    tmp_path: Path, text: str, promised: bool
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert expectation(load(path)).app is promised
    assert expectation(load(find("jitter"))).app is False


def test_every_run_promises_counted_lines_and_a_record_of_late_wakes() -> None:
    expect = expectation(load(find("jitter")))
    assert (expect.counted, expect.lateness) == (True, True)
