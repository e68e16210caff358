"""Pytest plugin for tools/mutants.py: it writes the id of the first test that fails into a file.

It also replaces the part of tests/conftest.py that every test needs: the same examples in every session.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

VARIABLE = "FIRST_FAILURE"
"""Environment variable with the path of the file."""


def pytest_configure() -> None:
    """Use the same examples of properties in every session, without a limit of their duration."""
    slow = [HealthCheck.too_slow]
    settings.register_profile("mutants", deadline=None, derandomize=True, suppress_health_check=slow)
    settings.load_profile("mutants")


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
