"""The lines of a long step."""

from __future__ import annotations

import threading

import pytest

from harness.base.heartbeat import heartbeat


def test_a_long_step_reports_its_seconds_until_it_ends() -> None:
    lines: list[str] = []
    beaten = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            beaten.set()

    with heartbeat(report, "building", every_s=0.01):
        assert beaten.wait(30)
    assert lines[0] == "building"
    assert all(line.startswith("  ... ") and line.endswith(" s") for line in lines[1:])
    assert not any("beat" in thread.name for thread in threading.enumerate())


def test_a_short_step_reports_one_line_and_an_error_ends_it() -> None:
    lines: list[str] = []
    with pytest.raises(KeyError), heartbeat(lines.append, "building"):
        raise KeyError
    assert lines == ["building"]
