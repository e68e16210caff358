"""Pytest plugin for tools/mutants.py: it writes the id of the first test that fails into a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "FIRST_FAILURE"
"""Environment variable with the path of the file."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that failed, in any of its phases."""
    _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a module that could not be collected."""
    _note(report)


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    path = Path(os.environ[VARIABLE])
    if report.failed and not path.exists():
        path.write_text(report.nodeid)
