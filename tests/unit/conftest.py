"""What unit tests share: no secret of one is known to another, and no output stays redacted."""

from __future__ import annotations

import sys
from threading import Event

import pytest

from harness import secret


@pytest.fixture(autouse=True)
def _nothing_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret, "_known", set())
    monkeypatch.setattr(secret, "_wary", Event())
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
