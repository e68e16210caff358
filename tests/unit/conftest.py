"""Fixture of all unit tests: after each test, the secrets that the test resolved are no longer redacted."""

from __future__ import annotations

import sys
from threading import Event

import pytest

from harness.base import secrets


@pytest.fixture(autouse=True)
def _nothing_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setattr(secrets, "_wary", Event())
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
