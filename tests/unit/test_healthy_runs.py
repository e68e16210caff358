"""Runs that must be valid: their draw, what `eos audit` printed, and the summary."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.evidence.log_audit import Audit
from harness.report.log_audit_report import format_audit
from tools.healthy_runs import Audited, draw, parse_counts, read_results, summarise, transactional

SILENT = Audited(
    number=0, scenario="jitter", seed=1, backend="process", run_code=0, audit_code=0, damaged=0, suspicious=0
)


def test_each_scenario_occurs_once_before_any_occurs_again() -> None:
    names = transactional()
    drawn = list(draw(1, 2 * len(names)))
    first, second = drawn[: len(names)], drawn[len(names) :]
    assert {name for _, name, _ in first} == {name for _, name, _ in second} == {*names}
    assert drawn[:5] == list(draw(1, 5)), "a longer series begins with the same runs"


def test_the_counts_are_those_that_the_audit_prints() -> None:
    assert parse_counts("\n".join(format_audit(Audit(), []))) == (0, 0)
    assert parse_counts("2 damaged, 13 suspicious") == (2, 13)
    assert parse_counts("error: no cluster is up") == (-1, -1)


@pytest.mark.parametrize(
    "change",
    [{"run_code": 1}, {"run_code": 2}, {"audit_code": 2}, {"damaged": 1}, {"suspicious": 1}, {"damaged": -1}],
)
def test_a_finding_or_another_verdict_is_not_silent(change: dict[str, int]) -> None:
    assert SILENT.silent
    assert not msgspec.structs.replace(SILENT, **change).silent


def test_the_summary_counts_runs_without_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "healthy.jsonl"
    assert read_results(path) == []
    found = msgspec.structs.replace(SILENT, number=1, backend="compose", suspicious=1)
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in (SILENT, found)))
    assert summarise(read_results(path)) == ("1 of 2 runs valid and without a finding (1 compose, 1 process)")
